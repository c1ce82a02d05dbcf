"""Evaluation in float64: nothing of the graph stays in a coarser dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.records.model_files import load
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.models import outputs_of, single_node_model
from tests.support.op_inputs import valid_inputs

THIRD = np.float32(1) / np.float32(3)


def evaluate(text: str, **feeds: Any) -> dict[str, np.ndarray]:
    return reference.evaluate(ir.from_proto(onnx.parser.parse_model(text)), feeds)


BRANCHES = """
c = Constant<value = float[1] {3}>()
d = Div(x, c)
b = Constant<value = bool {1}>()
y = If<
    then_branch = t () => (float[1] r) { k = Constant<value = float[1] {3}>()  q = Div(x, k)  r = Identity(q) },
    else_branch = e () => (float[1] s) { s = Identity(d) }
>(b)
"""
ZEROS = """
n = Constant<value = int64[1] {1}>()
zero = ConstantOfShape(n)
one = Exp(zero)
two = Add(one, one)
three = Add(two, one)
y = Div(x, three)
"""


@pytest.mark.parametrize(
    "body",
    [
        "c = Constant<value = float[1] {3}>()  y = Div(x, c)",
        "c = Constant<value_float = 3.0>()  y = Div(x, c)",
        "c = Constant<value_floats = [3.0]>()  y = Div(x, c)",
        "i = Constant<value = int64[1] {3}>()  c = Cast<to = 1>(i)  y = Div(x, c)",
        "i = Constant<value = int64[1] {3}>()  h = Cast<to = 10>(i)  c = Cast<to = 1>(h)  y = Div(x, c)",
        "n = Constant<value = int64[1] {1}>()  c = ConstantOfShape<value = float[1] {3}>(n)  y = Div(x, c)",
        ZEROS,
        BRANCHES,
    ],
)
def test_every_float_is_widened(body: str) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 18]> agraph (float[1] x) => (float[1] y) {{ {body} }}'
    result = evaluate(text, x=np.ones(1, np.float32))["y"]
    assert result.dtype == np.float64
    assert result[0] == 1 / 3
    assert result[0] != float(THIRD)


def test_initializers_are_widened_and_integers_are_not() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[2] x, int64[2] n) => (float[2] y, int64[2] m)'
        " <float[2] w = {3, 3}, int64[2] k = {2, 2}> { y = Div(x, w)  m = Div(n, k) }"
    )
    results = evaluate(text, x=np.ones(2, np.float32), n=np.array([5, 7]))
    assert results["y"].dtype == np.float64
    np.testing.assert_array_equal(results["m"], [2, 3])
    assert results["m"].dtype == np.int64


@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMGrad", "GRUBlockCellGrad"])
def test_composite_ops_are_their_oracles(op: str) -> None:
    kwargs = valid_inputs(op, seed=2)
    model = ir.from_proto(single_node_model(op, kwargs))
    operands = {value.name: kwargs[str(value.name)] for value in model.graph.inputs}
    results = outputs_of(op, reference.evaluate(model, operands))
    for name, expected in ORACLES[op](**kwargs).items():
        np.testing.assert_array_equal(results[name], expected)


def test_attributes_round_to_the_models_dtype() -> None:
    kwargs = valid_inputs("BlockLSTM", dtype=np.float16, forget_bias=0.1, cell_clip=0.3)
    widened = reference.widen(ir.from_proto(single_node_model("BlockLSTM", kwargs)))
    attributes = next(iter(widened.graph)).attributes
    assert attributes["forget_bias"].as_float() == float(np.float16(0.1))
    assert attributes["cell_clip"].as_float() == float(np.float16(0.3))


def test_the_model_is_not_changed() -> None:
    model = ir.from_proto(single_node_model("BlockLSTM", valid_inputs("BlockLSTM", dtype=np.float16)))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    reference.widen(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def variadic(op: str, inputs: dict[str, np.ndarray], outputs: int, result: int, **attributes: Any) -> ir.Model:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in inputs.items()
    ]
    names = [f"out{index}" for index in range(outputs)]
    node = helper.make_node(op, list(inputs), names, name="node", domain="tf", **attributes)
    results = [helper.make_tensor_value_info(name, result, None) for name in names]
    graph = helper.make_graph([node], "g", infos, results)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("tf", 1)]
    return ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=8))


def test_variadic_operands() -> None:
    feeds = {
        "i0": np.array([0, 2], np.int32),
        "i1": np.array([1], np.int32),
        "d0": np.array([[1.0], [2.0]], np.float32),
        "d1": np.array([[3.0]], np.float32),
    }
    results = reference.evaluate(variadic("DynamicStitch", feeds, 1, TensorProto.FLOAT, N=2), feeds)
    np.testing.assert_array_equal(results["out0"], [[1.0], [3.0], [2.0]])


def test_variadic_outputs() -> None:
    feeds = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((4,), np.float32)}
    results = reference.evaluate(variadic("ShapeN", feeds, 2, TensorProto.INT32), feeds)
    np.testing.assert_array_equal(results["out0"], [2, 3])
    np.testing.assert_array_equal(results["out1"], [4])


def test_composite_ops_in_functions() -> None:
    kwargs = valid_inputs("LSTMBlockCell")
    proto = single_node_model("LSTMBlockCell", kwargs)
    (node,) = proto.graph.node
    function = helper.make_function("local", "cell", list(node.input), list(node.output), [node], proto.opset_import)
    call = helper.make_node("cell", list(node.input), list(node.output), domain="local")
    del proto.graph.node[:]
    proto.graph.node.append(call)
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    feeds = {value.name: kwargs[value.name] for value in proto.graph.input}
    results = outputs_of("LSTMBlockCell", reference.evaluate(ir.from_proto(proto), feeds))
    np.testing.assert_array_equal(results["h"], ORACLES["LSTMBlockCell"](**kwargs)["h"])


def test_an_op_of_another_package_without_oracle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.registry, "ORACLES", {})
    monkeypatch.setattr(reference, "is_ours", lambda module: False)  # noqa: ARG005
    with pytest.raises(UnsupportedOpError, match="BlockLSTM 'node': no oracle"):
        reference.widen(ir.from_proto(single_node_model("BlockLSTM", valid_inputs("BlockLSTM"))))


def test_a_loop_without_a_condition_runs() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] last, float[3,2,3] all) {
      trips = Constant<value = int64 {3}>()
      last, all = Loop<body = b (int64 i, bool go, float[2,3] s) => (bool on, float[2,3] t, float[2,3] o) {
        on = Identity(go) t = Add(s, x) o = Mul(t, t) }>(trips, , x)
    }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = evaluate(text, x=x)
    np.testing.assert_array_equal(results["last"], 4 * x)
    np.testing.assert_array_equal(results["all"], [4 * x**2, 9 * x**2, 16 * x**2])


def test_a_loop_ends_with_its_condition() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float x, bool start) => (float last, float[K] all) {
      last, all = Loop<body = b (int64 i, bool go, float s) => (bool on, float t, float o) {
        t = Add(s, s) ten = Constant<value = float {10}>() on = Less(t, ten) o = Identity(s) }>(, start, x)
    }"""
    results = evaluate(text, x=np.float32(3), start=np.array(1, bool))
    assert results["last"] == 12
    np.testing.assert_array_equal(results["all"], [3, 6])


def test_a_scan_backwards_along_another_axis() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x, float[2] s) => (float[2] last, float[3,2] all) {
      last, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
        scan_output_directions = [1], body = b (float[2] h, float[2] e) => (float[2] n, float[2] o) {
        n = Sub(e, h) o = Identity(n) }>(s, x)
    }"""
    results = evaluate(text, x=np.float32([[1, 2, 4], [0, 0, 8]]), s=np.zeros(2, np.float32))
    np.testing.assert_array_equal(results["all"], [[3, 8], [-2, -8], [4, 8]])
    np.testing.assert_array_equal(results["last"], [3, 8])


def test_weights_in_files_of_their_own(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[2] y)
        <float w = {2.0}, int64[2] places = {3, 1}> { s = Mul(x, w)  y = Gather(s, places) }"""
    options = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx", **options)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(reference.evaluate(load(tmp_path / "model.onnx"), {"x": x})["y"], [6, 2])


def test_an_absent_operand_behind_an_absent_output() -> None:
    """`onnx.reference` keeps both under the empty name."""
    outputs = ["sum_of", "", "", "total"]
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "x", "scale"], outputs, domain="com.microsoft"),
        helper.make_node("Clip", ["total", "", "top"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in SHAPES.items()]
    graph = helper.make_graph(nodes, "clipped", values[:3], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feeds = {"x": np.float32([[-4, 0, 3]]), "scale": np.ones(3, np.float32), "top": np.float32(2)}
    np.testing.assert_array_equal(reference.evaluate(load(model), feeds)["y"], [[-8, 0, 2]])


SHAPES: dict[str, list[int]] = {"x": [1, 3], "scale": [3], "top": [], "y": [1, 3]}


def test_a_wrong_shape_of_an_inner_value() -> None:
    """Builders of language models declare vectors of one number as single numbers."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[1] y) <float s>
        { s = Constant<value = float[1] {3}>()  t = ReduceSum(x)  y = Mul(s, t) }""")
    np.testing.assert_array_equal(reference.evaluate(load(model), {"x": np.ones(4, np.float32)})["y"], [12])
