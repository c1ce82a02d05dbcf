"""How a module begins and ends: inputs, loss, optimizer."""

from __future__ import annotations

import random

import torch

from tests.support.fuzz.torch_modules import control, elements, layers, moving, recurrent  # noqa: F401 (ideas)
from tests.support.fuzz.torch_modules.program import PLAIN, SGD, Input, Program
from tests.support.fuzz.torch_modules.scope import Refused, Scope, grow

SHAPES = (
    "b, 4",
    "b, 3",
    "b, t, 4",
    "b, t, 4",
    "b, t, 3",
    "t, b, 4",
    "b, 2, t",
    "b, 2, 5, t",
    "b, 3, 6, 6",
    "b, 4, t",
    "b",
    "4, 6",
)

# Losses of the first output that take a target of its shape: an expression of `y`, the output, and the module.
SAME = {
    "nn.MSELoss({reduction})": "torch.rand_like(y)",
    "nn.L1Loss({reduction})": "torch.rand_like(y)",
    "nn.SmoothL1Loss(beta=0.3{more})": "torch.rand_like(y)",
    "nn.HuberLoss(delta=0.2{more})": "torch.rand_like(y)",
    "nn.BCEWithLogitsLoss({reduction})": "torch.rand_like(y)",
    "nn.PoissonNLLLoss({reduction})": "torch.rand_like(y) * 3",
    "nn.PoissonNLLLoss(full=True{more})": "torch.rand_like(y) * 3",
    "nn.HingeEmbeddingLoss({reduction})": "torch.rand_like(y).sub(0.5).sign()",
    "nn.SoftMarginLoss({reduction})": "torch.rand_like(y).sub(0.5).sign()",
    "lambda y, target: F.kl_div(y.log_softmax(-1), target, reduction='batchmean')": "torch.rand_like(y)",
    "lambda y, target: F.kl_div(y, target, log_target=True)": "torch.randn_like(y)",
    "lambda y, target: F.binary_cross_entropy(torch.sigmoid(y), target)": "torch.rand_like(y)",
    "lambda y, target: F.gaussian_nll_loss(y, target, y.abs() + 0.5)": "torch.rand_like(y)",
    "lambda y, target: (1 - F.cosine_similarity(y, target, dim=-1)).mean()": "torch.rand_like(y)",
    "lambda y, target: F.margin_ranking_loss(y, target, torch.ones_like(y), margin=0.2)": "torch.rand_like(y)",
    "lambda y, target: F.triplet_margin_loss(y, target, target.flip(0))": "torch.rand_like(y)",
    "lambda y, target: ((y - target) ** 2 * (target > 0.3)).sum() / (target > 0.3).sum()": "torch.rand_like(y)",
    "lambda y, target: (y - target).cosh().log().mean()": "torch.rand_like(y)",
    "lambda y, target: torch.max(0.3 * (y - target), -0.7 * (y - target)).mean()": "torch.rand_like(y)",
}
# Losses with class numbers, of outputs [B, C, ...].
CLASSES = "torch.randint(0, y.shape[1], (y.shape[0], *y.shape[2:]))"
NUMBERED = {
    "nn.CrossEntropyLoss({reduction})": CLASSES,
    "nn.CrossEntropyLoss(label_smoothing=0.2{more})": CLASSES,
    "nn.CrossEntropyLoss(ignore_index=0{more})": CLASSES,
    "nn.CrossEntropyLoss(weight=torch.arange(1.0, {classes} + 1){more})": CLASSES,
    "nn.CrossEntropyLoss(weight=torch.arange(1.0, {classes} + 1), label_smoothing=0.1, ignore_index=1{more})": CLASSES,
    "lambda y, target: F.cross_entropy(y, target.softmax(1))": "torch.rand_like(y)",
    "lambda y, target: F.nll_loss(y.log_softmax(1), target, ignore_index=1)": CLASSES,
    "nn.MultiMarginLoss({reduction})": "torch.randint(0, y.shape[1], y.shape[:1])",
    "nn.MultiLabelSoftMarginLoss({reduction})": "torch.rand_like(y).round()",
    "lambda y, target: -(y.softmax(1).gather(1, target.unsqueeze(1)) + 1e-3).log().mean()": CLASSES,
}
OPTIMIZERS = (
    "SGD(P, lr=0.1)",
    "SGD(P, lr=0.05, momentum=0.9)",
    "SGD(P, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)",
    "SGD(P, lr=0.05, momentum=0.8, dampening=0.3)",
    "SGD(P, lr=0.01, maximize=True)",
    "Adam(P, lr=0.01)",
    "Adam(P, lr=0.01, betas=(0.5, 0.9), eps=1e-4, weight_decay=0.1)",
    "Adam(P, lr=0.01, amsgrad=True)",
    "AdamW(P, lr=0.01, weight_decay=0.2)",
    "RMSprop(P, lr=0.01)",
    "RMSprop(P, lr=0.01, momentum=0.5, centered=True)",
    "Adagrad(P, lr=0.05, lr_decay=0.1)",
    "Adadelta(P, lr=0.5)",
    "Adamax(P, lr=0.01)",
    "NAdam(P, lr=0.01)",
    "RAdam(P, lr=0.01)",
    "ASGD(P, lr=0.05, t0=1)",
    "ASGD(P, lr=0.05, lambd=0.1, alpha=0.5, weight_decay=0.1)",
    "Rprop(P, lr=0.01)",
    "Rprop(P, lr=0.01, etas=(0.3, 1.5), step_sizes=(1e-3, 0.02), maximize=True)",
)
SCHEDULERS = (
    "StepLR({}, 1, gamma=0.5)",
    "ExponentialLR({}, 0.7)",
    "CosineAnnealingLR({}, 5)",
    "LinearLR({}, 0.2, total_iters=3)",
    "PolynomialLR({}, 3)",
    "MultiStepLR({}, [1, 2])",
)


def program(seed: int) -> Program:
    """The module of a seed.

    Raises:
        Refused: nothing came of it.
    """
    draw = random.Random(seed)
    torch.manual_seed(seed)
    scope = Scope(draw)
    grid = scope.chance(0.2)
    for number in range(scope.choice(1, 1, 2, 3)):
        shape = draw.choice(SHAPES if number else SHAPES[:-2])
        made = f"torch.randn({shape})"
        if grid:
            made = f"torch.randint(-2, 3, ({shape},)) * 0.5"
        if number and scope.chance(0.25):
            made = f"torch.randint(0, 12, ({shape},))"
        elif scope.chance(0.05):
            made = f"(torch.randn({shape}) > 0)"
        scope.add_input(Input(f"x{number}", made))
    if scope.chance(0.15):
        scope.add_input(Input("x9", f"torch.randint(0, 12, ({scope.choice('b, t', 'b')},))"))
    with scope.whole():
        # So that there is something to learn.
        (layers.embedding if not scope.values["x0"].is_floating_point() else layers.linear)(scope)
    grow(scope, draw.randint(2, 8))
    made = [name for name in scope.values if name not in scope.space or name.startswith("v")]
    last = [
        name for name in reversed(made) if scope.values[name].is_floating_point() and scope.values[name].requires_grad
    ]
    if not last:
        raise Refused
    outputs = last[:1] + [
        name for name in draw.sample(made, min(len(made), scope.choice(0, 0, 1, 2))) if name != last[0]
    ]
    found = Program(scope.inputs, scope.lines, outputs, PLAIN, [], SGD)
    found.training = scope.chance(0.75)
    if scope.chance(0.15) and len(found.inputs) > 1:
        found.form = "nested"
    elif scope.chance(0.1) and len(outputs) > 1:
        found.form = "mapping"
    found.what = scope.choice("train", "train", "train", "gradients", "input_gradient")
    if found.what == "input_gradient" and not any(scope.values[x.name].is_floating_point() for x in found.inputs):
        found.what = "gradients"
    if found.what == "train":
        found.optimizer = _optimizer(scope)
    if scope.chance(0.5) and found.form != "mapping":
        _set_loss(scope, found)
    return found.kept()


def _optimizer(scope: Scope) -> str:
    text = f"torch.optim.{scope.random.choice(OPTIMIZERS)}"
    groups = "module.parameters()"
    if scope.chance(0.2):
        groups = "[{'params': [p]} if i else {'params': [p], 'lr': 0.03} for i, p in enumerate(module.parameters())]"
    text = text.replace("P,", groups + ",")
    if scope.chance(0.2):
        text = f"torch.optim.lr_scheduler.{scope.random.choice(SCHEDULERS).format(text)}"
    return text


def _set_loss(scope: Scope, found: Program) -> None:
    y = scope.values[found.outputs[0]]
    if y.dtype != torch.float32 or not y.dim():
        return
    table = dict(SAME)
    if y.dim() > 1 and y.shape[1] > 1:
        table = NUMBERED if scope.chance(0.5) else SAME
    text, target = scope.random.choice(sorted(table.items()))
    reduction = scope.choice("", "", "reduction='sum'")
    text = text.replace("{reduction}", reduction).replace("{more}", f", {reduction}" if reduction else "")
    text = text.replace("{classes}", str(y.shape[1] if y.dim() > 1 else 0))
    if len(found.outputs) > 1 and text.startswith("lambda"):
        text = f"lambda result, target: ({text})(result[0], target)"
    elif "MultiLabel" in text or "SoftMargin" in text:
        found.outputs = found.outputs[:1]  # a loss that is traced takes the whole result
    found.loss, found.targets = text, [target]


__all__ = ["Refused", "program"]
