"""Fourier transforms of any length, against NumPy's in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from lstm_lower.passes.driver import transform
from lstm_lower.passes.targets.legalize import LegalizePass


def transformed(axis: int, parts: int, opset: int, length: int | None, **attributes: int) -> onnx.ModelProto:
    """A model of a transform of `[3, N, 2, parts]` or `[3, 2, N, parts]`."""
    names = ["x", "", "axis"] if opset >= 20 else ["x"]
    node = helper.make_node("DFT", names, ["y"], **attributes, **({} if opset >= 20 else {"axis": axis}))
    shape = [3, 2, 2, parts]
    shape[axis] = length
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    known = [onnx.numpy_helper.from_array(np.int64(axis), "axis")] if opset >= 20 else []
    graph = helper.make_graph([node], "transform", [x], [y], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("length", [12, None])
@pytest.mark.parametrize(
    ("axis", "parts", "attributes"),
    [(1, 1, {"onesided": 1}), (2, 2, {}), (1, 2, {"inverse": 1}), (2, 1, {"inverse": 0})],
)
def test_transforms_of_any_length(
    opset: int, length: int | None, axis: int, parts: int, attributes: dict[str, int]
) -> None:
    model = transform(transformed(axis, parts, opset, length, **attributes), [LegalizePass()])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for size in [length] if length else [1, 2, 7, 16, 1000]:
        shape = [3, 2, 2, parts]
        shape[axis] = size
        x = rng.standard_normal(shape).astype(np.float32)
        numbers = x.astype(np.float64) @ np.array([1, 1j])[:parts]
        kind = "rfft" if attributes.get("onesided") else "ifft" if attributes.get("inverse") else "fft"
        wanted = getattr(np.fft, kind)(numbers.real if kind == "rfft" else numbers, axis=axis)
        (got,) = session.run(None, {"x": x})
        # onnxruntime's own error is 1e-4 at a length of 1000.
        np.testing.assert_allclose(got @ np.array([1, 1j]), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


def test_powers_of_two_stay() -> None:
    model = transform(transformed(1, 1, 18, 16), [LegalizePass()])
    assert [node.op_type for node in model.graph.node] == ["DFT"]
