"""Product splitting: a product that is only split along its columns is computed in parts.

`split(x @ w + b)` is `x @ w1 + b1, x @ w2 + b2` with the parts of `w` and `b`, so that the result over all steps is not
copied. The parts of the weight are copied instead, which pays where `x` has more rows than columns. Hoisted products of
cells whose gates are treated differently, a GRU's, are of this kind.

Precondition: outside loop bodies, in a graph that holds a loop: a Split along the last axis with constant sizes, of a
MatMul with a matrix, or of such a MatMul plus a vector, that nothing else reads.

Postcondition: no such Split where `x` is known to have more rows than columns.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach
from lstm_lower.passes.loops.views.loop_pass import AroundLoops, LoopPass

V = TypeVar("V", bound=std.Standard)


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A Split and what it splits: `rows @ weight`, plus `bias` where there is one."""

    split: std.Split
    sizes: tuple[int, ...]
    rows: ir.Value
    weight: ir.Value
    bias: ir.Value | None


class ProductSplitting(AroundLoops, LoopPass):
    """Computes the parts of a split product separately."""

    def around(self, graph: ir.Graph) -> bool:
        """Divides the split products of one graph."""
        modified = False
        for node in list(graph):
            # What it multiplies may be a part of a product that was divided just now.
            split = std.Split.of(node, self.facts)
            candidate = None if split is None else _candidate(split)
            if candidate is not None:
                self._write(graph, candidate)
                modified = True
        return modified

    def _write(self, graph: ir.Graph, c: _Candidate) -> None:
        node = c.split.node
        e = Builder(self.context.space, graph, before=node, scope=node.name or "split")
        sizes = e.ints(*c.sizes).value
        count = len(c.sizes)
        weights = _weights(e, c.weight, sizes, count)
        biases = [None] * count if c.bias is None else list(e.node(std.Split, [c.bias, sizes], count, axis=0).outputs)
        for output, weight, bias in zip(list(node.outputs), weights, biases, strict=True):
            result = e.op(std.MatMul, c.rows, weight)
            e.replace(output, result if bias is None else e.op(std.Add, result, bias))
        detach(node)


def _weights(e: Builder, weight: ir.Value, sizes: ir.Value, count: int) -> list[ir.Value]:
    """The parts of a weight's columns; of a transposed one transposed rows, which the runtime takes into products."""
    maker = e.facts.maker(weight)
    if isinstance(maker, std.Transpose) and maker.perm == (1, 0):
        parts = e.node(std.Split, [maker.data, sizes], count, axis=0).outputs
        return [e.transpose(part, (1, 0)) for part in parts]
    return list(e.node(std.Split, [weight, sizes], count, axis=1).outputs)


def _candidate(split: std.Split) -> _Candidate | None:
    facts, whole, sizes, rank = split.facts, split.data, split.sizes, split.rank()
    if sizes is None or rank is None or split.axis != rank - 1:
        return None
    product, bias = _lone_maker(facts, whole, std.MatMul), None
    addition = _lone_maker(facts, whole, std.Add)
    if addition is not None:
        left, right = addition.inputs
        assert left is not None
        product, bias = _lone_maker(facts, left, std.MatMul), right
        if product is None and right is not None:
            product, bias = _lone_maker(facts, right, std.MatMul), left
        if facts.shape(bias) != (sum(sizes),):
            return None
    if product is None or facts.rank(product.b) != 2:
        return None
    rows = facts.shape(product.a)
    if rows is None or len(rows) < 2:
        return None
    columns = rows[-1]
    if not isinstance(columns, int) or facts.elements(product.a) <= columns * columns:
        return None
    return _Candidate(split, sizes, product.a, product.b, bias)


def _lone_maker(facts: std.Knowledge, value: ir.Value, kind: type[V]) -> V | None:
    """The view of the node of a kind that makes a value for one reader."""
    maker = facts.maker(value)
    lone = len(value.uses()) == 1 and not value.is_graph_output()
    return maker if isinstance(maker, kind) and lone else None
