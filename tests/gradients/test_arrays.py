"""Gradients of operators that rearrange elements, against central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.one_node import check_node


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.int64)


X = _random(3, 4, 2)
MOST = 2**63 - 1

SLICES = {
    "inner": ([1], [3], [1], None),
    "negative": ([-3], [-1], [-2], None),
    "beyond": ([-9], [9], [1], None),
    "empty": ([3], [1], [1], None),
    "two axes": ([0, 1], [2, MOST], [2, 0], None),
    "all axes": ([1, 0, 0], [3, 4, 1], None, None),
    "steps": ([0, 1], [MOST, 3], [1, 0], [2, 1]),
    "beyond, steps": ([1], [9], [1], [3]),
    "backwards": ([-1], [-MOST], [1], [-1]),
    "backwards inner": ([2], [0], [1], [-1]),
    "backwards from before": ([-9], [-MOST], [1], [-1]),
    "backwards, empty": ([0], [2], [1], [-1]),
    "backwards steps": ([3, 1], [-9, -9], [1, 2], [-2, -1]),
}


@pytest.mark.parametrize("constant", [(), (3, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("name", SLICES)
def test_slice(name: str, constant: tuple[int, ...]) -> None:
    operands = [X, *(None if values is None else _ints(*values) for values in SLICES[name])]
    while operands[-1] is None:
        operands.pop()
    check_node("Slice", operands, constant=[i for i in constant if i < len(operands)], twice=True)


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("sizes", [None, [1, 3], [4, 0]])
@pytest.mark.parametrize("output", ["y", "y1"])
def test_split(output: str, sizes: list[int] | None, opset: int) -> None:
    operands = [X] if sizes is None else [X, _ints(*sizes)]
    form = {"num_outputs": 2} if sizes is None and opset >= 18 else {}
    check_node("Split", operands, of=output, outputs=2, opset=opset, axis=-2, twice=output == "y1", **form)


def test_split_into_unequal_parts() -> None:
    for output in ("y", "y1", "y2"):
        check_node("Split", [_random(7, 2)], of=output, outputs=3, num_outputs=3, twice=True)


@pytest.mark.parametrize("axis", [0, -1])
def test_concat(axis: int) -> None:
    sizes = [(2, 4), (0, 4), (3, 4)] if axis == 0 else [(2, 4), (2, 1), (2, 2)]
    check_node("Concat", [_random(*size) for size in sizes], axis=axis, twice=True)
    check_node("Concat", [_random(2, 3)], axis=axis)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("target", [[6, 4], [-1], [0, -1], [0, 0, 2, 1], [1, 24]])
def test_reshape(target: list[int], constant: tuple[int, ...]) -> None:
    check_node("Reshape", [X, _ints(*target)], constant=constant, twice=True)


def test_reshape_of_nothing() -> None:
    check_node("Reshape", [_random(0, 3), _ints(5, 0)], allowzero=1)


@pytest.mark.parametrize("axis", [0, 1, 3, -1])
def test_flatten(axis: int) -> None:
    check_node("Flatten", [X], axis=axis, twice=True)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("axes", [None, [0], [-1, 0]])
def test_squeeze(axes: list[int] | None, constant: tuple[int, ...]) -> None:
    operands = [_random(1, 3, 1)] if axes is None else [_random(1, 3, 1), _ints(*axes)]
    check_node("Squeeze", operands, constant=constant if axes else (), twice=True)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("axes", [[0], [-1, 1]])
def test_unsqueeze(axes: list[int], constant: tuple[int, ...]) -> None:
    check_node("Unsqueeze", [X, _ints(*axes)], constant=constant, twice=True)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("target", [[5, 3, 4, 2], [3, 1, 1], [1], [2, 3, 4, 6]])
def test_expand(target: list[int], constant: tuple[int, ...]) -> None:
    x = _random(3, 4, 1) if target[-1] == 6 else X
    check_node("Expand", [x, _ints(*target)], constant=constant, twice=True)


@pytest.mark.parametrize("perm", [None, [0, 2, 1], [2, 0, 1]])
def test_transpose(perm: list[int] | None) -> None:
    check_node("Transpose", [X], twice=True, **({} if perm is None else {"perm": perm}))


def test_transpose_of_a_number() -> None:
    check_node("Transpose", [np.array(1.5)], twice=True)


def test_range() -> None:
    numbers = [np.asarray(x) for x in (0.5, 3.0, 0.7)]
    check_node("Range", numbers, twice=True, open_sizes=[False])
    check_node("Range", [np.asarray(x) for x in (1.0, 0.0, 0.5)], open_sizes=[False])
