"""TensorFlow's ordinary gradient ops: lowered models against TensorFlow's recorded results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from tests.support.examples import TIMES, in_some_forms
from tests.support.gradient_cases import Array, Case, cases, recording
from tests.support.side_by_side import SideBySide

DOMAIN = "ai.onnx.converters.tensorflow"

# Relative to the largest magnitude of an output: what a few roundings, the kernel's and ours, cost.
ROUNDING = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-13}

CASES = cases()


def assert_as_recorded(name: str, ours: Array, kernel: Array) -> None:
    """Ours is the kernel's but for rounding; integers are equal, and so is what is not finite."""
    assert ours.dtype == kernel.dtype, name
    assert ours.shape == kernel.shape, name
    if ours.dtype.name not in ROUNDING:
        np.testing.assert_array_equal(ours, kernel, err_msg=name)
        return
    finite = np.isfinite(kernel)
    np.testing.assert_array_equal(ours[~finite], kernel[~finite], err_msg=name)
    wide, expected = ours[finite].astype(np.float64), kernel[finite].astype(np.float64)
    tolerance = ROUNDING[ours.dtype.name] * np.abs(expected).max(initial=0)
    np.testing.assert_allclose(wide, expected, rtol=0, atol=tolerance, err_msg=name)


def model_of(case: Case, opset: int, *, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of the one node, and its feeds.

    Args:
        case: the call.
        opset: version of `ai.onnx`.
        symbolic: whether all sizes are symbolic and vectors of sizes and indices come at run time; otherwise all sizes
            are known and such vectors are constants.
    """
    definition = REGISTRY[case.op]
    inputs, initializers, names, feeds = [], [], [], {}
    for declared in definition.inputs:
        value = case.operands[declared.name]
        for number, part in enumerate(value if isinstance(value, list) else [value]):
            name = f"{declared.name}:{number}"
            names.append(name)
            index = part.dtype.kind == "i" and part.ndim <= 2 and declared.name not in ("data", "dy", "labels")
            if declared.name in case.constants or (index and not symbolic):
                initializers.append(numpy_helper.from_array(part, name))
                continue
            dims = [f"{name}.{axis}" for axis in range(part.ndim)] if symbolic else list(part.shape)
            if symbolic and declared.name in ("shape", "begin", "end", "paddings"):
                dims = list(part.shape)
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(part.dtype), dims))
            feeds[name] = part
    count = len(recording()[case.id])
    outputs = [f"out:{number}" for number in range(count)]
    lists = [len(value) for value in case.operands.values() if isinstance(value, list)]
    attributes = dict(case.attributes) | ({"N": lists[0]} if lists else {})
    node = helper.make_node(case.op, names, outputs, name="node", domain=DOMAIN, **attributes)
    results = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in zip(outputs, recording()[case.id].values(), strict=True)
    ]
    graph = helper.make_graph([node], "one", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


@pytest.mark.parametrize(("group", "opset", "symbolic"), in_some_forms(CASES))
def test_lowered_equals_tensorflow(group: list[Case], opset: int, symbolic: bool) -> None:
    for case, results in lowered_results(group, lambda case: model_of(case, opset, symbolic=symbolic)):
        for (name, kernel), ours in zip(recording()[case.id].items(), results, strict=True):
            assert_as_recorded(f"{case.id}: {name}", ours, kernel)


def lowered_results(
    group: list[Case], make: Callable[[Case], tuple[onnx.ModelProto, dict[str, Array]]]
) -> Iterator[tuple[Case, Iterable[Array]]]:
    """Cases, lowered side by side, with what comes of them."""
    together = SideBySide()
    for case in group:
        together.add(*make(case))
    lowered = ll.lower(together.model())
    assert {node.domain for node in lowered.graph.node} <= {""}
    onnx.checker.check_model(lowered, full_check=True)
    yield from zip(group, together.results(run(lowered, together.feeds)), strict=True)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, feeds))


def single_node(op: str, operands: dict[str, tuple[int, Any]], outputs: int, **attributes: Any) -> onnx.ModelProto:
    """A model of one node with outputs of unknown shape, float32 where an operand is."""
    names = [f"out:{number}" for number in range(outputs)]
    inputs = [helper.make_tensor_value_info(name, *type_) for name, type_ in operands.items()]
    dtypes = [dtype for dtype, _ in operands.values()]
    dtype = TensorProto.FLOAT if TensorProto.FLOAT in dtypes else dtypes[0]
    results = [helper.make_tensor_value_info(name, dtype, None) for name in names]
    node = helper.make_node(op, list(operands), names, name="node", domain=DOMAIN, **attributes)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(helper.make_graph([node], "one", inputs, results), opset_imports=imports, ir_version=9)


def test_every_rule_has_a_case() -> None:
    families = ("gradients", "indexing", "losses", "strided_slice")
    ours = {op.op_type for op in REGISTRY.values() if op.family in families}
    assert ours - {case.op for case in cases()} == set()


@pytest.mark.parametrize(
    ("op", "y"), [("SqrtGrad", 0.0), ("RsqrtGrad", np.inf), ("ReciprocalGrad", np.inf), ("InvGrad", -np.inf)]
)
def test_no_gradient_beside_an_infinite_slope(op: str, y: float) -> None:
    """TensorFlow's kernels return 0 where dy is 0."""
    operands = {"y": np.array([y, y, 1], np.float32), "dy": np.array([0, 1, 0], np.float32)}
    model = single_node(op, {"y": (TensorProto.FLOAT, [3]), "dy": (TensorProto.FLOAT, [3])}, 1)
    (z,) = run(ll.lower(model), operands)
    assert z[0] == z[2] == 0
    assert np.isinf(z[1])


@pytest.mark.parametrize("classes", [1, 3])
def test_label_outside_the_classes_fails(classes: int) -> None:
    logits = np.zeros((2, classes), np.float32)
    model = single_node(
        "SparseSoftmaxCrossEntropyWithLogits",
        {"features": (TensorProto.FLOAT, ["B", classes]), "labels": (TensorProto.INT64, ["B"])},
        2,
    )
    lowered = ll.lower(model)
    for number in (classes, -1):
        with pytest.raises(Exception, match="Gather"):
            run(lowered, {"features": logits, "labels": np.array([0, number])})


FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
VECTOR = (INT32, ["N"])


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        (
            "UnsortedSegmentSum",
            {"data": (FLOAT, [4]), "segment_ids": (INT32, None), "num_segments": (INT32, [])},
            {},
            "UnsortedSegmentSum 'node': segment_ids requires a known rank, got an unknown one",
        ),
        (
            "StridedSliceGrad",
            {"shape": (INT32, [1]), "begin": VECTOR, "end": VECTOR, "strides": VECTOR, "dy": (FLOAT, [2])},
            {},
            "StridedSliceGrad 'node': begin requires a known length",
        ),
        (
            "StridedSliceGrad",
            {
                "shape": (INT32, [1]),
                "begin": (INT32, [1]),
                "end": (INT32, [1]),
                "strides": (INT32, [1]),
                "dy": (FLOAT, [2]),
            },
            {},
            "StridedSliceGrad 'node': strides requires a constant",
        ),
        (
            "MirrorPadGrad",
            {"input": (FLOAT, None), "paddings": (INT32, [2, 2])},
            {"mode": "REFLECT"},
            "MirrorPadGrad 'node': input requires a known rank",
        ),
    ],
)
def test_what_cannot_be_lowered_is_said(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        (
            "ReluGrad",
            {"gradients": (FLOAT, [3]), "features": (FLOAT, [4])},
            {},
            "ReluGrad 'node': features requires shape",
        ),
        (
            "ReluGrad",
            {"gradients": (INT32, [3]), "features": (INT32, [3])},
            {},
            "ReluGrad 'node': gradients requires dtype",
        ),
        ("BiasAddGrad", {"out_backprop": (FLOAT, [3])}, {}, "BiasAddGrad 'node': out_backprop requires rank 2 or more"),
        (
            "BiasAddGrad",
            {"out_backprop": (FLOAT, [3, 2])},
            {"data_format": "NWHC"},
            "BiasAddGrad 'node': attribute data_format",
        ),
        (
            "BiasAddGrad",
            {"out_backprop": (FLOAT, [3, 2])},
            {"axis": 1},
            "BiasAddGrad 'node': attribute axis requires a name of",
        ),
        (
            "SoftmaxCrossEntropyWithLogits",
            {"features": (FLOAT, [3, 2]), "labels": (FLOAT, [3, 4])},
            {},
            "SoftmaxCrossEntropyWithLogits 'node': labels requires axis 1 of size 1 or 2",
        ),
        (
            "SparseSoftmaxCrossEntropyWithLogits",
            {"features": (FLOAT, [3, 2]), "labels": (INT32, [4])},
            {},
            "SparseSoftmaxCrossEntropyWithLogits 'node': labels requires shape [B]",
        ),
        (
            "UnsortedSegmentSum",
            {"data": (FLOAT, [4, 2]), "segment_ids": (INT32, [3]), "num_segments": (INT32, [])},
            {},
            "UnsortedSegmentSum 'node': segment_ids requires a shape that starts",
        ),
        (
            "MirrorPadGrad",
            {"input": (FLOAT, [4]), "paddings": (INT32, [2, 2])},
            {"mode": "REFLECT"},
            "MirrorPadGrad 'node': paddings requires a row for each",
        ),
        (
            "MirrorPadGrad",
            {"input": (FLOAT, [4]), "paddings": (INT32, [1, 2])},
            {},
            "MirrorPadGrad 'node': attribute mode",
        ),
        ("DynamicStitch", {"i": (INT32, [2]), "j": (INT32, [2]), "k": (FLOAT, [2])}, {}, "DynamicStitch 'node': "),
        (
            "ShapeN",
            {"a": (FLOAT, [2])},
            {"N": 3},
            "ShapeN 'node': attribute N requires 1, the number of tensors of input, got 3",
        ),
        (
            "ConcatOffset",
            {"d": (INT32, []), "a": (INT32, [2])},
            {"N": 2},
            "ConcatOffset 'node': attribute N requires 1, the number of tensors of shape, got 2",
        ),
        (
            "DynamicStitch",
            {"i": (INT32, [2]), "k": (FLOAT, [3, 2])},
            {},
            "DynamicStitch 'node': data[0] requires a shape",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("op", sorted({case.op for case in cases()}))
def test_recording_is_what_tensorflow_computes(op: str) -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_gradients import record

    # What another version of TensorFlow computes otherwise shows in more than one case.
    of_op = [case for case in cases() if case.op == op]
    for case in of_op[:: 1 if TIMES > 1 else 3]:
        for name, value in record(case).items():
            # TensorFlow leaves gaps of a stitch uninitialised; no case has any.
            np.testing.assert_allclose(value, recording()[case.id][name], rtol=1e-6, atol=1e-6)
