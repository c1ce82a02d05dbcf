"""A bias gradient from the weight gradient's product: a sum over rows becomes one more row of a product.

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
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import END, Emitter, replace
from lstm_lower.graph.values import stated
from lstm_lower.passes.infer import attribute, constant_of, shape_of
from lstm_lower.passes.loops.views.base import AroundLoops, LoopPass
from lstm_lower.passes.loops.views.dependence import rank_of


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A product and a sum over the same rows."""

    product: ir.Node
    total: ir.Node
    concat: ir.Node
    rows: ir.Value


class FuseBias(AroundLoops, LoopPass):
    """Merges sums over rows into products that read the same rows."""

    name = "fuse_bias"

    def around(self, graph: ir.Graph) -> bool:
        """Merges the sums of one graph into its products."""
        places = {node: place for place, node in enumerate(graph)}
        found = [pair for node in places if (pair := _pair(node, places)) is not None]
        # Several products may read the rows of one sum: the first takes it in.
        pairs = {pair.total: pair for pair in reversed(found)}.values()
        for pair in pairs:
            self._merge(graph, pair)
        return bool(pairs)

    def _merge(self, graph: ir.Graph, pair: _Pair) -> None:
        space = self.context.space
        scope = pair.product.name or "bias"
        maker = pair.rows.producer()
        assert maker is not None
        assert pair.rows.dtype is not None
        before = Emitter(space, graph, before=pair.concat, scope=scope)
        first = pair.concat.inputs[0]
        assert first is not None
        sizes = before.op(std.Concat, before.slice(before.op(std.Shape, first), 0, 2, 0), before.ints(1), axis=0)
        one = ir.Tensor(np.ones(1, pair.rows.dtype.numpy()), dtype=pair.rows.dtype)
        ones = before.op(std.ConstantOfShape, sizes, value=one)
        known = shape_of(first)
        if known is not None:
            ones.shape = stated((*known[:2], 1))
        wide = before.op(std.Concat, *pair.concat.inputs, ones, axis=2)
        after = Emitter(space, graph, after=maker, scope=scope)
        product = after.op(
            std.Gemm, after.op(std.Flatten, wide, axis=2), after.op(std.Flatten, pair.rows, axis=2), transA=1
        )
        weights = after.slice(product, 0, -1, 0)
        weights.shape = pair.product.outputs[0].shape
        bias = after.slice(product, -1, END, 0)
        bias = (
            after.unsqueeze(bias, 0)
            if attribute(pair.total, "keepdims", 1)
            else after.op(std.Squeeze, bias, after.ints(0))
        )
        bias.shape = pair.total.outputs[0].shape
        for node, new in ((pair.product, weights), (pair.total, bias)):
            replace(node.outputs[0], new, space)
            detach(node)


def _pair(node: ir.Node, places: dict[ir.Node, int]) -> _Pair | None:
    if not std.Gemm.matches(node) or len(node.inputs) != 2:
        return None
    if not attribute(node, "transA", 0) or attribute(node, "transB", 0) or attribute(node, "alpha", 1.0) != 1.0:
        return None
    left, rows = (_flattened(value) for value in node.inputs)
    concat = left.producer() if left is not None else None
    if left is None or rows is None or concat not in places or rows.producer() not in places or rows.dtype is None:
        return None
    assert concat is not None
    maker = rows.producer()
    assert maker is not None
    if not std.Concat.matches(concat) or attribute(concat, "axis", 0) not in (2, -1):
        return None
    if len(left.uses()) != 1 or places[concat] > places[maker]:
        return None
    sums = [user for user, _ in rows.uses() if user in places and _sums_rows(user, rows)]
    return _Pair(node, sums[0], concat, rows) if len(sums) == 1 else None


def _flattened(value: ir.Value | None) -> ir.Value | None:
    """The [T, B, N] that a matrix [T*B, N] is flattened from."""
    node = value.producer() if value is not None else None
    if not std.Flatten.matches(node) or attribute(node, "axis", 1) != 2:
        return None
    source = node.inputs[0]
    return source if rank_of(source) == 3 else None


def _sums_rows(node: ir.Node, rows: ir.Value) -> bool:
    """Whether a node sums [T, B, N] over time and batch."""
    if not std.ReduceSum.matches(node) or node.inputs[0] is not rows or len(node.inputs) < 2:
        return False
    axes = constant_of(node.inputs[1])
    return axes is not None and sorted(int(axis) % 3 for axis in axes.reshape(-1)) == [0, 1]
