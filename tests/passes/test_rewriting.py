"""The walk that asks rules of every node."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.dump import dump
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rewriting import Results, Rewriting

MODEL = """<ir_version: 10, opset_import: ["": 21]> g (bool c, float[3] x) => (float[3] y, float[3] z) {
    y = Softsign(x)
    z = If (c) <
        then_branch = g1 () => (float[3] a) { b = Softsign(x) a = Softsign(b) },
        else_branch = g2 () => (float[3] d) { d = Identity(x) }
    >
}"""


class Reciprocals(Rewriting, Pass):
    """Softsign by a Reciprocal, and a Reciprocal by a division."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model, self.graph(model.graph))

    def where(self, node: ir.Node) -> bool:
        return std.Softsign.matches(node) or std.Reciprocal.matches(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        x = builder.wrap(node.inputs[0])
        # What nothing reads goes again.
        builder.op(std.Sinh, x)
        if std.Reciprocal.matches(node):
            return 1.0 / x
        return [x * builder.op(std.Reciprocal, x.abs() + 1.0)]


class SpreadReciprocals(Reciprocals):
    """The same, each constant where it is read."""

    shares_constants = False


@pytest.mark.parametrize(("kind", "constants"), [(Reciprocals, 2), (SpreadReciprocals, 6)])
def test_every_node_and_what_it_becomes_is_asked(kind: type[Reciprocals], constants: int) -> None:
    model = ir.from_proto(onnx.parser.parse_model(MODEL))
    assert kind()(model).modified
    ops = [node.op_type for node in all_nodes(model.graph)]
    assert ops.count("Div") == 3, dump(model)
    # Those of a branch are the branch's own.
    assert ops.count("Constant") == constants
    assert not {"Softsign", "Reciprocal", "Sinh"} & set(ops)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert not kind()(model).modified
