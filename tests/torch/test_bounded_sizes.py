"""Axes that are open up to the size at which a module's code decides otherwise: next to autograd, and beyond it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

import sympy  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._sympy.functions import FloorDiv, Mod  # noqa: E402

from lstm_lower.torch.aten.size_decisions import holds_up_to  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402
from tests.torch.test_length_laws import Filled  # noqa: E402
from tests.torch.test_python_loops import compare, loss_of  # noqa: E402

I, H, BATCH = 3, 4, 2  # noqa: E741


class Decided(nn.Module):
    """Takes other numbers for long sequences than for short ones."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.lstm = most, nn.LSTM(I, H, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = self.lstm(x)[0]
        return 2 * y if x.shape[1] > self.most else y


class Table(nn.Module):
    """Reads of its input how long it is alone."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.table = most, nn.Parameter(torch.randn(100, H))

    def forward(self, x: Any) -> Any:
        y = self.table[: x.shape[1]]
        return y if x.shape[1] <= self.most else y.flip(0)


class Masked(nn.Module):
    """Has two inputs of a size, by whose half it decides."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.embedding, self.out = most, nn.Embedding(9, H), nn.Linear(H, H)

    def forward(self, ids: Any, mask: Any) -> Any:
        y = torch.tanh(self.out(self.embedding(ids))) * mask.unsqueeze(-1)
        return y.cumsum(1) if y.shape[1] // 2 > self.most // 2 else y


class Doubled(Filled):
    """Goes over chunks of three steps, and does something else with many of them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(self, x: Any) -> Any:
        return super().forward(x) * (2 if x.size(1) > self.most else 1)


class Stepping(nn.Module):
    """Takes steps in a loop in Python, with something else for many of them, or nothing."""

    def __init__(self, most: int, form: str) -> None:
        super().__init__()
        self.most, self.form = most, form
        self.cell, self.out, self.table = nn.GRUCell(I, H), nn.Linear(H, H), nn.Parameter(torch.randn(most, H))

    def forward(self, x: Any) -> Any:
        x = x[:, : self.most] if self.form == "cut" else x
        h = x.new_zeros(x.size(0), H)
        for t in range(min(x.size(1), self.most) if self.form == "fewer" else x.size(1)):
            if self.form == "detached" and t == self.most:
                h = h.detach()
            h = self.cell(x[:, t], h)
            if self.form == "last row":
                h = h + self.table[min(t, self.most - 1)]
        return self.out(h) * (2 if self.form == "decided" and x.size(1) > self.most else 1)


def steps_of(width: int) -> Callable[[int, int], tuple[Any, ...]]:
    return lambda b, t: (torch.randn(b, t, width),)


# Module, its bound, its inputs, and how long an example is.
CASES: dict[str, tuple[Callable[[], nn.Module], int, Callable[[int, int], tuple[Any, ...]], int]] = {
    "decided": (lambda: Decided(20), 20, steps_of(I), 5),
    "at the example": (lambda: Decided(5), 5, steps_of(I), 5),
    "far": (lambda: Decided(5000), 5000, steps_of(I), 5),
    "size alone": (lambda: Table(20), 20, steps_of(I), 5),
    "two inputs": (lambda: Masked(20), 21, lambda b, t: (torch.randint(0, 9, (b, t)), torch.ones(b, t)), 5),
    "several chunks": (lambda: Doubled(40), 40, steps_of(I), 5),
    "loop, cut": (lambda: Stepping(20, "cut"), 20, steps_of(I), 5),
    "loop, fewer": (lambda: Stepping(20, "fewer"), 20, steps_of(I), 8),
    "loop, detached": (lambda: Stepping(20, "detached"), 20, steps_of(I), 5),
    "loop, last row": (lambda: Stepping(20, "last row"), 20, steps_of(I), 5),
    "loop, decided": (lambda: Stepping(20, "decided"), 20, steps_of(I), 5),
    "loop, decided at the example": (lambda: Stepping(9, "decided"), 9, steps_of(I), 9),
    "loop, decided far": (lambda: Stepping(500, "decided"), 500, steps_of(I), 5),
    "one chunk": (Filled, 3, steps_of(I), 2),
}


class Plain:
    """A session of onnxruntime alone, which knows of no metadata."""

    def __init__(self, model: Any, level: Any = ort.GraphOptimizationLevel.ORT_ENABLE_ALL) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = level, 4
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs = [each.name for each in self.session.get_inputs()]

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        names = [each.name for each in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, feeds), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sizes_up_to_the_bound_are_those_of_pytorch_and_larger_ones_refused(name: str) -> None:
    make, most, inputs, length = CASES[name]
    torch.manual_seed(0)
    module = make()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step = ll.from_torch(module, inputs(BATCH, length), loss_of, example_targets=(), what="gradients")
    said = [str(each.message) for each in told if issubclass(each.category, FixedStepsWarning)]
    assert [f"up to {most} (" in each for each in said] == ([] if most > 16 * length else [True])
    fixed = json.loads(next(each.value for each in step.metadata_props if each.key == FIXED_AXES))
    assert all("1" not in axes for axes in fixed.values())
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    sizes = sorted({4 if name == "several chunks" else 1, length, min(most, length + 2), most})
    beyond = dict(zip(session.inputs, (x.numpy() for x in inputs(BATCH, most + 1)), strict=True))
    for size in sizes:
        compare(module, session, inputs(3, size))
    with pytest.raises(
        ll.InvalidInputError, match=rf"a size of at most {most} along axis 1 \(.*test_.* (decides by it|otherwise)"
    ):
        session.run(beyond)
    with pytest.raises(ll.InvalidInputError, match=rf"a size of at most {most} along axis 1"):
        ll.Trainer(step, optimizer="sgd", providers=["CPUExecutionProvider"]).step(beyond)
    for model in (step, ll.lower(step), ll.optimize(step)):
        for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
            plain = Plain(model, level)
            compare(module, plain, inputs(3, most))
            for size in (most + 1, 2 * most + 5):
                feeds = dict(zip(plain.inputs, (x.numpy() for x in inputs(BATCH, size)), strict=True))
                with pytest.raises(Exception, match=rf"_axis_1_up_to_{most}/Reshape"):
                    plain.run(feeds)


@pytest.mark.slow
def test_what_evaluates_a_step_has_the_bound_too() -> None:
    with pytest.warns(FixedStepsWarning, match="up to 20"):
        step = ll.from_torch(Decided(20), torch.randn(2, 5, I), "mse", "sgd")
    trainer = ll.Trainer(step, providers=["CPUExecutionProvider"])
    assert trainer.predict({"x": np.ones((2, 20, I), np.float32)})["output"].shape == (2, 20, H)
    with pytest.raises(ll.InvalidInputError, match="at most 20 along axis 1"):
        trainer.predict({"x": np.ones((2, 21, I), np.float32)})


@pytest.mark.slow
def test_a_bound_is_one_of_the_axes_that_are_asked_for_without_a_comparison() -> None:
    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x' up to 20 \(test_bounded_sizes.py:\d+ decides by it"):
        step = ll.from_torch(
            Decided(20), torch.randn(2, 5, I), "mse", what="gradients", dynamic_shapes={"x": [1]}, check=False
        )
    plain = Plain(step)
    target = np.zeros((2, 21, H), np.float32)
    with pytest.raises(Exception, match="x_axis_1_up_to_20/Reshape"):
        plain.run(dict(zip(plain.inputs, (np.ones((2, 21, I), np.float32), target), strict=True)))


@pytest.mark.slow
def test_decisions_that_begin_behind_the_least_size_fix_an_axis() -> None:
    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x' \(test_bounded_sizes.py:\d+ decides by it"):
        step = ll.from_torch(Decided(20), torch.randn(2, 30, I), loss_of, example_targets=(), what="gradients")
    with pytest.raises(ll.InvalidInputError, match=r"requires shape \[x_dim_0, 30, 3\]"):
        ll.Session(step, providers=["CPUExecutionProvider"]).run({"x": np.ones((2, 31, I), np.float32)})


S = sympy.Symbol("s", integer=True, positive=True)


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        (S <= 16384, 16384),
        (S * 3 < 100_000, 33_333),
        (FloorDiv(FloorDiv(S - 1, 2), 2) + 3 < 6002, 23_996),
        (sympy.Eq(FloorDiv(S + 63, 64), 1), 64),
        (sympy.Eq(FloorDiv(S + Mod(64 - Mod(S, 64), 64), 64), 1), 64),
        (sympy.Eq(FloorDiv(S + 4095, 4096), 1), 4096),
        # Of few sizes, of none from 1 on, of several sizes.
        (sympy.Ne(S, 1), 0),
        (S > 100, 0),
        (sympy.Eq(FloorDiv(S + 63, 64), 2), 0),
        (sympy.Symbol("t", integer=True, positive=True) <= S, 0),
    ],
    ids=str,
)
def test_the_size_up_to_which_a_comparison_holds(expression: Any, most: int) -> None:
    found = holds_up_to(expression)
    assert found == most
    sizes = range(1, min(found, 500) + 1), range(max(found - 500, 1), found + 1)
    assert all(expression.subs(S, size) for each in sizes for size in each)
    assert not found or not expression.subs(S, found + 1)


class EverySecond(nn.Module):
    """A loop over every second frame ends by a comparison that holds up to as many as are traced."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        frames, made = x[:, ::2], [x.new_zeros(x.size(0), H)]
        while len(made) <= frames.size(1):
            made.append(self.cell(frames[:, len(made) - 1], made[-1]))
        return torch.stack(made[1:], 1)


@pytest.mark.slow
def test_the_end_of_a_loop_is_no_bound() -> None:
    module = EverySecond()
    step = ll.from_torch(module, torch.randn(BATCH, 10, I), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for steps in (10, 4, 30):
        compare(module, session, (torch.randn(3, steps, I),))
