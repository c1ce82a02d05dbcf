"""Losses and optimizers with random options, each with what PyTorch has for it."""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lstm_lower.passes.training import losses, optimizers, torch_optimizers

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

# What torch.nn.functional calls them; what makes a prediction one that they are defined for.
ELEMENTWISE = {
    "MSE": ("mse_loss", None),
    "L1": ("l1_loss", None),
    "SmoothL1": ("smooth_l1_loss", None),
    "Huber": ("huber_loss", None),
    "BCE": ("binary_cross_entropy", "Sigmoid"),
    "BCEWithLogits": ("binary_cross_entropy_with_logits", None),
    "KLDiv": ("kl_div", "LogSoftmax"),
    "PoissonNLL": ("poisson_nll_loss", "Sigmoid"),
    "HingeEmbedding": ("hinge_embedding_loss", None),
}
OF_CLASSES = {
    "NLL": ("nll_loss", "LogSoftmax"),
    "CrossEntropy": ("cross_entropy", None),
    "MultiMargin": ("multi_margin_loss", None),
}


@dataclasses.dataclass(frozen=True)
class DrawnLoss:
    """A loss.

    Attributes:
        ours: ours.
        function: its name in `torch.nn.functional`.
        options: of both.
        before: an operator that the prediction goes through first.
        targets: target input -> array.
    """

    ours: losses.Loss
    function: str
    options: dict[str, Any]
    before: str | None
    targets: Arrays

    def of(self, prediction: Array) -> float:
        """PyTorch's loss of a prediction, in float64."""
        import torch

        given = [
            torch.tensor(x.astype(float) if x.dtype.kind == "f" else x) for x in (prediction, *self.targets.values())
        ]
        options = {key: torch.tensor(x) if isinstance(x, np.ndarray) else x for key, x in self.options.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kl_div, that its mean is none over the batch
            return float(getattr(torch.nn.functional, self.function)(*given, **options))


def draw_loss(draw: random.Random, numbers: np.random.Generator, shape: tuple[int, ...]) -> DrawnLoss:
    """A loss for predictions of a shape, none of whose sizes is 0."""
    kinds = [kind for kind, (_, before) in ELEMENTWISE.items() if shape or before != "LogSoftmax"]
    if shape:
        kinds += ["NLL", "CrossEntropy", "CrossEntropy"] + ["MultiMargin"] * (len(shape) < 3)
    if len(shape) == 3 and shape[-1] > 1:
        kinds += ["CTC"] * 3
    kind = draw.choice(kinds)
    if kind == "CTC":
        return _ctc(draw, numbers, shape)
    function, before = (ELEMENTWISE | OF_CLASSES)[kind]
    options: dict[str, Any] = {"reduction": draw.choice(["mean", "sum"])}
    target: Array = numbers.uniform(0.05, 0.95, shape)
    if kind in ELEMENTWISE:
        match kind:
            case "SmoothL1":
                options["beta"] = draw.choice([1.0, 0.3])
            case "Huber":
                options["delta"] = draw.choice([1.0, 0.4])
            case "BCE" | "BCEWithLogits" if draw.random() < 1 / 2:
                options["weight"] = numbers.uniform(0.5, 2, shape[-1:])
                if kind == "BCEWithLogits":
                    options["pos_weight"] = numbers.uniform(0.5, 2, shape[-1:])
            case "KLDiv":
                options = {"reduction": draw.choice(["mean", "sum"] + ["batchmean"] * bool(shape))}
                options["log_target"] = draw.random() < 1 / 2
                target = np.log(target) if options["log_target"] else target
            case "PoissonNLL":
                options |= {"log_input": draw.random() < 1 / 2, "full": draw.random() < 1 / 2}
                target = numbers.integers(0, 4, shape).astype(np.float64)
            case "HingeEmbedding":
                options["margin"] = draw.choice([1.0, 0.7])
                target = np.where(target > 0.5, 1.0, -1.0)
        return DrawnLoss(getattr(losses, kind)(**options), function, options, before, {"target": target})
    axis = 0 if len(shape) == 1 else 1
    labels = numbers.integers(0, shape[axis], (*shape[:axis], *shape[axis + 1 :]))
    if draw.random() < 1 / 2:
        options["weight"] = numbers.uniform(0.5, 2, shape[axis])
    if kind == "MultiMargin":
        options |= {"p": draw.choice([1, 2]), "margin": draw.choice([1.0, 0.5])}
    elif draw.random() < 1 / 3:
        options["ignore_index"] = draw.randrange(shape[axis])
    more: dict[str, Any] = {}
    if kind == "CrossEntropy" and draw.random() < 1 / 2:
        options["label_smoothing"] = 0.2
    target = labels
    if kind == "CrossEntropy" and draw.random() < 1 / 3:
        options.pop("ignore_index", None)
        more["target"] = "probabilities"
        scores = numbers.uniform(0.1, 1, shape)
        target = scores / scores.sum(axis, keepdims=True)
    return DrawnLoss(getattr(losses, kind)(**options, **more), function, options, before, {"target": target})


def _ctc(draw: random.Random, numbers: np.random.Generator, shape: tuple[int, ...]) -> DrawnLoss:
    steps, batch, classes = shape
    blank, most = draw.randrange(classes), draw.randint(1, 2)
    labels = numbers.integers(0, classes - 1, (batch, most))
    labels += labels >= blank
    options = {"blank": blank, "reduction": draw.choice(["mean", "sum"]), "zero_infinity": draw.random() < 1 / 2}
    lengths = numbers.integers(1, steps + 1, batch), numbers.integers(1, most + 1, batch)
    targets = dict(zip(("target_0", "target_1", "target_2"), (labels, *lengths), strict=True))
    return DrawnLoss(losses.CTC(**options), "ctc_loss", options, "LogSoftmax", targets)


class Reference:
    """An optimizer in float64: PyTorch's own, or the formula of one of TensorFlow's."""

    def __init__(self, optimizer: Any, weights: Mapping[str, Array]) -> None:
        import torch

        self.optimizer = optimizer
        self.weights = {name: torch.tensor(x.astype(np.float64)) for name, x in weights.items()}
        self._slots: dict[str, Any] = {}
        self._count = 0
        self._theirs = None
        if type(optimizer).__module__.startswith(torch_optimizers.__name__):
            options = dataclasses.asdict(optimizer)
            rate = options.pop("learning_rate")
            if isinstance(optimizer, torch_optimizers.AdamW):
                del options["decoupled_weight_decay"]
            self._theirs = getattr(torch.optim, type(optimizer).__name__)(self.weights.values(), lr=rate, **options)

    def update(self, gradients: Mapping[str, Array]) -> None:
        """Takes a step."""
        import torch

        self._count += 1
        for name, weight in self.weights.items():
            weight.grad = torch.tensor(gradients[name].astype(np.float64))
        if self._theirs is not None:
            self._theirs.step()
            return
        for name, weight in self.weights.items():
            weight -= self._change(name, weight, weight.grad)

    def _slot(self, slot: str, name: str, new: Callable[[Any], Any]) -> Any:
        value = new(self._slots.get(f"{slot} of {name}", 0.0))
        self._slots[f"{slot} of {name}"] = value
        return value

    def _change(self, name: str, weight: Any, gradient: Any) -> Any:
        this, rate = self.optimizer, self.optimizer.learning_rate
        if isinstance(this, optimizers.RMSprop):
            square = self._slot("square", name, lambda old: this.rho * old + (1 - this.rho) * gradient**2)
            return rate * gradient / (square + this.epsilon) ** 0.5
        decay = rate * this.weight_decay * weight
        if isinstance(this, optimizers.SGD):
            velocity = self._slot("velocity", name, lambda old: this.momentum * old + gradient)
            return decay + rate * (gradient + this.momentum * velocity if this.nesterov else velocity)
        m = self._slot("m", name, lambda old: this.beta_1 * old + (1 - this.beta_1) * gradient)
        v = self._slot("v", name, lambda old: this.beta_2 * old + (1 - this.beta_2) * gradient**2)
        rate *= (1 - this.beta_2**self._count) ** 0.5 / (1 - this.beta_1**self._count)
        return decay + rate * m / (v**0.5 + this.epsilon)


def draw_optimizer(draw: random.Random) -> Any:
    """An optimizer, of PyTorch's kind or TensorFlow's."""
    rate = {"learning_rate": draw.choice([0.1, 0.01])}
    ours: list[Callable[[], Any]] = [
        lambda: optimizers.SGD(**rate, momentum=draw.choice([0.0, 0.9]), weight_decay=draw.choice([0.0, 0.1])),
        lambda: optimizers.SGD(**rate, momentum=0.9, nesterov=True),
        lambda: optimizers.Adam(**rate, weight_decay=draw.choice([0.0, 0.1])),
        lambda: optimizers.RMSprop(**rate),
    ]
    if draw.random() < 1 / 3:
        return draw.choice(ours)()
    kind = draw.choice([*_OPTIONS])
    options = {name: draw.choice(choices) for name, choices in _OPTIONS[kind].items()}
    return getattr(torch_optimizers, kind)(**rate, **options, weight_decay=draw.choice([0.0, 0.1]))


_OPTIONS: dict[str, dict[str, list[Any]]] = {
    "SGD": {"momentum": [0.0, 0.9], "maximize": [False, True]},
    "Adam": {"amsgrad": [False, True], "decoupled_weight_decay": [False, True], "maximize": [False, True]},
    "AdamW": {"amsgrad": [False, True]},
    "NAdam": {"decoupled_weight_decay": [False, True]},
    "RAdam": {"betas": [(0.9, 0.999), (0.8, 0.5)]},
    "Adamax": {},
    "RMSprop": {"momentum": [0.0, 0.9], "centered": [False, True]},
    "Adagrad": {"lr_decay": [0.0, 0.1], "initial_accumulator_value": [0.0, 0.1]},
    "Adadelta": {"rho": [0.9, 0.5]},
    "ASGD": {"lambd": [1e-4, 0.1], "t0": [0, 1, 1e6], "maximize": [False, True]},
}
