"""Bias fusion: a sum over rows becomes one more row of a product.

Behind a loop stand `a' @ g` and the sum of `g` over its rows, both over [T*B]. Summing is the product with a column
of ones, so `[a | 1]' @ g` gives both, and `g` is read once.

Precondition: Gemm(a, g, transA=1) where `a` is flattened from a concatenation along the last axis that nobody else
reads, and a ReduceSum over all axes but the last of what `g` is flattened from.

Postcondition: one product, and two slices of it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.base import SitesAroundLoops


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A product and a sum over the same rows."""

    product: std.Gemm
    total: std.ReduceSum
    concat: std.Concat
    rows: ir.Value

    @property
    def node(self) -> ir.Node:
        """The sum."""
        return self.total.node


class BiasFusion(SitesAroundLoops[_Pair]):
    """Merges sums over rows into products that read the same rows."""

    def sites(self, graph: ir.Graph) -> list[_Pair]:
        """Sums beside products that read the same rows and could take them in."""
        places = {node: place for place, node in enumerate(graph)}
        pairs = [pair for node in places if (pair := _pair(self.facts, node, places)) is not None]
        # Several products may read the rows of one sum: the first takes it in.
        return list({pair.node: pair for pair in reversed(pairs)}.values())

    def promise(self, site: _Pair) -> str:
        """Said of the sum."""
        return f"to be a row of '{node_label(site.product.node)}', got a sum"

    def write(self, graph: ir.Graph, pair: _Pair) -> None:
        """Makes a sum a row of its product."""
        space = self.context.space
        scope = pair.product.node.name or "bias"
        maker, dtype = pair.rows.producer(), self.facts.dtype(pair.rows)
        assert maker is not None
        assert dtype is not None
        before = Builder(space, graph, before=pair.concat.node, scope=scope)
        lengths = before.slice(before.op(std.Shape, pair.concat.parts[0]), 0, 2, 0)
        sizes = before.op(std.Concat, lengths, before.ints(1), axis=0)
        ones = before.op(std.ConstantOfShape, sizes, value=ir.Tensor(np.ones(1, dtype.numpy()), dtype=dtype))
        wide = before.op(std.Concat, *pair.concat.parts, ones, axis=2)
        after = Builder(space, graph, after=maker, scope=scope)
        product = after.op(
            std.Gemm, after.op(std.Flatten, wide, axis=2), after.op(std.Flatten, pair.rows, axis=2), transA=1
        )
        weights = after.slice(product, 0, -1, 0)
        bias = after.slice(product, -1, END, 0)
        bias = after.unsqueeze(bias, 0) if pair.total.keepdims else after.squeeze(bias, 0)
        for old, new in ((pair.product, weights), (pair.total, bias)):
            replace(old.output, new, space)
            detach(old.node)


def _pair(facts: Facts, node: ir.Node, places: dict[ir.Node, int]) -> _Pair | None:
    product = std.Gemm.of(node, facts)
    if product is None or product.c is not None or not product.trans_a or product.trans_b or product.alpha != 1.0:
        return None
    left, rows = _flattened(facts, product.a), _flattened(facts, product.b)
    if left is None or rows is None or facts.dtype(rows) is None:
        return None
    concat, maker = facts.maker(left), rows.producer()
    if not isinstance(concat, std.Concat) or concat.axis != 2 or concat.node not in places or maker not in places:
        return None
    if len(left.uses()) != 1 or places[concat.node] > places[maker]:
        return None
    totals = [std.ReduceSum.of(user, facts) for user, _ in rows.uses() if user in places]
    # Over time and batch.
    sums = [total for total in totals if total is not None and total.data is rows and set(total.axes or ()) == {0, 1}]
    return _Pair(product, sums[0], concat, rows) if len(sums) == 1 else None


def _flattened(facts: Facts, value: ir.Value) -> ir.Value | None:
    """The [T, B, N] that a matrix [T*B, N] is flattened from."""
    flatten = facts.maker(value)
    if not isinstance(flatten, std.Flatten) or flatten.axis != 2 or flatten.rank() != 3:
        return None
    return flatten.data
