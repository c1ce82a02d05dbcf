"""Kernel replacement: operators whose kernels are slower than what they are made of are written in it.

Of onnxruntime's kernels on processors these take one element after the other, where others take eight (1.32.0, one
thread of an AMD EPYC):

    PRelu(x, slope)   5.5 ns an element, where the sign of x is not foreseen; 1.4 as  x * where(x < 0, slope, 1)
    Softplus(x)       13.5 ns; 5 as  max(x, 0) + log1p(exp(-|x|))
    Mish(x)           15 ns, since it is made of Softplus; 6.5 as  x * tanh(softplus(x))

Precondition: one of these of `LEAST` elements or more (an open size counts as 64), of float32, PRelu with one slope for
all elements: a choice among several is as slow as the kernel. Postcondition: there is none.

Runs after the passes that know the operators as such, and for onnxruntime's processors alone.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, tanh
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.loops.views.base import LoopPass, OnGraphs
from lstm_lower.passes.rewriting import Results, Rewriting, Rule

# Elements; with fewer, the nodes that are added take as long as they save.
LEAST = 1 << 13


class KernelReplacement(Rewriting, OnGraphs, LoopPass):
    """Writes operators with slow kernels in others."""

    shares_constants = False

    def where(self, node: ir.Node) -> bool:
        """Whether it is an operator that has much to do."""
        facts = self.facts
        view = facts.view(node)
        if type(view) not in _FORMULAS or view is None or view.dtype() != ir.DataType.FLOAT:
            return False
        if isinstance(view, std.PRelu) and facts.elements(view.operand(1), unknown=LEAST) != 1:
            return False
        return facts.elements(view.output) >= LEAST

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """Emits what the operator is made of."""
        view = self.facts.view(node)
        assert view is not None
        return _FORMULAS[type(view)](view, builder)

    def ensures(self, model: ir.Model) -> None:
        """None of them is left.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        super().ensures(model)
        for node in all_nodes(model.graph):
            if self.where(node):
                raise self.broken(node, "to be written in other operators")


def _prelu(view: std.PRelu, b: Builder) -> Expr:
    x, slope = (b.wrap(value) for value in view.node.inputs if value is not None)
    return x * b.where(x < 0, slope, x.like(1))


def _softplus(x: Expr) -> Expr:
    """As exact as the kernel, element by element: 1 + e is rounded, and what that lost is added to its logarithm."""
    e = (-x.abs()).exp()
    u = e + 1
    return x.maximum(0) + (u.log() + (e - (u - 1)) / u)


_FORMULAS: dict[type[std.Standard], Rule] = {
    std.Mish: lambda view, b: b.wrap(view.data) * tanh(_softplus(b.wrap(view.data))),
    std.PRelu: _prelu,
    std.Softplus: lambda view, b: _softplus(b.wrap(view.data)),
}
