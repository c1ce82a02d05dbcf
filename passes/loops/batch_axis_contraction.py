"""Batch axis contraction: a batch of products that is summed over becomes one product with a longer inner axis.

Precondition: any model. `ReduceSum(a @ b, axis)`, where the axis is a batch axis of both factors, is the product of `a`
and `b` with that axis laid beside the inner one: `[M, T*K] @ [T*K, N]` instead of T products `[M, K] @ [K, N]` whose
results, T times as large, are added up. A sum over a transposed value is taken before it is transposed.

A sum over axes that lie far apart is taken over the outer ones first: the runtime has fast loops only for axes in one
or two groups. Integers are left alone.

Postcondition: no sum over a batch axis of a product that nothing else reads.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

from lstm_lower.dtypes import is_floating
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach, lone_reader
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import Shape
from lstm_lower.passes.loops.views.loop_pass import LoopPass, OnGraphs

# onnxruntime's fast reductions: the axes summed over and the others change places at most this often.
FASTEST_CHANGES = 2
# The rank of a stack of matrices with no other axes.
MATRICES = 3


class BatchAxisContraction(OnGraphs, LoopPass):
    """Merges summed batch axes of products into their inner axis, at every nesting level."""

    def graph(self, graph: ir.Graph) -> bool:
        """Contracts in a graph and its subgraphs."""
        modified = False
        for node in list(graph):
            for subgraph in subgraphs_of(node):
                modified |= self.graph(subgraph)
            total = std.ReduceSum.of(node, self.facts)
            if total is not None and node.graph is not None:
                modified |= self._sum(graph, total)
        return modified

    def _sum(self, graph: ir.Graph, total: std.ReduceSum) -> bool:
        value, axes, dtype = total.data, sorted(total.axes or ()), total.dtype()
        # onnxruntime sums up integers as doubles, which do not wrap: what overflows depends on the order.
        if total.rank() is None or not axes or not is_floating(dtype):
            return False
        e = Builder(self.context.space, graph, before=total.node, scope=total.node.name or self.name)
        lone = lone_reader(value) is total.node
        result = None
        match self.facts.maker(value) if lone else None:
            case std.Transpose() as turned:
                result = _before_transpose(e, total, turned, axes)
            case std.MatMul() as product:
                result = _merged(e, total, product, axes)
        if result is None:
            result = _one_after_the_other(e, total, axes)
        if result is None:
            return False
        e.replace(total.output, result)
        detach(total.node)
        return True


def inner_beside(e: Builder, value: ir.Value, axis: int, inner: int) -> ir.Value:
    """A stack of matrices with one of the axes before the matrices merged into the inner one, counting slower.

    Args:
        e: emits.
        value: of known rank.
        axis: the axis to merge; where there are more axes, not of size 0.
        inner: the last axis of a left factor, the last but one of a right factor.
    """
    shape = e.facts.shape(value)
    assert shape is not None
    rank = len(shape)
    order = [other for other in range(rank) if other != axis]
    order.insert(order.index(inner), axis)
    turned = e.transpose(value, order)
    place = order.index(inner)
    if rank == MATRICES:
        return e.op(std.Flatten, turned, axis=1 if inner == rank - 1 else 2)
    both = [shape[axis], shape[inner]]
    known = [dim for dim in both if isinstance(dim, int)]
    size = e.ints(known[0] * known[1]) if len(known) == 2 else e.op(std.Mul, e.size(value, axis), e.size(value, inner))
    # A 0 copies the size in its place, also where that is 0, with which a -1 would not go together.
    sizes = e.concat([e.ints(*[0] * (place - 1), 1), size, e.ints(*[0] * (rank - 1 - place))], axis=0)
    return e.squeeze(e.op(std.Reshape, turned, sizes), place - 1)


def _before_transpose(e: Builder, total: std.ReduceSum, turned: std.Transpose, axes: list[int]) -> ir.Value | None:
    perm = turned.perm
    if perm is None:
        return None
    gone = [perm[axis] for axis in axes]
    result = e.reduce(std.ReduceSum, turned.data, gone, keepdims=total.keepdims)
    left = [axis for axis in range(len(perm)) if total.keepdims or axis not in gone]
    return e.transpose(result, [left.index(axis) for axis in perm if axis in left])


def _merged(e: Builder, total: std.ReduceSum, product: std.MatMul, axes: list[int]) -> ir.Value | None:
    a, b = product.shape(0), product.shape(1)
    if a is None or b is None or min(len(a), len(b)) < 3:
        return None
    rank = max(len(a), len(b))
    batch = [axis - rank for axis in axes if axis < rank - 2]
    merged = next((axis for axis in batch if _in_both(a, b, axis)), None)
    if merged is None:
        return None
    factors = [
        inner_beside(e, value, len(shape) + merged, len(shape) - which)
        for value, shape, which in ((product.a, a, 1), (product.b, b, 2))
    ]
    result = e.op(std.MatMul, *factors)
    if total.keepdims:
        # The merged axis is gone from the product; the sum keeps it with size 1.
        result = e.unsqueeze(result, rank + merged)
    # From the front: onnxruntime's ReduceSum keeps an axis of size 0 that is counted from the end.
    rest = [axis for axis in axes if axis - rank != merged]
    if not total.keepdims:
        rest = [axis - 1 if axis - rank > merged else axis for axis in rest]
    return e.reduce(std.ReduceSum, result, rest, keepdims=total.keepdims)


def _one_after_the_other(e: Builder, total: std.ReduceSum, axes: list[int]) -> ir.Value | None:
    """A sum over axes that lie apart, the outer ones first; `None` where the runtime is as fast over all at once."""
    shape = total.shape()
    assert shape is not None
    summed = [axis in axes for axis in range(len(shape)) if shape[axis] != 1]
    changes = sum(before != after for before, after in itertools.pairwise(summed))
    if changes <= FASTEST_CHANGES:
        return None
    first = [axis for axis in axes if all(other in axes for other in range(axes[0], axis))]
    rest = [axis for axis in axes if axis not in first]
    result = e.reduce(std.ReduceSum, total.data, first, keepdims=True)
    result = e.reduce(std.ReduceSum, result, rest, keepdims=True)
    return result if total.keepdims else e.squeeze(result, *axes)


def _in_both(a: Shape, b: Shape, axis: int) -> bool:
    """Whether an axis, counted from the end, is a batch axis that both factors have in full, fit for `inner_beside`."""
    if min(len(a), len(b)) < -axis or a[axis] in (0, 1) or a[axis] != b[axis]:
        return False
    return isinstance(a[axis], int) or len(a) == len(b) == MATRICES
