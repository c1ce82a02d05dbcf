"""Constant branches: an If whose condition is known becomes the branch that runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.rewriting import Results, Rewriting


class ConstantBranchPass(Rewriting, Pass):
    """Puts the branch that runs in the place of every If whose condition is known.

    onnxruntime does so too, but its way to inline branches (measured on 1.31) loses values of nested ones, or ends the
    process: on inlined functions, on models of another opset, where outputs got names that they did not have.

    Precondition: names are unique (`UniqueNamesPass`).
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Chooses, inner Ifs before those that hold them."""
        modified = self.graph(model.graph)
        if modified:
            for node in [node for node in all_nodes(model.graph) if std.Range.matches(node)]:
                self._with_scalars(node)
        return ir.passes.PassResult(model, modified)

    def _with_scalars(self, node: ir.Node) -> None:
        """Makes scalars of a Range's operands that are lone elements with an axis.

        onnxruntime takes such operands as long as it does not see what they are, as where an If hid them; onnx's own
        definition of AffineGrid has some.
        """
        assert node.graph is not None
        facts, e = self.context.space.facts, Builder(self.context.space, node.graph)
        for j, value in enumerate(node.inputs):
            if value is not None and facts.rank(value):
                e.go_before(node, node.name or "range")
                node.replace_input_with(j, e.op(std.Reshape, value, e.constant(np.zeros(0, np.int64))))

    def where(self, node: ir.Node) -> bool:
        """Whether a node is an If."""
        return std.If.matches(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """What the branch of a known condition makes."""
        op = std.If.of(node, builder.facts)
        return None if op is None else chosen_branch(op, builder)


def chosen_branch(op: std.If, e: Builder) -> list[ir.Value] | None:
    """The results of the branch that runs, whose nodes are placed before the If; `None` where it is not known."""
    condition = op.constant(0)
    if condition is None or condition.size != 1:
        return None
    branch = op.branches[0 if condition.all() else 1]
    results, nodes = list(branch.outputs), list(branch)
    branch.outputs.clear()
    branch.remove(nodes)
    e.place(*nodes)
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        e.graph.register_initializer(value)
    return results
