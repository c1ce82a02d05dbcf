"""Complex numbers of ONNX models as pairs of real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.dtypes import parts_of


def _value(name: str, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.COMPLEX64, shape)


def _running_sums(axis: int, shape: Sequence[Any] | None) -> onnx.ModelProto:
    """The sums of complex numbers along an axis of time."""
    nodes = [helper.make_node("Add", ["state", "x"], ["next"]), helper.make_node("Identity", ["next"], ["sum"])]
    ends = [_value("next", [2]), _value("sum", [2])]
    body = helper.make_graph(nodes, "body", [_value("state", [2]), _value("x", [2])], ends)
    scan = helper.make_node("Scan", ["first", "xs"], ["last", "sums"], body=body, num_scan_inputs=1,
                            scan_input_axes=[axis], scan_output_axes=[axis])  # fmt: skip
    outputs = [_value("last", [2]), _value("sums", shape)]
    graph = helper.make_graph([scan], "sums", [_value("first", [2]), _value("xs", shape)], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("axis", [-1, 1, -2, 0])
def test_axes_of_time_stay_where_they_are(axis: int) -> None:
    shape: list[Any] = ["T", 2] if axis in (0, -2) else [2, "T"]
    lowered = ll.lower(_running_sums(axis, shape))
    random = np.random.default_rng(0)
    xs = random.standard_normal((2, 5)) + 1j * random.standard_normal((2, 5))
    xs = (xs if shape[0] == 2 else xs.T).astype(np.complex64)
    results = ll.Session(lowered).run({"first": np.zeros((2, 2), np.float32), "xs": parts_of(xs)})
    np.testing.assert_array_equal(results["sums"], parts_of(np.cumsum(xs, axis)))


def test_an_operator_without_a_form_is_refused() -> None:
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["y"])], "sin", [_value("x", [3])], [_value("y", [3])])
    with pytest.raises(ll.UnsupportedOpError, match=r"Sin.* requires real numbers, got complex64"):
        ll.lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
