"""Lowering of the softmax losses, which return their gradient beside the loss."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers


def _shifted(logits: Expr) -> Expr:
    """Logits less their largest, so that no exponential overflows."""
    return logits - logits.reduce(std.ReduceMax, 1)


@lowers(SoftmaxCrossEntropyWithLogits)
def softmax_cross_entropy(n: Node) -> dict[str, Expr]:
    """With shifted logits s: sum(labels (log sum exp s - s)), and exp s / sum exp s - labels."""
    logits = n.features
    if not _same_shape(logits, n.labels):
        # A row of logits, or a single logit, may stand for many.
        logits = logits.builder.op(std.Expand, logits, n.labels.sizes())
    shifted = _shifted(logits)
    exponentials = shifted.exp()
    total = exponentials.sum(1, keepdims=True)
    return {
        "loss": (n.labels * (total.log() - shifted)).sum(1),
        "backprop": exponentials / total - n.labels,
    }


def _same_shape(a: Expr, b: Expr) -> bool:
    return a.shape is not None and a.shape == b.shape and None not in a.shape


@lowers(SparseSoftmaxCrossEntropyWithLogits)
def sparse_softmax_cross_entropy(n: Node) -> dict[str, Expr]:
    """The same with one class number per row.

    TensorFlow's GPU kernel makes the loss and the gradient of a row NaN when its label is no class, its CPU kernel
    stops; a graph cannot stop, so NaN it is.
    """
    b = n.builder
    classes = n.size("C")
    label = n.labels.unsqueeze(1)
    numbers = up_to(b, _scalar(classes, label))
    outside = (label < 0) | (label >= _scalar(classes, label))
    penalty = b.where(outside, n.features.like(float("nan")), 0)
    hot = label.equals(numbers)
    shifted = _shifted(n.features)
    exponentials = shifted.exp()
    total = exponentials.sum(1, keepdims=True) + penalty
    picked = b.where(hot, shifted, 0).sum(1, keepdims=True)
    return {
        "loss": (total.log() - picked).squeeze(1),
        "backprop": exponentials / total - hot.cast(shifted.dtype),
    }


def _scalar(size: int | Expr, like: Expr) -> Expr:
    """A size as a scalar of another expression's dtype."""
    if isinstance(size, int):
        return like.like(size)
    return size.reshape().cast(like.dtype)
