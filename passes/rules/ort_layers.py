"""Lowering of onnxruntime-training's gradients of layers and losses: gradients of the forward operators.

What the forward pass saved beside its operands, means and deviations, is computed again: it merges with what the
forward pass computes.
"""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.ops import ort_layers as ops
from lstm_lower.passes.formulas.indices import from_front, within
from lstm_lower.passes.formulas.rows import add_rows, reshape_to
from lstm_lower.passes.formulas.sizes import Size, up_to
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.ort_arrays import attributes, zeros
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _gradients(
    n: Node, b: Builder, operator: type[std.Standard], *operands: Expr | None, **extra: object
) -> list[Expr]:
    """The gradients of the operands that there are, through the operator with the node's attributes."""
    y = b.op(operator, *operands, **{**attributes(n), **extra})
    return pullback(b, [y], [x for x in operands if x is not None], [n.dY])


def _check_rank(n: Node) -> None:
    if not n.kernel_shape:
        rank_of(n, "W", n.W)


@lowers(ops.ConvGrad)
def conv_grad(n: Node, b: Builder) -> list[Expr]:
    """Whatever the bias was, its gradient is the same."""
    _check_rank(n)
    bias = b.fill(0, [n.W.size(0)], n.W.dtype)
    return _gradients(n, b, std.Conv, n.X, n.W, bias)


@lowers(ops.ConvTransposeGrad)
def conv_transpose_grad(n: Node, b: Builder) -> list[Expr]:
    """As Conv's; a weight has the channels of the result on its second axis."""
    _check_rank(n)
    bias = b.fill(0, [n.W.size(1) * n.group], n.W.dtype)
    return _gradients(n, b, std.ConvTranspose, n.X, n.W, bias)


@lowers(ops.AveragePoolGrad)
def average_pool_grad(n: Node, b: Builder) -> Expr:
    """The gradient of the averages of zeros."""
    x = zeros(n, b, _image_sizes(n, b))
    return _gradients(n, b, std.AveragePool, x)[0]


@lowers(ops.MaxPoolGrad)
def max_pool_grad(n: Node, b: Builder) -> Expr:
    """Each element is added at its place among all of the image's elements."""
    sizes = _image_sizes(n, b)
    count = b.op(std.ReduceProd, sizes, keepdims=1)
    total = add_rows(n.dY.reshape(-1), n.Indices.reshape(-1), count)
    return reshape_to(total, sizes)


def _image_sizes(n: Node, b: Builder) -> Expr:
    """The shape of the image: that of examples and channels is dY's, what lies behind the graph declares."""
    declared = n.node.outputs[0].shape
    inner = [] if declared is None else [size for size in list(declared)[2:] if isinstance(size, int)]
    if declared is None or len(inner) != len(declared) - 2:
        got = "none" if declared is None else f"{list(declared)}"
        raise n.unsupported("dX", "a declared shape whose image sizes are known", got)
    sizes: list[Size] = [n.dY.size(0), n.dY.size(1), *inner]
    return b.sizes(sizes)


@lowers(ops.ResizeGrad)
def resize_grad(n: Node, b: Builder) -> Expr:
    """The gradient of the image alone."""
    roi, scales = n.get("roi", None), n.get("scales", None)
    y = b.op(std.Resize, n.X, roi, scales, **attributes(n))
    return pullback(b, [y], [n.X], [n.dY])[0]


@lowers(ops.LayerNormalizationGrad)
def layer_normalization_grad(n: Node, b: Builder) -> list[Expr]:
    """Whatever the bias was, its gradient is the same."""
    bias = b.zeros_like(n.scale)
    return _gradients(n, b, std.LayerNormalization, n.X, n.scale, bias)


@lowers(ops.SimplifiedLayerNormalization)
def simplified_layer_normalization(n: Node, b: Builder) -> list[Expr]:
    """The inverse of the root mean square leaves the op, too."""
    y, inverse = _simplified(n, b)
    return [y, inverse]


@lowers(ops.SimplifiedLayerNormalizationGrad)
def simplified_layer_normalization_grad(n: Node, b: Builder) -> list[Expr]:
    """The gradient of the formula."""
    y, _ = _simplified(n, b)
    return pullback(b, [y], [n.X, n.scale], [n.dY])


def _simplified(n: Node, b: Builder) -> tuple[Expr, Expr]:
    axis = n.axis
    if axis >= 0:
        axis -= rank_of(n, "X", n.X)
    squares = (n.X * n.X).reduce(std.ReduceMean, list(range(axis, 0)))
    inverse = b.op(std.Reciprocal, (squares + n.epsilon).sqrt())
    return n.X * inverse * n.scale, inverse


@lowers(ops.BatchNormInternal)
def batch_norm_internal(n: Node, b: Builder) -> list[Expr]:
    """ONNX's own, and the statistics of the batch from its running ones."""
    operands = (n.X, n.scale, n.B, n.input_mean, n.input_var)
    y, mean, variance = b.ops(std.BatchNormalization, *operands, outputs=3, **{**attributes(n), "training_mode": 1})
    axes = [axis for axis in range(rank_of(n, "X", n.X)) if axis != 1]
    center = n.X.reduce(std.ReduceMean, axes)
    spread = ((n.X - center) * (n.X - center)).reduce(std.ReduceMean, axes)
    inverse = b.op(std.Reciprocal, (spread + n.epsilon).sqrt())
    return [
        y,
        mean,
        variance,
        center.reshape(-1),
        inverse.reshape(-1),
    ]


@lowers(ops.BatchNormalizationGrad)
def batch_normalization_grad(n: Node, b: Builder) -> list[Expr]:
    """The gradient of batch normalization in training; it does not depend on the running statistics."""
    nothing = b.zeros_like(n.scale)
    operands = (n.X, n.scale, nothing, nothing, nothing)
    y, *_ = b.ops(std.BatchNormalization, *operands, outputs=3, **attributes(n), training_mode=1)
    return pullback(b, [y], operands[:3], [n.dY])


@lowers(ops.SoftmaxCrossEntropyLossGrad, ops.SoftmaxCrossEntropyLossInternalGrad)
def softmax_cross_entropy_loss_grad(n: Node, b: Builder) -> Expr:
    """Logarithms of probabilities are scores, too, and their probabilities are the same."""
    loss, _ = _cross_entropy(n, b, n.log_prob, n.label, n.get("weight", None))
    return pullback(b, [loss], [n.log_prob], [n.dY])[0]


@lowers(ops.SoftmaxCrossEntropyLossInternal)
def softmax_cross_entropy_loss_internal(n: Node, b: Builder) -> list[Expr]:
    """The formula."""
    loss, log_prob = _cross_entropy(n, b, n.scores, n.labels, n.get("weights", None))
    return [loss, log_prob]


def _cross_entropy(n: Node, b: Builder, scores: Expr, labels: Expr, weights: Expr | None) -> tuple[Expr, Expr]:
    """The loss, and the logarithms of the probabilities; a label that is ignored weighs nothing, others are classes."""
    ignored = n.get("ignore_index", -1)
    ignored = ignored.cast(labels.dtype).reshape() if isinstance(ignored, Expr) else labels.like(ignored)
    rank = rank_of(n, "the scores", scores)
    log_prob = b.op(std.LogSoftmax, scores, axis=1)
    chosen = ~labels.equals(ignored)
    labels = within(from_front(b.where(chosen, labels, 0)), scores.size(1))
    classes = up_to(b, scores.size(1)).cast(labels.dtype).unsqueeze(*range(1, rank - 1))
    found = b.where(classes.equals(labels.unsqueeze(1)), log_prob, 0).sum(1)
    weight = b.op(std.Expand, scores.like(1), labels.sizes())
    weight = weight if weights is None else weights.take(labels)
    weight = b.where(chosen, weight, 0)
    loss = -(found * weight)
    if n.reduction != "none":
        loss = b.op(std.ReduceSum, loss, keepdims=0)
    if n.reduction == "mean":
        loss = loss / b.op(std.ReduceSum, weight, keepdims=0)
    return loss, log_prob
