"""Projection bias: a vector that is added to a product of all steps becomes one more row of the product.

Around a loop stand `x[T,B,K] @ w[K,N] + b`, or the same transposed, `w'[N,K] @ x'[T,K,B] + b'`, so that the loop reads
what does not need its state. `[x | 1] @ [w; b]` is the same. With R = T*B rows, adding the vector moves R*N elements,
joining the ones R*(K+1), and the weight N*(K+1). With m = 0.22 ns to move an element and d = 12 us for the nodes that
join, the sum is taken in where

    m * (R*N - (R + N)*(K + 1)) > d

Sizes of a sequence that are not known count as 32.

Precondition: an Add of a vector along the weight's axis to a product that nothing else reads, of one weight whose sizes
are known and a sequence of floats.

Postcondition: no such Add is left that costs more. Runs after passes that look at these products.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.base import SitesAroundLoops

MOVE = 0.22
JOIN = 12_000.0
ASSUMED = 32


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A product over all steps, and what is added to it.

    Attributes:
        node: the Add.
        product: what it adds to.
        side: which operand the weight is: 1 in `x @ w`, 0 in `w' @ x'`.
        bias: what is added.
    """

    node: ir.Node
    product: std.MatMul
    side: int
    bias: ir.Value


class ProjectionBias(SitesAroundLoops[_Sum]):
    """Takes vectors into the products that they are added to."""

    def sites(self, graph: ir.Graph) -> list[_Sum]:
        """Vectors that a product could take in."""
        return [found for node in graph if (found := _sum(self.facts, node)) is not None]

    def promise(self, site: _Sum) -> str:  # noqa: ARG002 (the same for all)
        """Said of the Add."""
        return "what it adds to be a row of its product"

    def write(self, graph: ir.Graph, item: _Sum) -> None:
        """Makes the vector a row."""
        e = Builder(self.context.space, graph, before=item.node, scope=node_label(item.node))
        weight = item.product.node.inputs[item.side]
        sequence = item.product.node.inputs[1 - item.side]
        dtype = self.facts.dtype(sequence)
        assert weight is not None
        assert sequence is not None
        assert dtype is not None
        # The axis of a sequence along which the product sums.
        axis = 1 + item.side
        sizes = [e.ints(1) if place == axis else e.size(sequence, place) for place in range(3)]
        ones = e.op(std.ConstantOfShape, e.concat(sizes, 0), value=ir.Tensor(np.ones(1, dtype.numpy()), dtype=dtype))
        wide = e.concat([sequence, ones.value], axis)
        shape = (1, -1) if item.side else (-1, 1)
        whole = e.concat([weight, e.op(std.Reshape, item.bias, e.ints(*shape))], 1 - item.side)
        product = e.op(std.MatMul, wide, whole) if item.side else e.op(std.MatMul, whole, wide)
        e.replace(item.node.outputs[0], product)
        detach(item.node)


def _sum(facts: Facts, node: ir.Node) -> _Sum | None:
    if not std.Add.matches(node):
        return None
    for value, bias in (tuple(node.inputs), tuple(reversed(node.inputs))):
        product = facts.maker(value)
        if value is None or bias is None or not isinstance(product, std.MatMul) or product.node.graph is not node.graph:
            continue
        side = {(3, 2): 1, (2, 3): 0}.get((facts.rank(product.a) or 0, facts.rank(product.b) or 0))
        if side is None or len(value.uses()) != 1 or value.is_graph_output():
            continue
        found = _Sum(node, product, side, bias)
        if _is_vector(facts, found) and _gain(facts, found) > 0:
            return found
    return None


def _is_vector(facts: Facts, found: _Sum) -> bool:
    """Whether what is added varies along the axis that the weight makes, and along no other."""
    shape, sizes = facts.shape(found.bias), facts.shape(found.product.node.inputs[found.side])
    if shape is None or sizes is None or len(shape) > 3:
        return False
    places: list[object] = [1, 1, sizes[1]] if found.side else [1, sizes[0], 1]
    return list(shape) == places[3 - len(shape) :]


def _gain(facts: Facts, found: _Sum) -> float:
    """The time that the sum takes beyond what joining takes, in nanoseconds."""
    sequence, weight = (facts.shape(found.product.node.inputs[place]) for place in (1 - found.side, found.side))
    assert sequence is not None
    assert weight is not None
    inner, units = weight[:: 1 if found.side else -1]
    if not isinstance(inner, int) or not isinstance(units, int):
        return 0.0
    steps, rows = (
        size if isinstance(size, int) else ASSUMED for axis, size in enumerate(sequence) if axis != 1 + found.side
    )
    moved = steps * rows * units - (steps * rows + units) * (inner + 1)
    return MOVE * moved - JOIN
