"""Splitting products: a product that is only made to be split along its columns is made in parts at once.

`split(x @ w + b)` is `x @ w1 + b1, x @ w2 + b2` with the parts of `w` and `b`, so that the result over all steps is not
copied. The parts of the weight are copied instead, which pays where `x` has more rows than columns. Hoisted products of
cells whose gates are treated differently, a GRU's, are of this kind.

Precondition: outside loop bodies, in a graph that holds a loop: a Split along the last axis with constant sizes, of a
MatMul with a matrix, or of such a MatMul plus a vector, that nobody else reads.

Postcondition: no such Split where `x` is known to have more rows than columns.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Emitter, replace
from lstm_lower.passes.infer import attribute, constant_of, shape_of
from lstm_lower.passes.loops.views.base import AroundLoops, LoopPass
from lstm_lower.passes.loops.views.dependence import elements, rank_of


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A Split and what it splits: `rows @ weight`, plus `bias` where there is one."""

    split: ir.Node
    sizes: list[int]
    rows: ir.Value
    weight: ir.Value
    bias: ir.Value | None


class SplitProducts(AroundLoops, LoopPass):
    """Makes the parts of a split product one by one."""

    name = "split_products"

    def around(self, graph: ir.Graph) -> bool:
        """Divides the split products of one graph."""
        found = [candidate for node in graph if (candidate := _candidate(node)) is not None]
        for candidate in found:
            self._write(graph, candidate)
        return bool(found)

    def _write(self, graph: ir.Graph, c: _Candidate) -> None:
        space = self.context.space
        e = Emitter(space, graph, before=c.split, scope=c.split.name or "split")
        sizes = e.ints(*c.sizes)
        count = len(c.sizes)
        weights = _weights(e, c.weight, sizes, count)
        biases = [None] * count if c.bias is None else list(e.node(std.Split, [c.bias, sizes], count, axis=0).outputs)
        for output, weight, bias in zip(list(c.split.outputs), weights, biases, strict=True):
            result = e.op(std.MatMul, c.rows, weight)
            if bias is not None:
                result = e.op(std.Add, result, bias)
            result.shape = output.shape
            replace(output, result, space)
        detach(c.split)


def _weights(e: Emitter, weight: ir.Value, sizes: ir.Value, count: int) -> list[ir.Value]:
    """The parts of a weight's columns; of a transposed one transposed rows, which the runtime takes into products."""
    maker = weight.producer()
    if std.Transpose.matches(maker) and attribute(maker, "perm", (1, 0))[0] == 1:
        parts = e.node(std.Split, [maker.inputs[0], sizes], count, axis=0).outputs
        return [e.op(std.Transpose, part, perm=[1, 0]) for part in parts]
    return list(e.node(std.Split, [weight, sizes], count, axis=1).outputs)


def _candidate(split: ir.Node) -> _Candidate | None:
    if not std.Split.matches(split) or len(split.inputs) < 2:
        return None
    whole, sizes = split.inputs[0], constant_of(split.inputs[1])
    rank = rank_of(whole)
    if whole is None or sizes is None or rank is None or attribute(split, "axis", 0) % rank != rank - 1:
        return None
    product, bias = _lone_maker(whole, "MatMul"), None
    addition = _lone_maker(whole, "Add")
    if addition is not None:
        left, right = addition.inputs
        assert left is not None
        product, bias = _lone_maker(left, "MatMul"), right
        if product is None and right is not None:
            product, bias = _lone_maker(right, "MatMul"), left
        if rank_of(bias) != 1 or shape_of(bias) != (int(sizes.sum()),):
            return None
    if product is None:
        return None
    rows, weight = product.inputs
    if rows is None or weight is None or rank_of(weight) != 2 or (rank_of(rows) or 0) < 2:
        return None
    columns = (shape_of(rows) or (None,))[-1]
    if not isinstance(columns, int) or elements(rows) <= columns * columns:
        return None
    return _Candidate(split, [int(size) for size in sizes], rows, weight, bias)


def _lone_maker(value: ir.Value, op_type: str) -> ir.Node | None:
    """The node of a type that makes a value for one reader."""
    node = value.producer()
    if node is None or node.op_type != op_type or node.domain != "" or value.is_graph_output():
        return None
    return node if len(value.uses()) == 1 else None
