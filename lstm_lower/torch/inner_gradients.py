"""Gradients that stand within a model, as any other gradient is."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.differentiate import check_rules, decomposed
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.gradients.activity import Activity
from lstm_lower.passes.gradients.ragged_scans import ragged_scans_to_loops
from lstm_lower.passes.gradients.reverse import Reverse

# The domain of two nodes. Gradient: results, as many seeds, and operands -> the operands' gradients. Primal: a value
# that is an operand by itself, whatever else it is read by.
DERIVATIVES = "lstm_lower.torch.derivatives"


def with_inner_gradients(model: ir.Model) -> ir.Model:
    """A model whose nodes of the domain are formulas.

    Raises:
        UnsupportedOpError: one of them has none.
    """
    if not any(node.domain == DERIVATIVES for node in all_nodes(model.graph)):
        return model
    return run_passes(model, [*preparing_passes(), InnerGradientsPass()])


class InnerGradientsPass(Pass):
    """Writes gradients within a model; inner ones first, of which others may be taken."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Writes them.

        Raises:
            UnsupportedOpError: one stands in a body, or goes through operators without a rule.
        """
        space = self.context.space
        if any(node.domain == DERIVATIVES and node.graph is not model.graph for node in all_nodes(model.graph)):
            raise UnsupportedOpError(
                "a derivative inside forward or loss must be outside of control flow, got one in the body of "
                "a cond, a loop or a scan; take it outside, of the function that holds the control flow"
            )
        for node in list(model.graph):
            if node.domain == DERIVATIVES and node.op_type == "Primal":
                b = Builder.before(node, space)
                assert node.inputs[0] is not None
                replace(node.outputs[0], b.op(std.Identity, b.wrap(node.inputs[0])).value, space)
                model.graph.remove(node, safe=True)
        while node := next((each for each in model.graph if each.domain == DERIVATIVES), None):  # type: ignore[assignment]
            self._write(model, node)
        model.graph.opset_imports.pop(DERIVATIVES, None)
        return ir.passes.PassResult(model, modified=True)

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        space = self.context.space

        def activity() -> Activity:
            results, _, operands = _operands(node)
            return Activity(_before(model, node), space.facts, operands, results)

        active = activity()
        if decomposed(self.context, model, active):
            space = self.context.space
            active = activity()
        check_rules(model, active)
        if ragged_scans_to_loops(model, space, set(active.nodes(model.graph))):
            active = activity()
        # What became formulas has other results.
        results, seeds, operands = _operands(node)
        b = Builder.before(node, space)
        reverse = Reverse(b, active.active)
        for result, seed in zip(results, seeds, strict=True):
            if result in active.active:
                reverse.add(result, b.wrap(seed))
        reverse.run(_before(model, node))
        for old, operand in zip(node.outputs, operands, strict=True):
            found = reverse.gradients.get(operand)
            replace(old, (b.zeros_like(b.wrap(operand)) if found is None else found).value, space)
        model.graph.remove(node, safe=True)


def _operands(node: ir.Node) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
    """Results, seeds, and operands of a node of the domain."""
    count = node.attributes["outputs"].as_int()
    given = [value for value in node.inputs if value is not None]
    return given[:count], given[count : 2 * count], given[2 * count :]


def _before(model: ir.Model, node: ir.Node) -> list[ir.Node]:
    nodes = list(model.graph)
    return nodes[: nodes.index(node)]
