"""Gradients of operators that take elements elsewhere, against central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.node_gradients import outcome
from tests.support.one_node import check_node


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.int64)


X = _random(3, 4, 2)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 0, 2)])
def test_tile(repeats: tuple[int, ...], constant: tuple[int, ...]) -> None:
    check_node("Tile", [X, _ints(*repeats)], constant=constant, twice=repeats == (2, 1, 3))


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 0, 2])
def test_trilu(upper: int, k: int | None, opset: int) -> None:
    check_node(
        "Trilu", [_random(2, 3, 4), None if k is None else np.asarray(k)], upper=upper, opset=opset, twice=k == 2
    )


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reverse_sequence(time: int, batch: int) -> None:
    lengths = _ints(1, 4, 3) if time else _ints(1, 3, 2, 0)
    check_node("ReverseSequence", [X, lengths], time_axis=time, batch_axis=batch, twice=True)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("opset", [13, 18])
def test_depth_to_space(mode: str, opset: int) -> None:
    check_node("DepthToSpace", [_random(2, 8, 2, 3)], mode=mode, blocksize=2, opset=opset, twice=True)


def test_space_to_depth() -> None:
    check_node("SpaceToDepth", [_random(2, 2, 4, 6)], blocksize=2, twice=True)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_has_modes(mode: str) -> None:
    # Since an opset that onnxruntime does not have.
    found = outcome(f"test_spacetodepth_{mode.lower()}_mode_example")
    assert found.kind == "right", found.reason


PADS = {
    "both": ([1, 0, 2, 0, 3, 1], None),
    "negative": ([-1, 0, 1, 2, -2, -1], None),
    "axes": ([1, 2, 0, 1], [-1, 0]),
    "nothing": ([0] * 6, None),
}


@pytest.mark.parametrize("value", [None, 1.5])
@pytest.mark.parametrize("constant", [(), (1, 3)])
@pytest.mark.parametrize("pads", PADS)
def test_pad(pads: str, constant: tuple[int, ...], value: float | None) -> None:
    widths, axes = PADS[pads]
    operands = [X, _ints(*widths), None if value is None else np.asarray(value), None if axes is None else _ints(*axes)]
    while operands[-1] is None:
        operands.pop()
    check_node("Pad", operands, constant=[i for i in constant if i < len(operands)], twice=pads == "both")


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", ["inner", "axes"])
@pytest.mark.parametrize("constant", [(), (1, 3)])
def test_pad_with_elements(mode: str, pads: str, constant: tuple[int, ...]) -> None:
    operands = [X, _ints(1, 2, 0, 2, 3, 1)] if pads == "inner" else [X, _ints(1, 2, 0, 1), None, _ints(-1, 0)]
    check_node("Pad", operands, mode=mode, constant=[i for i in constant if i < len(operands)], opset=19, twice=True)


@pytest.mark.parametrize("opset", [13, 15])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_of_old_opsets(mode: str, opset: int) -> None:
    check_node("Pad", [X, _ints(1, 2, 0, 2, 3, 1)], mode=mode, opset=opset, twice=True)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("axis", "chosen"), [(None, [0, 1, 1, 0, 1]), (1, [0, 1, 1]), (-1, [1, 0]), (0, [0, 0, 0])])
def test_compress(axis: int | None, chosen: list[int], opset: int) -> None:
    attributes = {} if axis is None else {"axis": axis}
    check_node("Compress", [X, np.asarray(chosen, bool)], opset=opset, twice=axis == 1, **attributes)


@pytest.mark.parametrize("axes", [None, [2, 0]])
def test_center_crop_pad(axes: list[int] | None) -> None:
    operands = [X, _ints(5, 2, 3) if axes is None else _ints(1, 4)]
    check_node("CenterCropPad", operands, twice=True, **({} if axes is None else {"axes": axes}))
