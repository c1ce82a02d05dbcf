"""Gradients of transforms and determinants, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.one_node import check_node

# onnxruntime has the roots of unity in float32, for float64 too.
ROUGH: dict[str, Any] = {"tolerance": 3e-7, "open_sizes": [False]}


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("length", [None, 4, 7])
@pytest.mark.parametrize(("inverse", "onesided", "parts"), [(0, 0, 1), (0, 0, 2), (1, 0, 1), (1, 0, 2), (0, 1, 1)])
@pytest.mark.parametrize("axis", [1, 2])
def test_dft(axis: int, inverse: int, onesided: int, parts: int, length: int | None, opset: int) -> None:
    operands: list[Any] = [_random(2, 5, 6, parts), None if length is None else np.asarray(length)]
    form: dict[str, Any] = {"inverse": inverse, "onesided": onesided, "opset": opset, **ROUGH}
    if opset >= 20:
        check_node("DFT", [*operands, np.asarray(axis)], constant=(2,), twice=length == 4, **form)
    else:
        check_node("DFT", operands, axis=axis, **form)


@pytest.mark.parametrize("length", [None, 6, 7])
def test_half_of_the_frequencies_back(length: int | None) -> None:
    operands: list[Any] = [_random(2, 4, 2), None if length is None else np.asarray(length), np.asarray(1)]
    check_node("DFT", operands, constant=(1, 2), inverse=1, onesided=1, opset=20, twice=True, **ROUGH)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("how", ["window", "length", "both"])
def test_stft(how: str, onesided: int) -> None:
    operands: list[Any] = [_random(2, 17, 1), np.asarray(3)]
    operands += [None if how == "length" else _random(6), *([] if how == "window" else [np.asarray(6)])]
    check_node("STFT", operands, onesided=onesided, opset=17, twice=how == "both", **ROUGH)


FORMS: dict[str, tuple[tuple[int, ...], list[int], list[int], dict[str, list[int]]]] = {
    "plain": ((2, 8, 6), [3, 4], [2, 2], {}),
    "pads": ((1, 9, 18), [4, 5], [3, 3], {"pads": [0, 1, 1, 2]}),
    "strides": ((2, 8, 6), [4, 6], [2, 2], {"strides": [2, 2]}),
    "dilations": ((2, 8, 6), [4, 5], [2, 2], {"dilations": [2, 2]}),
    "one axis": ((2, 6, 4), [6], [3], {}),
    "volume": ((1, 8, 8), [3, 3, 3], [2, 2, 2], {}),
}


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("name", FORMS)
def test_col2im(name: str, constant: tuple[int, ...]) -> None:
    shape, image, block, form = FORMS[name]
    operands = [_random(*shape).astype(np.float32), np.asarray(image), np.asarray(block)]
    check_node("Col2Im", operands, constant=constant, step=1e-1, tolerance=1e-4, twice=name == "pads", **form)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 3, 3)])
def test_det(shape: tuple[int, ...]) -> None:
    # In float32 alone; along one element it is linear, along all of them a polynomial of low degree.
    check_node("Det", [_random(*shape).astype(np.float32)], step=3e-2, tolerance=2e-4, open_sizes=[False], twice=True)


def test_det_of_a_singular_matrix() -> None:
    x = np.asarray([[1, 2, 3], [2, 4, 6], [0, 1, 1]], np.float32)
    check_node("Det", [x], step=3e-2, tolerance=2e-4, open_sizes=[False])
