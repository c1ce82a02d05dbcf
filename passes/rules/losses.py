"""Lowering of the softmax losses, which return their gradient beside the loss.

Symbols: B batch, C classes, T time steps, N labels in all.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp
from lstm_lower.passes.formulas.indices import from_front, within
from lstm_lower.passes.formulas.sizes import up_to, with_size
from lstm_lower.passes.rules.registry import Node, lowers


def _shifted(logits: Expr) -> Expr:
    """Logits less their largest, so that no exponential overflows."""
    return logits - logits.reduce(std.ReduceMax, 1)


def _broadcast(pair: list[Dim]) -> Dim:
    large = [dim for dim in pair if dim != 1]
    sizes = [dim for dim in large if isinstance(dim, int)]
    if sizes or not large:
        return sizes[0] if sizes else 1
    return large[0] if all(dim == large[0] for dim in large) else None


class SoftmaxCrossEntropyWithLogits(RawOp):
    """Cross entropy of softmax(features) against a distribution, with its gradient; the operands broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds B and C, which the two operands' shapes broadcast to."""
        shapes = []
        for name in ("features", "labels"):
            shape = call.operands[name].shape
            if shape is None:
                return
            if len(shape) != 2:
                raise call.error(name, "rank 2 [B, C]", f"rank {len(shape)}")
            shapes.append(shape)
        for axis, symbol in enumerate("BC"):
            pair = [shape[axis] for shape in shapes]
            known = [dim for dim in pair if isinstance(dim, int) and dim != 1]
            if len(set(known)) > 1:
                raise call.error("labels", f"axis {axis} of size 1 or {pair[0]} (as features)", pair[1])
            call.unifier.sizes[symbol] = _broadcast(pair)


@lowers(SoftmaxCrossEntropyWithLogits)
def softmax_cross_entropy(n: Node, _: Builder) -> list[Expr]:
    """With shifted logits s: sum(labels (log sum exp s - s)), and exp s / sum exp s - labels."""
    logits = n.features
    if not _same_shape(logits, n.labels):
        # A row of logits, or a single logit, may stand for many.
        logits = logits.builder.op(std.Expand, logits, n.labels.sizes())
    shifted = _shifted(logits)
    exponentials = shifted.exp()
    total = exponentials.sum(1, keepdims=True)
    return [
        (n.labels * (total.log() - shifted)).sum(1),
        exponentials / total - n.labels,
    ]


def _same_shape(a: Expr, b: Expr) -> bool:
    return a.shape is not None and a.shape == b.shape and None not in a.shape


def _row_by_row(n: Node, b: Builder) -> Expr:
    """As many labels as rows of logits: a single one would be broadcast."""
    labels: Expr = n.labels
    rows, count = n.features.shape, labels.shape
    if rows is not None and count is not None and rows[0] == count[0]:
        return labels
    return with_size(labels, 0, b.sizes([n.features.size(0)]))


class SparseSoftmaxCrossEntropyWithLogits(RawOp, features="B C", labels="B"):
    """Cross entropy of softmax(features) against class numbers, with its gradient; a label outside 0..C-1 fails."""

    indexes = ("labels", "C")


@lowers(SparseSoftmaxCrossEntropyWithLogits)
def sparse_softmax_cross_entropy(n: Node, b: Builder) -> list[Expr]:
    """The same with one class number per row; one that is no class fails, as in TensorFlow's CPU kernel."""
    classes = n.size("C")
    label = within(from_front(_row_by_row(n, b)), classes).unsqueeze(1)
    hot = label.equals(up_to(b, classes).cast(label.dtype))
    shifted = _shifted(n.features)
    exponentials = shifted.exp()
    total = exponentials.sum(1, keepdims=True)
    picked = b.where(hot, shifted, 0).sum(1, keepdims=True)
    return [
        (total.log() - picked).squeeze(1),
        exponentials / total - hot.cast(shifted.dtype),
    ]
