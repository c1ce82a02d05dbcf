"""Lowering of onnxruntime-training's ops that move, look up and sum."""

from __future__ import annotations

from typing import Any

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import OpDef
from lstm_lower.ops import ort_arrays as ops
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.indexing import broadcast_gradient_args
from lstm_lower.passes.rules.registry import Node, lowers, rank_of

lowers(ops.BroadcastGradientArgs)(broadcast_gradient_args)


# Gradient -> the operator that looks up, and its operands behind the first.
_LOOKING: dict[type[OpDef], tuple[type[std.Standard], tuple[str, ...]]] = {
    ops.GatherGrad: (std.Gather, ("indices",)),
    ops.GatherElementsGrad: (std.GatherElements, ("indices",)),
    ops.GatherNDGrad: (std.GatherND, ("indices",)),
    ops.SliceGrad: (std.Slice, ("starts", "ends", "axes", "steps")),
}


def zeros(n: Node, b: Builder, sizes: Expr) -> Expr:
    """Zeros of a shape, which stand for an operand of which nothing but the shape matters."""
    return b.fill(0, sizes, n.dY.dtype)


@lowers(*_LOOKING)
def looking_grad(n: Node, b: Builder) -> Expr:
    """The gradient of looking up in zeros."""
    operator, names = _LOOKING[n.op]
    x = zeros(n, b, n.shape)
    if x.shape is None and (rank := _rank(n)) is not None:
        b.set_shape(x, [None] * rank)
    found = b.op(operator, x, *(n.get(name, None) for name in names), **attributes(n))
    return pullback(b, [found], [x], [n.dY])[0]


def _rank(n: Node) -> int | None:
    """The operand's rank as far as those of its gradient and of the places tell it."""
    if n.dY.shape is None or n.op is ops.GatherNDGrad:
        return None
    if n.op is not ops.GatherGrad:
        return len(n.dY.shape)
    return None if n.indices.shape is None else len(n.dY.shape) - len(n.indices.shape) + 1


def attributes(n: Node) -> dict[str, Any]:
    """The node's own attributes, for the forward operator."""
    return dict(n.node.attributes)


@lowers(ops.ConcatTraining)
def concat_training(n: Node, b: Builder) -> list[Expr]:
    """Joined, and the sizes along the axis."""
    parts = n.all_moved("inputs")
    return [
        b.concat(parts, n.axis),
        b.sizes([part.size(n.axis) for part in parts]),
    ]


@lowers(ops.SplitTraining)
def split_training(n: Node, b: Builder) -> list[Expr]:
    """Divided by the sizes."""
    return b.ops(std.Split, n.moved("input"), n.split, outputs=len(n.node.outputs), axis=n.axis)


@lowers(ops.ReduceSumTraining)
def reduce_sum_training(n: Node, b: Builder) -> Expr:
    """ONNX's own sum."""
    return b.op(std.ReduceSum, n.data, n.axes, **attributes(n))


@lowers(ops.FusedMatMul, ops.TransposeMatMul)
def fused_mat_mul(n: Node, _: Builder) -> Expr:
    """A product of matrices turned before."""
    product = _turned(n, "A") @ _turned(n, "B")
    return product if n.alpha == 1 else product * n.alpha


def _turned(n: Node, name: str) -> Expr:
    """An operand as it is multiplied: of a batch axis among the last ones first, then of the matrices' own."""
    x = n.operand(name)
    if not (getattr(n, f"trans{name}") or n.get(f"transBatch{name}", 0)):
        return x
    order = list(range(rank_of(n, name, x)))
    if len(order) < 2:
        # A vector stays what it is.
        return x
    if n.get(f"transBatch{name}", 0):
        order = [*order[1:-1], 0, order[-1]]
    if getattr(n, f"trans{name}"):
        order[-2:] = order[:-3:-1]
    return x.transpose(*order)


@lowers(ops.ReduceAllL2)
def reduce_all_l2(n: Node, b: Builder) -> Expr:
    """The squares' sums are scalars."""
    first, *others = [b.op(std.ReduceSumSquare, x, keepdims=0) for x in n.variadic("X")]
    return sum(others, first).sqrt()
