"""Constant branches: an If whose condition is known becomes the branch that runs."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.model_pass import Pass
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
        return ir.passes.PassResult(model, self.graph(model.graph))

    def where(self, node: ir.Node) -> bool:
        """Whether a node is an If."""
        return std.If.matches(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The result of the branch of a known condition."""
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
