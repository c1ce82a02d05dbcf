"""Contraction: a batch of products that is summed over becomes one product with a longer inner axis.

Precondition: any model. `ReduceSum(a @ b, axis)`, where the axis is a batch axis of both factors, is the product of `a`
and `b` with that axis laid beside the inner one: `[M, T*K] @ [T*K, N]` instead of T products `[M, K] @ [K, N]` whose
results, T times as large, are added up. A sum over a transposed value is taken before it is transposed.

A sum over axes that lie far apart is taken over the outer ones first: the runtime has fast loops only for axes in one
or two groups.

Postcondition: no sum over a batch axis of a product that nobody else reads.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Emitter, replace
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.infer import attribute, constant_of, shape_of
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.dependence import rank_of
from lstm_lower.passes.loops.views.loop import Loop

# onnxruntime's fast reductions: the axes summed over and the others change places at most this often.
FASTEST_CHANGES = 2
# The rank of a stack of matrices with no other axes.
MATRICES = 3


class Contract(LoopPass):
    """Merges summed batch axes of products into their inner axis, at every nesting level."""

    name = "contract"

    def run(self, model: ir.Model) -> bool:
        """Contracts in the whole model."""
        return self._graph(model.graph)

    def rewrite(self, loop: Loop) -> bool:
        """Contracts in one loop's body."""
        return self._graph(loop.body)

    def _graph(self, graph: ir.Graph) -> bool:
        modified = False
        for node in list(graph):
            for subgraph in subgraphs_of(node):
                modified |= self._graph(subgraph)
            if std.ReduceSum.matches(node) and node.graph is not None:
                modified |= self._sum(graph, node)
        return modified

    def _sum(self, graph: ir.Graph, node: ir.Node) -> bool:
        value = node.inputs[0]
        inner = value.producer() if value is not None else None
        axes = _summed_axes(node)
        if value is None or axes is None:
            return False
        editor = Emitter(self.context.space, graph, before=node, scope=node.name or "contract")
        lone = len(value.uses()) == 1 and not value.is_graph_output() and value.graph is graph
        result = None
        if lone and inner is not None and inner.domain == "" and inner.op_type == "Transpose":
            result = _before_transpose(editor, node, inner, axes)
        elif lone and inner is not None and inner.domain == "" and inner.op_type == "MatMul":
            result = _merged(editor, node, inner, axes)
        if result is None:
            result = _one_after_the_other(editor, node, axes)
        if result is None:
            return False
        if result.shape is None:
            result.shape = node.outputs[0].shape
        replace(node.outputs[0], result, self.context.space)
        detach(node)
        return True


def inner_beside(e: Emitter, value: ir.Value, axis: int, inner: int) -> ir.Value:
    """A stack of matrices with one of the axes before the matrices merged into the inner one, counting slower.

    Args:
        e: emits.
        value: of known rank.
        axis: the axis to merge; where there are more axes, not of size 0.
        inner: the last axis of a left factor, the last but one of a right factor.
    """
    shape = shape_of(value)
    assert shape is not None
    rank = len(shape)
    order = [other for other in range(rank) if other != axis]
    order.insert(order.index(inner), axis)
    turned = value if order == sorted(order) else e.op(std.Transpose, value, perm=order)
    place = order.index(inner)
    if rank == MATRICES:
        return e.op(std.Flatten, turned, axis=1 if inner == rank - 1 else 2)
    both = [shape[axis], shape[inner]]
    known = [dim for dim in both if isinstance(dim, int)]
    size = e.ints(known[0] * known[1]) if len(known) == 2 else e.op(std.Mul, e.size(value, axis), e.size(value, inner))
    # A 0 copies the size in its place, also where that is 0, with which a -1 would not go together.
    sizes = e.op(std.Concat, e.ints(*[0] * (place - 1), 1), size, e.ints(*[0] * (rank - 1 - place)), axis=0)
    return e.squeeze(e.op(std.Reshape, turned, sizes), place - 1)


def _summed_axes(node: ir.Node) -> list[int] | None:
    rank = rank_of(node.inputs[0])
    given = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if rank is None or given is None or given.size == 0:
        return None
    return sorted({int(axis) % rank for axis in given.reshape(-1)})


def _before_transpose(e: Emitter, node: ir.Node, inner: ir.Node, axes: list[int]) -> ir.Value | None:
    rank = rank_of(inner.inputs[0])
    if rank is None:
        return None
    order = list(attribute(inner, "perm", None) or reversed(range(rank)))
    keepdims = bool(attribute(node, "keepdims", 1))
    total = e.op(std.ReduceSum, inner.inputs[0], e.ints(*(order[axis] for axis in axes)), keepdims=int(keepdims))
    if not keepdims:
        gone = [order[axis] for axis in axes]
        left = [axis for axis in range(rank) if axis not in gone]
        order = [left.index(axis) for axis in order if axis not in gone]
    if order == sorted(order):
        return total
    return e.op(std.Transpose, total, perm=order)


def _merged(e: Emitter, node: ir.Node, inner: ir.Node, axes: list[int]) -> ir.Value | None:
    a, b = inner.inputs
    shapes = shape_of(a), shape_of(b)
    if a is None or b is None or shapes[0] is None or shapes[1] is None:
        return None
    rank = max(len(shapes[0]), len(shapes[1]))
    batch = [axis - rank for axis in axes if axis < rank - 2]
    merged = next((axis for axis in batch if _in_both(shapes, axis)), None)
    if merged is None or min(len(shape) for shape in shapes if shape is not None) < 3:
        return None
    factors = [
        inner_beside(e, value, len(shape) + merged, len(shape) - which)
        for value, shape, which in ((a, shapes[0], 1), (b, shapes[1], 2))
    ]
    result = e.op(std.MatMul, *factors)
    keepdims = bool(attribute(node, "keepdims", 1))
    if keepdims:
        # The merged axis is gone from the product; the sum keeps it with size 1.
        result = e.op(std.Unsqueeze, result, e.ints(rank + merged))
    # From the front: onnxruntime's ReduceSum keeps an axis of size 0 that is counted from the end.
    rest = [axis for axis in axes if axis - rank != merged]
    if rest:
        if not keepdims:
            rest = [axis - 1 if axis - rank > merged else axis for axis in rest]
        result = e.op(std.ReduceSum, result, e.ints(*rest), keepdims=int(keepdims))
    return result


def _one_after_the_other(e: Emitter, node: ir.Node, axes: list[int]) -> ir.Value | None:
    """A sum over axes that lie apart, the outer ones first; `None` where the runtime is as fast over all at once."""
    shape = shape_of(node.inputs[0])
    assert shape is not None
    summed = [axis in axes for axis in range(len(shape)) if shape[axis] != 1]
    changes = sum(before != after for before, after in itertools.pairwise(summed))
    if changes <= FASTEST_CHANGES:
        return None
    first = [axis for axis in axes if all(other in axes for other in range(axes[0], axis))]
    rest = [axis for axis in axes if axis not in first]
    total = e.op(std.ReduceSum, node.inputs[0], e.ints(*first), keepdims=1)
    total = e.op(std.ReduceSum, total, e.ints(*rest), keepdims=1)
    return total if attribute(node, "keepdims", 1) else e.op(std.Squeeze, total, e.ints(*axes))


def _in_both(shapes: tuple[tuple[Dim, ...] | None, ...], axis: int) -> bool:
    """Whether an axis, counted from the end, is a batch axis that both factors have in full, fit for `inner_beside`."""
    dims = [shape[axis] if shape is not None and -axis <= len(shape) else 1 for shape in shapes]
    if dims[0] is None or dims[0] in (0, 1) or dims[0] != dims[1]:
        return False
    return isinstance(dims[0], int) or all(shape is not None and len(shape) == MATRICES for shape in shapes)
