"""`python -m benchmarks torch`: a training step of a PyTorch classifier, exported, next to PyTorch and other tools.

A layer over sequences and a linear layer on its last step, or a network without a loop (`feedforward`) and a linear
layer on the mean over steps; cross entropy, SGD without momentum. PyTorch runs the step eagerly and compiled; onnx-ad
differentiates PyTorch's export, and numpy updates the weights; onnxsim makes a training loop of the same export. Needs
the extras [torch] and [bench]; who is not installed or refuses is said in the table.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.block import Case
from benchmarks.floors import Product

Array = np.ndarray[Any, Any]
Step = Callable[[], Any]

VARIANTS = ("lstm", "gru", "mlp", "cnn", "transformer")
RIVALS = {
    "torch": (
        *("openvino", "openvino-bfloat16", "floor", "pytorch", "autocast", "torch-compile", "onnx-ad", "onnxsim"),
        "floor-pytorch",
    )
}
SHAPES = ("100,32,64,128",)
CLASSES, RATE = 10, 0.01
KERNEL, HEADS = 5, 4


def floor_products(case: Case) -> list[Product]:
    """The products of forward pass, backward pass and weight gradients of all but the head; `x` needs no gradient."""
    T, B, I, H = case.shape  # noqa: E741
    if case.variant in ("mlp", "cnn", "transformer"):
        return _feedforward_products(case)
    gates = (4 if case.variant == "lstm" else 3) * H
    forward = [Product((T * B, I), (I, gates)), Product((B, H), (H, gates), T)]
    weights = [Product((T * B, size), (T * B, gates), turned=True) for size in (I, H)]
    return [*forward, Product((B, gates), (gates, H), T), *weights]


def _feedforward_products(case: Case) -> list[Product]:
    """Those of `feedforward`, a convolution's as they are over columns of the image."""
    T, B, I, H = case.shape  # noqa: E741
    widths = {
        "mlp": [(I, H), (H, H), (H, H)],
        "cnn": [(KERNEL * I, H), (KERNEL * H, H), (KERNEL * H, H)],
        "transformer": [(I, H), (H, 3 * H), (H, H), (H, 4 * H), (4 * H, H)],
    }[case.variant]
    products = []
    for number, (rows, columns) in enumerate(widths):
        products += [Product((T * B, rows), (rows, columns)), Product((T * B, rows), (T * B, columns), turned=True)]
        if number:
            products.append(Product((T * B, columns), (columns, rows)))
    if case.variant == "transformer":
        # Scores and weighted values of each head, and two products for the gradient of each.
        parts, size = B * HEADS, H // HEADS
        products += [Product((T, size), (size, T), 2 * parts), Product((T, T), (T, size), 4 * parts)]
    return products


def feedforward(case: Case) -> Any:
    """A network [T, B, I] -> [T, B, H]: three linear layers, three convolutions over time, or a transformer layer."""
    from torch import nn

    _, _, I, H = case.shape  # noqa: E741

    class OverTime(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return self.layers(x.permute(1, 2, 0)).permute(2, 0, 1)

    def convolution(size: int) -> nn.Module:
        return nn.Conv1d(size, H, KERNEL, padding=KERNEL // 2)

    if case.variant == "mlp":
        return nn.Sequential(nn.Linear(I, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, H))
    if case.variant == "cnn":
        return OverTime(convolution(I), nn.ReLU(), convolution(H), nn.ReLU(), convolution(H))
    return nn.Sequential(nn.Linear(I, H), nn.TransformerEncoderLayer(H, HEADS, 4 * H, dropout=0.0))


def classifier(case: Case, loss: Callable[..., Any] | None = None) -> tuple[Any, tuple[Any, Any]]:
    """The module, or the module with its loss, and a batch."""
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            recurrent = getattr(torch.nn, case.variant.upper(), None)
            self.layer = feedforward(case) if recurrent is None else recurrent(I, H)
            self.head = torch.nn.Linear(H, CLASSES)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return self.head(y[0][-1] if isinstance(y, tuple) else y.mean(0))

    class WithLoss(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any, target: Any) -> Any:
            assert loss is not None
            return loss(self.module(x), target)

    T, B, I, H = case.shape  # noqa: E741
    torch.manual_seed(0)
    module = Classifier()
    for weight in module.parameters():
        # No two are equal, which the exporter would make one.
        torch.nn.init.normal_(weight, weight.mean().item(), 0.1)
    return module if loss is None else WithLoss(module), (torch.randn(T, B, I), torch.randint(0, CLASSES, (B,)))


def in_ours(
    case: Case, threads: int, schedule: str, target: str | None = None, **where: Any
) -> tuple[Step, dict[str, Any]]:
    """A step in a trainer, exported with open sizes, which are fixed for a target; returns the loss.

    `where` is what `Trainer` takes.
    """
    import torch

    import lstm_lower as ll
    from lstm_lower.runtime.session import default_options

    module, (x, classes) = classifier(case)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    options = default_options()
    options.intra_op_num_threads = threads
    model = ll.from_torch(module, x, torch.nn.CrossEntropyLoss(), optimizer, example_targets=classes)
    sizes = dict(zip(("x_dim_0", "x_dim_1"), case.shape, strict=False)) if target is not None else {}
    started = time.perf_counter()
    lowered = ll.lower(model, schedule=schedule, target=target, sizes=sizes)
    spent = time.perf_counter()
    trainer = ll.Trainer(lowered, session_options=options, **where)
    facts = {"lower_s": spent - started, "load_s": time.perf_counter() - spent}
    fed = {"x": x.numpy(), "target": classes.numpy()}
    return lambda: trainer.step(fed).loss, facts


def in_pytorch(case: Case, *, compiled: bool = False, device: str = "cpu", bfloat16: bool = False) -> Step:
    """A step in PyTorch, forward and backward pass compiled or not, products in bfloat16 or not; returns the loss."""
    import torch

    module, (x, target) = classifier(case)
    module, x, target = module.to(device), x.to(device), target.to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    forward: Any = torch.compile(module) if compiled else module

    def run() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss: Any = torch.nn.functional.cross_entropy(forward(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def exported(case: Case, loss: Callable[..., Any], target: Any = None) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The module with its loss as PyTorch exports it, of fixed sizes, and a batch."""
    import torch

    module, (x, labels) = classifier(case, loss)
    target = labels if target is None else target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"input_names": ["x", "target"], "output_names": ["loss"]}
        program = torch.onnx.export(module, (x, target), dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
    assert program is not None
    return program.model_proto, {"x": x.numpy(), "target": target.numpy()}


def _weights(model: onnx.ModelProto) -> dict[str, Array]:
    tensors = [value for value in model.graph.initializer if value.data_type == onnx.TensorProto.FLOAT]
    return {value.name: numpy_helper.to_array(value).copy() for value in tensors}


def _trained(case: Case, weights: dict[str, Array]) -> dict[str, Array]:
    """Those that are parameters, turned and named anew if they are matrices, but not what is constant in the module."""
    parameters = {f"module.{name}" for name, _ in classifier(case)[0].named_parameters()}
    return {name: value for name, value in weights.items() if name in parameters or (value.ndim > 1 and value.any())}


def in_onnx_ad(case: Case, threads: int) -> Step:
    """A step of the adjoint that onnx-ad makes, in onnxruntime; the update is numpy's. Returns the loss."""
    import onnx_ad
    import onnxruntime as ort
    import torch

    from lstm_lower.runtime.session import default_options

    model, fed = exported(case, torch.nn.functional.cross_entropy)
    weights = _weights(model)
    kept = [value for value in model.graph.initializer if value.name not in weights]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    element = onnx.TensorProto.FLOAT
    trained = _trained(case, weights)
    model.graph.input.extend(helper.make_tensor_value_info(name, element, v.shape) for name, v in weights.items())
    adjoint = onnx_ad.reverse(model, inputs=list(trained), layout="onnx")
    options = default_options()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = ort.InferenceSession(adjoint.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fed |= {**weights, "adj_loss": np.ones(1, np.float32)}
    outputs = ["loss", *(f"adj_{name}" for name in trained)]

    def run() -> Any:
        loss, *gradients = session.run(outputs, fed)
        for value, gradient in zip(trained.values(), gradients, strict=True):
            value -= RATE * gradient[..., 0]
        return loss

    return run


def in_onnxsim(case: Case) -> Step:
    """A step of onnxsim's training loop, the loss in operators that it has gradients of; returns the loss."""
    import onnxsim
    import torch

    def loss(logits: Any, target: Any) -> Any:
        return -(target * torch.log(torch.softmax(logits, -1))).sum() / logits.shape[0]

    labels = torch.nn.functional.one_hot(classifier(case)[1][1], CLASSES).float()
    model, fed = exported(case, loss, labels)
    loop = onnxsim.compile_training_loop(model, "loss", list(_trained(case, _weights(model))))
    loop(fed, RATE)
    return lambda: loop(fed, RATE)
