"""Sizes that stay open: what a module's code computes of them, and what it only checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from lstm_lower.errors import InvalidInputError  # noqa: E402
from lstm_lower.runtime.session import Session  # noqa: E402
from lstm_lower.torch.export import Exported, export  # noqa: E402


class Sliced(torch.nn.Module):
    def __init__(self, end: Callable[[Any], Any]) -> None:
        super().__init__()
        self.end = end

    def forward(self, x: Any) -> Any:
        return x[:, : self.end(x.size(1))] * math.sqrt(x.size(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        # 28 of 100, which is 29 in float32.
        lambda size: math.floor(size * 0.29),
        lambda size: int(size / 49 * 49),
        lambda size: int(int(size) ** 0.5),
        lambda size: int(float(size) * 0.5),
        lambda size: round(size * 0.5),
        lambda size: math.ceil(size * 1.1 - 3.3),
        lambda size: divmod(size, 3)[1] - size // 7,
        lambda size: math.ceil(math.log2(size)),
        lambda size: math.isqrt(size) + round(10 * math.log(size)) - math.floor(math.pow(size, 1.5)),
        lambda size: int(math.exp(size / 50)),
        lambda size: int(float(np.exp(size / 50)) + float(size / 2)),
        lambda size: int(np.sqrt(size)) + int(np.log2(size)) + int(np.rint(size * 0.5)),
    ],
)
def test_sizes_are_as_python_computes_them(end: Callable[[Any], Any]) -> None:
    module = Sliced(end)
    exported = export(module, torch.randn(2, 6, dtype=torch.float64))
    assert not exported.fixed
    session = Session(exported.model)
    for size in (1, 2, 3, 5, 7, 8, 9, 11, 49, 64, 98, 99, 100, 200):
        x = torch.randn(2, size, dtype=torch.float64)
        np.testing.assert_allclose(session.run({"x": x.numpy()})["output"], module(x), rtol=1e-15, err_msg=str(size))


class Pairing(torch.nn.Module):
    """Of two inputs whose sizes are to be equal, or are not."""

    def __init__(self, unequal: str) -> None:
        super().__init__()
        self.unequal = unequal

    def forward(self, x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            if self.unequal == "raises":
                raise ValueError
            if self.unequal == "raises above 1":
                assert y.size(1) == 1
            return x + torch.randn(3, 4) @ y if self.unequal == "fails in PyTorch" else x.sum() * y.sum()
        return x * y


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unequal", "expected"),
    [
        ("raises", [True, True]),
        # A size of 1 beside another one is taken.
        ("raises above 1", [True, False]),
        ("fails in PyTorch", [False, False]),
        ("runs", [False, False]),
    ],
)
def test_a_branch_that_raises_in_all_runs_fixes_no_axis(unequal: str, expected: list[bool]) -> None:
    exported = export(Pairing(unequal), (torch.randn(3, 5), torch.randn(3, 5)))
    shapes = [list(value.shape or ()) for value in exported.model.graph.inputs]
    assert shapes[0] == shapes[1]
    assert [not isinstance(size, int) for size in shapes[0]] == expected
    if unequal == "raises":
        x, y = torch.randn(4, 7), torch.randn(4, 7)
        got = Session(exported.model).run({"x": x.numpy(), "y": y.numpy()})
        np.testing.assert_allclose(got["output"], x * y)


class Padding(torch.nn.Module):
    """A branch for sizes that the rest makes equal, as the masks of `transformers` have."""

    def forward(self, x: Any, mask: Any) -> Any:
        if (short := x.shape[1] - mask.shape[-1]) > 0:
            mask = torch.nn.functional.pad(mask, (0, short))
        return x * mask


def test_a_branch_that_equal_sizes_never_enter_fixes_no_axis() -> None:
    exported = export(Padding(), (torch.randn(2, 5), torch.ones(2, 5)))
    assert not exported.fixed
    session = Session(exported.model)
    x, mask = torch.randn(3, 7), torch.rand(3, 7)
    np.testing.assert_allclose(session.run({"x": x.numpy(), "mask": mask.numpy()})["output"], x * mask)
    with pytest.raises(InvalidInputError, match="input 'mask' requires shape"):
        session.run({"x": x.numpy(), "mask": mask[:, :6].numpy()})


class Skipped(torch.nn.Module):
    """The last steps in rows of two, as LSTNet reads them; where these begin in memory PyTorch does not know."""

    def forward(self, x: Any) -> Any:
        count = (x.size(1) - 2) // 2
        return x[:, -2 * count :].contiguous().view(x.size(0), count, 2).cumsum(1)


def test_a_slice_that_begins_at_an_open_place_leaves_its_axis_open() -> None:
    exported = export(Skipped(), torch.randn(2, 8))
    assert not exported.fixed
    session = Session(exported.model)
    for shape in ((2, 8), (3, 9), (1, 21)):
        x = torch.randn(shape)
        np.testing.assert_allclose(session.run({"x": x.numpy()})["output"], Skipped()(x), rtol=1e-5, atol=1e-6)


def bounds(exported: Exported) -> dict[Any, int]:
    return {place: most for place, (most, _) in exported.traced.bounds.items()}


class Catching(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        try:
            assert x.size(1) <= 40
        except AssertionError:
            return x * 2
        return x + 1


def test_what_catches_an_error_decides() -> None:
    """The sizes that runs try are below 40."""
    assert bounds(export(Catching(), torch.randn(2, 3))) == {("x", 1): 40}
    assert list(export(Catching(), torch.randn(2, 50)).fixed) == [("x", 1)]


class Squeezed(torch.nn.Module):
    def __init__(self, axes: Any) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Any) -> Any:
        y = x.squeeze() if self.axes is None else x.squeeze(self.axes)
        return y * torch.cos(torch.arange(y.numel())).reshape(y.shape)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("shape", [(1, 3, 1), (1, 3, 4), (2, 3, 1)], ids=str)
def test_axes_of_one_element_are_dropped_as_in_pytorch(axes: Any, shape: tuple[int, ...]) -> None:
    module = Squeezed(axes)
    exported = export(module, torch.randn(shape))
    session = Session(exported.model)
    for size in (3, 5):
        x = torch.randn(shape[0], size, shape[2])
        np.testing.assert_allclose(session.run({"x": x.numpy()})["output"], module(x), rtol=1e-6)


class Upsampling(torch.nn.Module):
    """As a block of `diffusers` does it, and with a change of values in the branch."""

    def __init__(self, *, alters: bool) -> None:
        super().__init__()
        self.alters = alters

    def forward(self, x: Any) -> Any:
        if self.alters:
            if x.shape[0] >= 4:
                x = x.contiguous() * 2
        elif x.shape[0] >= 4:
            x = x.contiguous()
        if x.numel() * 2 > 2**9:
            x = x.contiguous()
        return torch.nn.functional.interpolate(x, scale_factor=2.0)


@pytest.mark.parametrize("alters", [False, True])
def test_branches_that_change_strides_alone_fix_no_axis(alters: bool) -> None:
    module = Upsampling(alters=alters)
    exported = export(module, torch.randn(2, 3, 4, 5))
    assert not exported.fixed
    assert bounds(exported) == ({("x", 0): 3} if alters else {})
    if not alters:
        x = torch.randn(6, 3, 8, 7)
        np.testing.assert_array_equal(Session(exported.model).run({"x": x.numpy()})["output"], module(x))


class Kernel(torch.nn.Module):
    """A kernel of a Gaussian process, which asks whether it is of points and the same points, as gpytorch does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def distances(self, a: Any, b: Any) -> Any:
        apart = (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1)
        return apart * (1 - torch.eye(len(a))) if torch.equal(a, b) else apart

    def forward(self, x: Any) -> Any:
        return torch.exp(-self.distances(x, x) * self.scale)


def test_a_tensor_is_equal_to_itself_whatever_its_values() -> None:
    step = ll.from_torch(Kernel(), torch.randn(5, 2), lambda y: y.mean(), example_targets=(), what="gradients")
    x = torch.randn(7, 2)
    module = Kernel()
    module(x).mean().backward()
    found = Session(step, providers=["CPUExecutionProvider"]).run({"x": x.numpy()})
    np.testing.assert_allclose(found["grad/scale"], module.scale.grad, rtol=1e-5)


class Chunks(torch.nn.Module):
    """Chunks of three rows, the last one filled up, as state space models have them."""

    def forward(self, x: Any) -> Any:
        missing = (3 - x.size(1) % 3) % 3
        padded = torch.nn.functional.pad(x, (0, missing)) if missing > 0 else x
        made = padded.reshape(x.size(0), -1, 3).cumsum(1).flatten(1)
        return made[:, : x.size(1)] if missing > 0 else made


def test_a_branch_for_every_third_size_fixes_no_axis() -> None:
    exported = export(Chunks(), torch.randn(2, 5))
    assert not exported.fixed
    session = Session(exported.model)
    for size in (1, 3, 6, 7, 30):
        x = torch.randn(2, size)
        np.testing.assert_allclose(session.run({"x": x.numpy()})["output"], Chunks()(x), rtol=1e-5, atol=1e-6)


class Alternating(torch.nn.Module):
    """Does something else for every second size."""

    def forward(self, x: Any) -> Any:
        y = x * 2 * 2
        return y * 2 if x.size(1) % 2 else y


@pytest.mark.parametrize("steps", [4, 5])
def test_a_branch_for_every_second_size_fixes_an_axis_if_it_makes_a_difference(steps: int) -> None:
    options: dict[str, Any] = {"example_targets": (), "what": "input_gradient"}
    where = r"axis 1 of 'x' \(test_open_sizes.py:\d+ decides by it: .*: a step with another loss"
    with pytest.warns(UserWarning, match=where):
        step = ll.from_torch(Alternating(), torch.randn(2, steps), lambda y: y.square().mean(), **options)
    with pytest.raises(InvalidInputError):
        Session(step).run({"x": np.ones((2, 6), np.float32)})


class Rows(torch.nn.Module):
    """A function of rows of four, compared with others."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.Linear(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(self.own(x.reshape(-1, 4)).view_as(x), y)


def test_rows_of_one_size_leave_their_number_open() -> None:
    module = Rows()
    exported = export(module, (torch.randn(3, 5, 4), torch.randn(3, 5, 4)))
    assert exported.fixed.keys() == {("x", 2), ("y", 2)}
    session = Session(exported.model)
    for batch, steps in ((3, 5), (1, 2), (4, 30)):
        x, y = torch.randn(2, batch, steps, 4)
        got = session.run({"x": x.numpy(), "y": y.numpy()})["output"]
        np.testing.assert_allclose(got, module(x, y).detach(), rtol=1e-5)


def test_a_refusal_names_the_axis_that_is_to_be_open_too() -> None:
    module = torch.nn.Conv2d(1, 1, 3, padding=1)
    pictures = torch.randn(2, 3, 1, 5, 6)
    options: dict[str, Any] = {"example_targets": (pictures[1],), "what": "gradients"}

    def loss(y: Any, target: Any) -> Any:
        return torch.where(y > 0, y - target, target).square().mean()

    told = r"'input', axis 0: forward takes 4 together with axis 0 of 'target', too, and its trace this size alone"
    with pytest.raises(InvalidInputError, match=told):
        ll.from_torch(module, pictures[0], loss, dynamic_shapes={"input": [0]}, **options)
    # What it says helps.
    step = ll.from_torch(module, pictures[0], loss, dynamic_shapes={"input": [0], "target": [0]}, **options)
    x = np.zeros((7, 1, 5, 6), np.float32)
    assert np.isfinite(Session(step).run({"input": x, "target": x})["loss"])
