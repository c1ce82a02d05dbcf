"""Ops of losses, lookups and segments: lowered models against TensorFlow's recorded results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from tests.rules.test_gradients import DOMAIN, assert_as_recorded, lowered_results, run, single_node
from tests.support.examples import TIMES, in_some_forms
from tests.support.gradient_cases import Array, Case
from tests.support.math_cases import cases, recording

CASES = cases()

# Vectors that stay constants of the graph, or else come at run time, with a known length all the same.
SIZES = ("shape", "axis", "num", "num_segments", "output_dim0", "dense_output_dim0", "k")


def model_of(case: Case, opset: int, *, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of the one node, and its feeds; symbolic: no size of an operand is known, vectors of sizes are fed."""
    inputs, initializers, feeds = [], [], {}
    for name, value in case.operands.items():
        assert not isinstance(value, list)
        if name in case.constants or (name in SIZES and not symbolic):
            initializers.append(numpy_helper.from_array(value, name))
            continue
        dims = list(value.shape)
        if symbolic and name not in SIZES:
            dims = [f"{name}.{axis}" for axis in range(value.ndim)]
        if symbolic and case.op == "ScatterNd" and name == "indices":
            dims[-1] = value.shape[-1]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims))
        feeds[name] = value
    names = [declared.name for declared in REGISTRY[case.op].inputs]
    recorded = recording()[case.id]
    results = [
        helper.make_tensor_value_info(f"out:{name}", helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in recorded.items()
    ]
    outputs = [value.name for value in results]
    node = helper.make_node(case.op, names, outputs, name="node", domain=DOMAIN, **case.attributes)
    graph = helper.make_graph([node], "one", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


@pytest.mark.parametrize(("group", "opset", "symbolic"), in_some_forms(CASES))
def test_lowered_equals_tensorflow(group: list[Case], opset: int, symbolic: bool) -> None:
    for case, results in lowered_results(group, lambda case: model_of(case, opset, symbolic=symbolic)):
        for (name, kernel), ours in zip(recording()[case.id].items(), results, strict=True):
            assert_as_recorded(f"{case.id}: {name}", ours, kernel)


def test_squares_of_a_large_matrix_add_up() -> None:
    t = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    lowered = ll.lower(single_node("L2Loss", {"t": (TensorProto.FLOAT, t.shape)}, 1))
    (found,) = run(lowered, {"t": t})
    np.testing.assert_allclose(found, np.square(t, dtype=np.float64).sum() / 2, rtol=1e-6)


def test_every_rule_has_a_case() -> None:
    families = ("arrays", "elementwise", "segments")
    ours = {op.op_type for op in REGISTRY.values() if op.family in families}
    # Sums over segments stand among the gradients' cases.
    assert ours - {"UnsortedSegmentSum"} == {case.op for case in cases()}


FLOAT, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        ("Reverse", {"tensor": (FLOAT, [2]), "dims": (BOOL, [1])}, "Reverse 'node': dims requires a constant"),
        (
            "CumulativeLogsumexp",
            {"x": (FLOAT, [2]), "axis": (INT32, [])},
            "CumulativeLogsumexp 'node': axis requires a constant",
        ),
        (
            "EuclideanNorm",
            {"input": (FLOAT, [2]), "axis": (INT32, [1])},
            "EuclideanNorm 'node': axis requires a constant",
        ),
    ],
)
def test_what_cannot_be_lowered_is_said(op: str, operands: Any, message: str) -> None:
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.lower(single_node(op, operands, 1))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        ("Xdivy", {"x": (FLOAT, [2, 3]), "y": (FLOAT, [4])}, "Xdivy 'node': y requires a shape that broadcasts"),
        ("Log1p", {"x": (INT32, [2])}, "Log1p 'node': x requires dtype"),
        (
            "ScatterNd",
            {"indices": (INT32, [3, 1]), "updates": (FLOAT, [4, 2]), "shape": (INT32, [2])},
            "ScatterNd 'node': updates requires a shape that starts with [3]",
        ),
        ("Reverse", {"tensor": (FLOAT, [2]), "dims": (BOOL, [3])}, "Reverse 'node': dims requires an entry for each"),
        ("DiagPart", {"input": (FLOAT, [2, 3])}, "DiagPart 'node': input requires a shape of two equal halves"),
        ("SegmentSum", {"data": (FLOAT, []), "segment_ids": (INT32, [3])}, "SegmentSum 'node': data requires rank 1"),
        (
            "UnsortedSegmentMax",
            {"data": (FLOAT, [4, 2]), "segment_ids": (INT32, [3]), "num_segments": (INT32, [])},
            "UnsortedSegmentMax 'node': segment_ids requires a shape that starts",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, operands: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(single_node(op, operands, 1))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("op", sorted({case.op for case in cases()}))
def test_recording_is_what_tensorflow_computes(op: str) -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_gradients import record

    # What another version of TensorFlow computes otherwise shows in more than one case.
    of_op = [case for case in cases() if case.op == op]
    for case in of_op[:: 1 if TIMES > 1 else 3]:
        for name, value in record(case).items():
            np.testing.assert_allclose(value, recording()[case.id][name], rtol=1e-6, atol=1e-6)
