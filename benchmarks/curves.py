"""`python -m benchmarks curves`: losses of training in bfloat16 beside float32, ours and PyTorch's.

The classifiers of `torch` learn which of some sequences lies under noise, all from the same weights on the same
batches, with Adam. Who computes in bfloat16 keeps weights and updates in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import torch_step
from benchmarks.block import Case
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from lstm_lower.cli import console
from lstm_lower.errors import LstmLowerError

Array = np.ndarray[Any, Any]
Batch = tuple[Array, Array]

VARIANTS = ("lstm", "cnn", "transformer")
# Of noise around a sequence, and of Adam's steps.
NOISE, RATE = 2.0, 1e-3


def batches(case: Case, steps: int) -> Iterator[Batch]:
    """Sequences of known classes under noise, [T, B, I], and their classes, [B]."""
    T, B, I, _ = case.shape  # noqa: E741
    random = np.random.default_rng(0)
    clean = random.standard_normal((torch_step.CLASSES, T, I), np.float32)
    for _ in range(steps):
        classes = random.integers(0, torch_step.CLASSES, B)
        noise = random.standard_normal((B, T, I), np.float32) * np.float32(NOISE)
        yield np.ascontiguousarray((clean[classes] + noise).swapaxes(0, 1)), classes


def ours(case: Case, steps: int, **where: Any) -> list[float]:
    """Losses of our step; `where` is what `Trainer` takes."""
    import torch

    import lstm_lower as ll

    module, (x, classes) = torch_step.classifier(case)
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    step = ll.from_torch(module, x, torch.nn.CrossEntropyLoss(), optimizer, example_targets=classes)
    if "providers" in where:
        sizes = dict(zip(("x_dim_0", "x_dim_1"), case.shape, strict=False))
        step = ll.lower(step, schedule="unroll", target="openvino", sizes=sizes)
    trainer = ll.Trainer(step, **where)
    return [float(trainer.step({"x": x, "target": target}).loss) for x, target in batches(case, steps)]


def in_pytorch(case: Case, steps: int, *, bfloat16: bool = False) -> list[float]:
    """Losses in PyTorch, under `torch.autocast` or not."""
    import torch

    module, _ = torch_step.classifier(case)
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    losses = []
    for x, target in batches(case, steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(target))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


CONTESTANTS: dict[str, Callable[[Case, int], list[float]]] = {
    "lstm-lower": ours,
    "openvino": lambda case, steps: ours(case, steps, providers=["openvino"]),
    "openvino-bfloat16": lambda case, steps: ours(case, steps, providers=["openvino"], precision="bfloat16"),
    "pytorch": in_pytorch,
    "autocast": lambda case, steps: in_pytorch(case, steps, bfloat16=True),
}


def curves(
    shape: Annotated[str, typer.Option("--shape", help="T,B,I,H: steps of a sequence, batch, inputs, units.")] = (
        "30,32,16,64"
    ),
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps.")] = 300,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train an LSTM, a CNN and a transformer in float32 and in bfloat16, here and in PyTorch, and tell the losses."""
    with console.errors(as_json=as_json):
        rows = []
        for variant in VARIANTS:
            case = Case("torch", parse_shape(shape), variant)
            for name, train in CONTESTANTS.items():
                rows.append({"variant": variant, "contestant": name, **_outcome(train, case, steps)})
                if not as_json:
                    print(variant, name, *(rows[-1]["losses"] or [rows[-1]["absence"]])[-1:])
        hand_out(rows, output, as_json=as_json)


def _outcome(train: Callable[[Case, int], list[float]], case: Case, steps: int) -> dict[str, Any]:
    try:
        return {"losses": [round(loss, 5) for loss in train(case, steps)], "absence": None}
    except LstmLowerError as error:
        return {"losses": [], "absence": str(error).partition("\n")[0].partition("; ")[0]}
