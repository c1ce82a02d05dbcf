"""TensorFlow's ordinary ops: what cannot be lowered, and operands that do not fit, are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import lstm_lower as ll
from tests.rules.test_gradients import single_node

FLOAT, DOUBLE, INT32, BOOL = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.BOOL
IMAGE, FILTER = (FLOAT, [2, 6, 6, 4]), (FLOAT, [3, 3, 4, 5])
PLACED = {"strides": [1, 1, 1, 1], "padding": "VALID"}


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("Cumprod", {"x": (FLOAT, [3, 4]), "axis": (INT32, [])}, {}, "axis requires a constant"),
        ("Conv2D", {"input": IMAGE, "filter": (FLOAT, ["R", 3, 4, 5])}, PLACED, "filter requires known sizes"),
        ("Conv2D", {"input": (DOUBLE, [2, 6, 6, 4]), "filter": (DOUBLE, [3, 3, 4, 5])}, PLACED, "input requires dtype"),
        (
            "AvgPool",
            {"value": (DOUBLE, [2, 6, 6, 4])},
            {**PLACED, "ksize": [1, 2, 2, 1]},
            "value requires dtype float32",
        ),
    ],
)
def test_what_cannot_be_lowered_is_said(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


def test_digits_are_not_cut_off() -> None:
    with pytest.raises(ll.UnsupportedOpError, match="attribute Truncate requires rounding to the nearest"):
        ll.raw_ops.Cast(x=np.ones(2, np.float32), DstT="float16", Truncate=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Max", {}, "axes requires a constant below opset 18"),
        ("BitwiseAnd", {}, "the operator requires opset 18 or newer"),
    ],
)
def test_what_old_opsets_lack_is_said(op: str, attributes: Any, message: str) -> None:
    names = ("input", "axis") if op == "Max" else ("x", "y")
    model = single_node(op, {names[0]: (INT32, [2, 3]), names[1]: (INT32, [1])}, 1, **attributes)
    with pytest.raises(ll.UnsupportedOpError, match=message):
        ll.lower(model, opset=17)
    ll.lower(model, opset=18)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("AddV2", {"x": (FLOAT, [2, 3]), "y": (FLOAT, [4])}, {}, "y requires a shape that broadcasts with"),
        ("Equal", {"x": (FLOAT, [2, 3]), "y": (FLOAT, [4])}, {}, "y requires a shape that broadcasts with"),
        ("LogicalAnd", {"x": (BOOL, [2]), "y": (FLOAT, [2])}, {}, "y requires dtype bool, got float32"),
        ("AddN", {"a": (FLOAT, [2, 3]), "b": (FLOAT, [2, 4])}, {"N": 2}, "inputs[1] requires shape [2, 3]"),
        (
            "ClipByValue",
            {"t": (FLOAT, [2]), "a": (FLOAT, [3, 2]), "b": (FLOAT, [])},
            {},
            "clip_value_min requires a shape",
        ),
        ("Sum", {"input": (FLOAT, [2]), "axis": (INT32, [1, 1])}, {}, "axis requires a scalar or a vector"),
        ("MatMul", {"a": (FLOAT, [2, 3]), "b": (FLOAT, [4, 5])}, {}, "b requires shape [K, J] = [3, ?]"),
        ("MatMul", {"a": (FLOAT, [2, 3]), "b": (FLOAT, [3, 5])}, {"transpose_b": 1}, "b requires shape [J, K]"),
        ("BatchMatMulV2", {"x": (FLOAT, [2, 2, 3]), "y": (FLOAT, [3, 3, 4])}, {}, "y requires batches that broadcast"),
        ("BatchMatMulV2", {"x": (FLOAT, [2, 3]), "y": (FLOAT, [2, 3])}, {}, "y requires 3 rows (as x)"),
        ("BatchMatMul", {"x": (FLOAT, [1, 2, 3]), "y": (FLOAT, [3, 3, 4])}, {}, "y requires a shape that starts with"),
        ("Einsum", {"a": (FLOAT, [2])}, {"N": 1, "equation": "i"}, "attribute equation requires labels"),
        ("Einsum", {"a": (FLOAT, [2])}, {"N": 1, "equation": "ij->i"}, "inputs[0] requires an axis for each label"),
        ("Einsum", {"a": (FLOAT, [2]), "b": (FLOAT, [3])}, {"N": 2, "equation": "i,i->"}, "inputs[1] requires size 2"),
        ("BiasAdd", {"value": (FLOAT, [2, 3]), "bias": (FLOAT, [4])}, {}, "bias requires 3 numbers"),
        ("Conv2D", {"input": IMAGE, "filter": (FLOAT, [3, 3, 3, 5])}, PLACED, "filter requires input channels"),
        (
            "Conv2D",
            {"input": IMAGE, "filter": FILTER},
            {**PLACED, "strides": [1, 1]},
            "attribute strides requires four",
        ),
        (
            "ResizeBilinear",
            {"images": IMAGE, "size": (INT32, [2])},
            {"align_corners": 1, "half_pixel_centers": 1},
            "attribute half_pixel_centers requires false",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


@pytest.mark.parametrize(
    ("axes", "message"), [([2], "axis requires axes from -2 to 1"), ([1, -1], "axis requires each axis once")]
)
def test_axes_of_another_tensor_are_refused(axes: list[int], message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.raw_ops.Sum(input=np.ones((2, 3), np.float32), axis=np.array(axes))  # type: ignore[attr-defined]
