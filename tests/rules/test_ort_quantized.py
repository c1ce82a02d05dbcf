"""Ops that onnxruntime's quantizers write: what is lowered computes what its own kernels do, to a step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY
from lstm_lower.ops.ort_elementwise import MICROSOFT
from tests.support.differences import run

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    op: str
    operands: Mapping[str, Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    # Of the result: floats are near within a rounding, integers within one.
    dtype: Any = np.uint8
    # Further results, with their dtypes.
    further: Mapping[str, Any] = MappingProxyType({})


def cases() -> list[Case]:
    random = np.random.default_rng(0)

    def of(*shape: int, dtype: Any = np.uint8) -> Array:
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def number(value: float) -> Array:
        return np.array(value, np.float32)

    def point(value: int, dtype: Any = np.uint8) -> Array:
        return np.array(value, dtype)

    floats = random.standard_normal((2, 3, 4)).astype(np.float32)
    weight, columns = of(4, 5, dtype=np.int8), np.abs(random.standard_normal(5)).astype(np.float32) / 50
    bias = random.standard_normal(5).astype(np.float32)
    halves = {"X_scale": number(0.05), "X_zero_point": point(130), "Y_scale": number(0.04), "Y_zero_point": point(9)}
    rows, image = {"X": of(3, 7), **halves}, {"X": of(2, 3, 6, 6), **halves}
    both = {
        "A": of(2, 1, 5),
        "A_scale": number(0.02),
        "A_zero_point": point(120),
        "B": of(3, 5),
        "B_scale": number(0.03),
        "B_zero_point": point(99),
        "C_scale": number(0.05),
        "C_zero_point": point(110),
    }
    product = {"A": of(3, 4), "a_scale": number(0.02), "a_zero_point": point(120), "B": weight}
    scaled = {
        **product,
        "b_scale": number(0.01),
        "b_zero_point": point(0, np.int8),
        "C": of(5, dtype=np.int16) * np.int32(1),
    }
    chosen = {
        "condition": random.integers(0, 2, (3, 4)).astype(bool),
        "X": of(3, 4),
        "x_scale": number(0.02),
        "x_zero_point": point(9),
        "Y": of(3, 4),
        "y_scale": number(0.03),
        "y_zero_point": point(100),
        "z_scale": number(0.03),
        "z_zero_point": point(50),
    }
    joined = {"Y_scale": number(0.05), "Y_zero_point": point(100), "inputs": []}
    for scale, zero in ((0.02, 90), (0.06, 120)):
        joined["inputs"] += [of(2, 3), number(scale), point(zero)]
    convolution = {
        "x": image["X"],
        "x_scale": number(0.02),
        "x_zero_point": point(120),
        "w": of(4, 3, 3, 3, dtype=np.int8),
        "w_scale": number(0.01),
        "w_zero_point": point(0, np.int8),
        "y_scale": number(0.05),
        "y_zero_point": point(120),
        "B": of(4, dtype=np.int16) * np.int32(1),
    }
    attention = {
        "input": of(2, 3, 8),
        "weight": of(8, 12, dtype=np.int8),
        "bias": random.standard_normal(12).astype(np.float32),
        "input_scale": number(0.02),
        "weight_scale": number(0.01),
        "input_zero_point": point(120),
        "weight_zero_point": point(0, np.int8),
    }
    past = random.standard_normal((2, 2, 2, 5, 2)).astype(np.float32)
    embedding = {"input_ids": random.integers(0, 9, (2, 4)).astype(np.int32)}
    for name, shape in {"word": (9, 6), "position": (7, 6), "segment": (2, 6)}.items():
        table = f"{name}_embedding" if name == "segment" else f"{name}_embedding_quant"
        embedding |= {table: of(*shape), f"{name}_embedding_scale": number(0.02)}
        embedding[f"{name}_embedding_zero_point"] = point(130)
    for name in ("gamma", "beta"):
        embedding |= {f"{name}_quant": of(6), f"{name}_scale": number(0.01), f"{name}_zero_point": point(90)}
    segments = {"segment_ids": random.integers(0, 2, (2, 4)).astype(np.int32)}
    unsegmented = {name: value for name, value in embedding.items() if not name.startswith("segment")}
    heads, floating, ends = {"num_heads": 2}, np.float32, {"mask_index_out": np.int32}
    return [
        Case("QAttention", attention, heads, floating),
        Case(
            "QAttention",
            {**attention, "weight_scale": np.linspace(0.005, 0.02, 12, dtype=np.float32), "weight_zero_point": None},
            {**heads, "unidirectional": 1, "scale": 0.3},
            floating,
        ),
        Case("QAttention", {**attention, "mask_index": np.array([3, 2], np.int32)}, heads, floating),
        Case(
            "QAttention", {**attention, "past": past}, {**heads, "unidirectional": 1}, floating, {"present": floating}
        ),
        Case("QEmbedLayerNormalization", {**embedding, **segments}, {"epsilon": 1e-5}, floating, ends),
        Case(
            "QEmbedLayerNormalization",
            {**unsegmented, "mask": np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)},
            {},
            floating,
            ends,
        ),
        Case("DynamicQuantizeMatMul", {"A": floats, "B": weight, "b_scale": columns, "bias": bias}, dtype=np.float32),
        Case(
            "MatMulIntegerToFloat",
            {**product, "b_scale": columns, "b_zero_point": of(5, dtype=np.int8) // 50, "bias": bias},
            dtype=np.float32,
        ),
        Case(
            "QuantizeLinear",
            {"x": floats, "y_scale": number(0.001), "y_zero_point": point(9, np.uint16)},
            dtype=np.uint16,
        ),
        Case("DequantizeLinear", {"x": of(3, 4, dtype=np.int16), "x_scale": number(0.1)}, dtype=np.float32),
        Case("QGemm", {**scaled, "y_scale": number(0.05), "y_zero_point": point(100)}, {"alpha": 0.5}),
        Case("QGemm", {**scaled, "A": of(4, 3), "B": of(5, 4, dtype=np.int8)}, {"transA": 1, "transB": 1}, np.float32),
        Case("QLinearAdd", both),
        Case("QLinearMul", both),
        Case("QLinearSigmoid", {**rows, "Y_scale": number(1 / 256), "Y_zero_point": point(0)}),
        Case("QLinearLeakyRelu", rows, {"alpha": 0.3}),
        Case(
            "QLinearSoftmax", {**rows, "Y_scale": number(1 / 256), "Y_zero_point": point(0)}, {"axis": 0, "opset": 13}
        ),
        Case("QLinearGlobalAveragePool", image),
        Case("QLinearAveragePool", image, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0]}),
        Case("QLinearConcat", joined, {"axis": 1}),
        Case("QLinearWhere", chosen),
        Case("QLinearConv", convolution, {"pads": [1, 1, 1, 1]}),
    ]


CASES = cases()


def _model(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    definition = REGISTRY[MICROSOFT, case.op]
    names: list[str] = []
    given: dict[str, Array] = {}
    for operand in definition.inputs:
        value = case.operands.get(operand.name)
        arrays = value if isinstance(value, list) else [] if value is None else [value]
        own = [f"{operand.name}_{place}" for place in range(len(arrays))] if operand.variadic else [operand.name]
        names += own if arrays else [""]
        given.update(zip(own, arrays, strict=False))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    result = definition.outputs[0].name
    result = f"{result}_" if result in given else result
    results = {result: case.dtype, **case.further}
    node = helper.make_node(case.op, names, [*results], "node", domain=MICROSOFT, **case.attributes)
    outputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for name, dtype in results.items()
    ]
    graph = helper.make_graph([node], "one", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), given


@pytest.mark.parametrize("case", CASES, ids=[f"{place}-{case.op}" for place, case in enumerate(CASES)])
def test_ops_compute_what_onnxruntimes_kernels_do(case: Case) -> None:
    model, given = _model(case)
    expected, *others = run(model, given).values()
    lowered = ll.lower(model)
    assert {node.domain for node in lowered.graph.node} == {""}
    onnx.checker.check_model(lowered, full_check=True)
    found, *further = run(lowered, given).values()
    for value, wanted in zip(further, others, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6, strict=True)
    assert found.dtype == expected.dtype
    assert len(np.unique(found)) > 3
    if case.dtype is np.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        return
    steps = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    assert steps.max() <= 1
    # Only what lies in the middle of two integers may be rounded to either.
    assert np.mean(steps > 0) < 0.05


def test_older_versions_of_softmax_are_refused() -> None:
    case = next(case for case in CASES if case.op == "QLinearSoftmax")
    model, _ = _model(case._replace(attributes={"axis": 0, "opset": 11}))
    with pytest.raises(ll.LstmLowerError, match="axis requires the last axis in versions before opset 13, got 0"):
        ll.lower(model)


def test_gradients_go_straight_through_attention_of_integers() -> None:
    """Next to attention of what the integers stand for: they differ by what rounding the input does."""
    case = next(case for case in CASES if case.op == "QAttention")
    weight, bias = case.operands["weight"], case.operands["bias"]
    text = (
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> f (float[2,3,8] x) => (float loss) {NODES}"""
    )
    integers = """{ q, s, z = DynamicQuantizeLinear(x)
        y = com.microsoft.QAttention<num_heads = 2>(q, w, b, s, ws, , z, wz)
        d = Mul(y, y)  loss = ReduceSum<keepdims = 0>(d) }"""
    floats = (
        """{ y = com.microsoft.Attention<num_heads = 2>(x, w, b)  d = Mul(y, y)  loss = ReduceSum<keepdims = 0>(d) }"""
    )
    constants = {"w": weight, "b": bias, "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8)}
    x = np.random.default_rng(3).standard_normal((2, 3, 8)).astype(np.float32)
    gradients = []
    for nodes, held in ((integers, constants), (floats, {"w": weight * np.float32(0.01), "b": bias})):
        model = onnx.parser.parse_model(text.replace("{NODES}", nodes))
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in held.items())
        gradients.append(run(ll.gradient(model, of="loss", wrt=["x"]), {"x": x})["grad/x"])
    assert np.abs(gradients[0] - gradients[1]).max() < 0.02 * np.abs(gradients[1]).max()
    assert np.abs(gradients[1]).min() > 0


def test_output_types() -> None:
    """A zero point says which integers come out."""
    case = next(case for case in CASES if case.op == "QLinearConcat")
    model, _ = _model(case)
    assert ll.lower(model).graph.output[0].type.tensor_type.elem_type == TensorProto.UINT8
