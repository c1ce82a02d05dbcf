"""Gradients of transforms and determinants, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.runtime.proof import reference
from tests.support.differences import run
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


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize(("inverse", "onesided", "parts"), [(0, 0, 1), (1, 0, 2), (0, 1, 1), (1, 1, 2)])
def test_dft_along_an_axis_of_run_time(inverse: int, onesided: int, parts: int, axis: int) -> None:
    x = _random(4, 5, 6, parts)
    # Of other numbers of frequencies onnxruntime reads others than onnx's evaluator.
    length = 2 * x.shape[:3][axis % 4] - 1 if inverse and onesided else 7
    operands: list[Any] = [x, np.asarray(length), np.asarray(axis)]
    form: dict[str, Any] = {"inverse": inverse, "onesided": onesided, "opset": 20}
    check_node("DFT", operands, **{**ROUGH, "open_sizes": [True]}, **form)


@pytest.mark.parametrize("length", [None, 6, 7])
def test_half_of_the_frequencies_back(length: int | None) -> None:
    operands: list[Any] = [_random(2, 4, 2), None if length is None else np.asarray(length), np.asarray(1)]
    check_node("DFT", operands, constant=(1, 2), inverse=1, onesided=1, opset=20, twice=True, **ROUGH)


NODES = {
    "STFT": "STFT <onesided = 1> (x, step, w)",
    "STFT's length": "STFT <onesided = 1> (x, step, , size)",
    "DFT": "DFT <onesided = 1> (x, , axis)",
    "DFT's length, more": "DFT <onesided = 1> (x, more, axis)",
    "DFT's length, fewer": "DFT (x, fewer, axis)",
}


@pytest.mark.parametrize("length", [1000, 1500])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("node", NODES)
def test_lengths_that_onnxruntime_transforms_roughly(node: str, known: bool, length: int) -> None:
    """Its kernel is off by 1e-4 of the largest in float32 at this length, which is no power of two."""
    size, window, sizes = (length, length, "") if known else ("T", "F", ", int64 size, int64 more, int64 fewer")
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 20]>
        g (float[2, {size}, 1] x, float[{window}] w{sizes}) => (spectrum) <int64 step = {{200}}, int64 axis = {{1}}> {{
          spectrum = {NODES[node]}
        }}""")
    given = {"size": np.array(length), "more": np.array(length + 100), "fewer": np.array(length - 100)}
    feeds = {"x": _random(2, length, 1).astype(np.float32), "w": np.ones(length, np.float32)}
    if known:
        model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in given.items())
    else:
        feeds |= given
    gradient = ll.gradient(model, of="spectrum", wrt="x", seeds=True)
    feeds["seed/spectrum"] = _random(*run(model, feeds)["spectrum"].shape).astype(np.float32)
    found, wanted = run(gradient, feeds), reference.evaluate(ir.from_proto(gradient), feeds)
    exact = reference.evaluate(ir.from_proto(model), feeds)
    for name, array in (wanted | exact).items():
        assert np.abs(found[name] - array).max() < 2e-6 * np.abs(array).max()


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
    check_node("Det", [_random(*shape).astype(np.float32)], step=3e-2, tolerance=2e-4, twice=True)


def test_det_of_a_singular_matrix() -> None:
    x = np.asarray([[1, 2, 3], [2, 4, 6], [0, 1, 1]], np.float32)
    check_node("Det", [x], step=3e-2, tolerance=2e-4, open_sizes=[False])


def test_bins_of_mel_frequencies_are_whole_numbers() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]> g (float low, float high) => (float y) {
        bins = Constant <value = int64 {4}> () length = Constant <value = int64 {64}> ()
        rate = Constant <value = int64 {8192}> () weights = MelWeightMatrix (bins, length, rate, low, high)
        total = ReduceSum <keepdims = 0> (weights) y = Mul (total, high)
    }""")
    feeds = {"low": np.asarray(10, np.float32), "high": np.asarray(4000, np.float32)}
    found = run(ll.gradient(model, "y", ["low", "high"]), feeds)
    assert found["grad/low"] == 0
    assert found["grad/high"] == pytest.approx(found["y"] / 4000)
