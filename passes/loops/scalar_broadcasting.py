"""Scalar broadcasting: a scalar meets sizes of 1 at the end of a tensor's shape in a rank that onnxruntime does fast.

onnxruntime's broadcasting skips the last axes of which both operands have one element, and takes an axis that only one
operand has for one that is repeated. So a scalar of rank 0 beside a tensor [M,N,1,1] is repeated along the last axis,
one element at a time: 14 to 60 ns an element in place of 0.3 (1.32.0, one thread of an AMD EPYC), in every operator
that broadcasts. Weights of convolutions with one place have such shapes, and optimizers are full of scalars.

Precondition: an elementwise operator, an operand of one element and rank r, a result whose last k >= r sizes are 1, of
at least `LEAST` elements, as far as its sizes are known. Postcondition: that operand has rank k + 1.

Runs after all other passes, to which a scalar is one in any rank.
"""

from __future__ import annotations

import itertools
import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.loops.views.base import LoopPass, OnGraphs

# Elements; with fewer, a node that gives a scalar its rank takes as long as it saves.
LEAST = 1 << 12


class ScalarBroadcasting(OnGraphs, LoopPass):
    """Gives scalars the rank in which they are broadcast fast."""

    def graph(self, graph: ir.Graph) -> bool:
        """Widens the scalars of a graph and its subgraphs."""
        modified = False
        # Those that are widened already; each node comes after what it reads.
        wide: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in list(graph):
            for subgraph in subgraphs_of(node):
                modified |= self.graph(subgraph)
            for place, rank in self._slow(node):
                scalar = node.inputs[place]
                assert scalar is not None
                if (scalar, rank) not in wide:
                    wide[scalar, rank] = self._widened(scalar, rank, node)
                node.replace_input_with(place, wide[scalar, rank])
                modified = True
        return modified

    def ensures(self, model: ir.Model) -> None:
        """No large tensor meets a scalar that is broadcast slowly.

        Raises:
            ir.passes.PostconditionError: one does.
        """
        super().ensures(model)
        for node in all_nodes(model.graph):
            for place, rank in self._slow(node):
                raise self.broken(node, f"operand {place} to have rank {rank}")

    def _slow(self, node: ir.Node) -> list[tuple[int, int]]:
        """Operands that are repeated one element at a time, and the rank that they should have."""
        op = std.Elementwise.of(node, self.facts)
        # What a function of one operand reads beside it is not broadcast; PReLU's slope has a kernel of its own.
        if op is None or isinstance(op, std.Unary | std.PRelu):
            return []
        shape = self.facts.shape(op.output)
        if shape is None:
            return []
        elements = math.prod(dim for dim in shape if isinstance(dim, int))
        ones = len(list(itertools.takewhile(lambda dim: dim == 1, reversed(shape))))
        if elements < LEAST or not ones:
            return []
        shapes = [self.facts.shape(value) for value in node.inputs]
        return [
            (place, ones + 1)
            for place, sizes in enumerate(shapes)
            if sizes is not None and len(sizes) <= ones and all(size == 1 for size in sizes)
        ]

    def _widened(self, scalar: ir.Value, rank: int, node: ir.Node) -> ir.Value:
        assert node.graph is not None
        e = Builder(self.context.space, node.graph, before=node, scope=node.name or "scalar")
        constant, dtype = self.facts.constant(scalar), self.facts.dtype(scalar)
        if constant is not None and dtype is not None:
            return e.constant(constant.reshape((1,) * rank), dtype).value
        own = self.facts.rank(scalar)
        assert own is not None
        return e.unsqueeze(scalar, *range(rank - own))
