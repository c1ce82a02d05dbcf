"""The text dump: what it shows, and that it depends on nothing but the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump, tensor_type, type_text

LOOP = """
<ir_version: 9, opset_import: ["" : 18]>
graph (float[T,B,3] x, float[B,3] h0, bool flip) => (float[T,B,3] y, float[B,3] h)
<float[3] scale = {1, 2, 3}, float[3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
{
    shape = Constant<value = int64[1] {-1}>()
    flat = Reshape(x, shape)
    h, y = Scan<num_scan_inputs = 1, body = step (float[B,3] h_in, float[B,3] x_t) => (float[B,3] h_out, float[B,3] y_t)
    {
        xw = MatMul(x_t, w)
        s = Add(xw, h_in)
        h_out = Mul(s, scale)
        y_t = Identity(h_out)
    }>(h0, x)
    unused = Clip(flat, , scale)
}
"""


def loop() -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(LOOP))


def test_golden(golden) -> None:
    golden("dump", dump=dump(loop()), with_node_names=dump(named(), node_names=True))


def named() -> ir.Model:
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 18, "tf" : 1]>
        agraph (float[N] x) => (float[N] y) { t = tf.Op<ratio=0.1, mode="fast", axes=[1,2]>(x)  y = Neg(t) }
        """
    )
    proto.graph.node[0].name = "outer/op"
    proto.graph.node[1].output[0] = proto.graph.output[0].name = "y,0"
    return ir.from_proto(proto)


def test_names_of_intermediate_values_do_not_matter() -> None:
    renamed = loop()
    for index, node in enumerate(renamed.graph.all_nodes()):
        node.name = f"node{index}"
        for value in node.outputs:
            if not value.is_graph_output():
                value.name = f"value{index}"
    assert dump(renamed) == dump(loop())


def test_names_of_inputs_and_outputs_do_matter() -> None:
    renamed = loop()
    renamed.graph.inputs[0].name = "another"
    assert dump(renamed) == dump(loop()).replace("%x", "%another")


def test_constants_and_initializers_look_alike() -> None:
    lifted = loop()
    node = next(node for node in lifted.graph if node.op_type == "Constant")
    value = ir.val("lifted", const_value=node.attributes["value"].as_tensor())
    node.outputs[0].replace_all_uses_with(value)
    lifted.graph.remove(node)
    lifted.graph.register_initializer(value)
    assert dump(lifted) == dump(loop())


NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("weights", "others"),
    [
        pytest.param(NUMBERS, NUMBERS + 1, id="value"),
        pytest.param(NUMBERS, NUMBERS.reshape(4, 3), id="shape"),
        pytest.param(NUMBERS, NUMBERS.astype(np.float64), id="dtype"),
        pytest.param([*"abcdefghijkl"], [*"abcdefghijkm"], id="strings"),
    ],
)
def test_large_weights_differ_by_hash_or_type(weights: np.ndarray | list[str], others: np.ndarray | list[str]) -> None:
    texts = []
    for data in (weights, others):
        weight = ir.val("w", const_value=ir.tensor(data))
        node = ir.node("Neg", [weight])
        texts.append(dump(ir.Graph([], node.outputs, nodes=[node], initializers=[weight])))
    assert texts[0] != texts[1]
    assert "#" in texts[0]


def test_hashes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loop()
    weight = model.graph.initializers["w"]
    calls: list[int] = []
    tobytes = type(weight.const_value).tobytes
    monkeypatch.setattr(type(weight.const_value), "tobytes", lambda self: calls.append(1) or tobytes(self))
    hashes: dict = {}
    assert dump(model, hashes=hashes) == dump(model, hashes=hashes)
    assert len(calls) == 1


def test_dump_leaves_the_model_alone() -> None:
    model = loop()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    dump(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_initializer_that_is_an_output_keeps_its_name() -> None:
    weight = ir.val("w", const_value=ir.tensor(np.zeros(2, np.float32)))
    graph = ir.Graph([], [weight], nodes=[], initializers=[weight])
    assert dump(graph) == "graph {\n  %w: f32[2] = <f32[2] 0.0, 0.0>\n  return %w\n}\n"


def test_missing_operand_and_unused_results() -> None:
    text = dump(loop())
    assert "Clip(%0, _, <f32[3] 1.0, 2.0, 3.0>)" in text


def test_function_and_reference_attribute() -> None:
    proto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 18, "local" : 1]>
        agraph (float[N] x) => (float[N] y) { y = local.scale<factor=2.0>(x) }
        <domain: "local", opset_import: ["" : 18]>
        scale <factor> (a) => (b) { k = Constant<value_float: float = @factor>()  b = Mul(a, k) }
        """
    )
    text = dump(ir.from_proto(proto))
    assert "function local::scale {" in text
    assert "{value_float=@factor}" in text


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        (ir.DataType.FLOAT, [], "f32"),
        (ir.DataType.BFLOAT16, [2, "4*H", None], "bf16[2,4*H,?]"),
        (ir.DataType.BOOL, None, "bool[..]"),
        (None, None, "?"),
        (None, [3], "?[3]"),
    ],
)
def test_tensor_type(dtype: ir.DataType | None, shape: list | None, text: str) -> None:
    assert tensor_type(dtype, None if shape is None else ir.Shape(shape)) == text


def test_sequence_type() -> None:
    value = ir.Value(name="s", type=ir.SequenceType(ir.TensorType(ir.DataType.INT64)), shape=ir.Shape([2]))
    assert type_text(value) == "seq(i64[2])"


def test_example_graph() -> None:
    path = Path(__file__).parents[2] / "examples" / "graphs" / "char_lstm_train.onnx"
    text = dump(ir.load(path))
    assert "ai.onnx.converters.tensorflow::BlockLSTMGrad(<i64 20>, " in text
    assert text.count("\n") < 100
