"""Convolutions, products with weights, normalizations, embeddings and dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.moments import moments, per_channel
from lstm_lower.passes.formulas.rows import add_rows
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.registry import AtenCall, Size, translates
from lstm_lower.torch.aten.tracing import traces

aten = torch.ops.aten

INT64 = ir.DataType.INT64


def of_each_axis(value: Any, count: int) -> list[Any]:
    """An option of each spatial axis: one stands for all."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values * count if len(values) == 1 else values


def rank_of(x: Expr) -> int:
    """The number of axes, which a trace always tells."""
    assert x.shape is not None
    return len(x.shape)


def with_batch(x: Expr, rank: int, function: Callable[[Expr], Expr]) -> Expr:
    """The function of a batch of images, or of a single one without an axis for the batch."""
    return function(x) if rank_of(x) == rank else function(x.unsqueeze(0)).squeeze(0)


# Convolutions. Images are [N, C, ...], weights [K, C / groups, ...], of transposed ones [C, K / groups, ...].


def _convolved(
    n: AtenCall,
    op: type[std.Standard],
    operands: tuple[Expr, Expr, Expr | None],
    stride: Any,
    pads: Sequence[Any],
    dilation: Any,
    groups: int,
    **more: Any,
) -> Expr:
    """A convolution, or a transposed one, of images, a weight and a bias."""
    x, weight, bias = operands
    dims = rank_of(weight) - 2
    attributes = {
        "strides": of_each_axis(stride, dims),
        "pads": pads,
        "dilations": of_each_axis(dilation, dims),
        "group": groups,
        **more,
    }
    weights = [weight] if bias is None else [weight, bias]
    return with_batch(x, dims + 2, lambda x: n.b.op(op, x, *weights, **attributes))


@translates(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def _conv(
    n: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Expr:
    pads = of_each_axis(padding, rank_of(weight) - 2)
    return _convolved(n, std.Conv, (x, weight, bias), stride, pads + pads, dilation, groups)


@translates(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding)
def _conv_by_name(
    n: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Expr:
    dims = rank_of(weight) - 2
    dilations = of_each_axis(dilation, dims)
    before, after = [0] * dims, [0] * dims
    if padding == "same":
        kernel = [size for size in (weight.shape or ())[2:] if isinstance(size, int)]
        missing = [d * (size - 1) for d, size in zip(dilations, kernel, strict=True)]
        before = [m // 2 for m in missing]
        after = [m - m // 2 for m in missing]
    return _convolved(n, std.Conv, (x, weight, bias), stride, before + after, dilation, groups)


@translates(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _conv_transpose(
    n: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Expr:
    dims = rank_of(weight) - 2
    pads, beyond = of_each_axis(padding, dims), of_each_axis(output_padding, dims)
    operands = x, weight, bias
    return _convolved(n, std.ConvTranspose, operands, stride, pads + pads, dilation, groups, output_padding=beyond)


@translates(aten.convolution.default)
def _convolution(
    n: AtenCall,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Expr:
    if transposed:
        return _conv_transpose(n, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(n, x, weight, bias, stride, padding, dilation, groups)


# Products with weights [out, in].


@translates(aten.linear.default)
def _linear(n: AtenCall, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    if rank_of(weight) == 1:
        product = x @ weight
        return product if bias is None else product + bias
    if rank_of(x) == 2 and (bias is None or rank_of(bias) == 1):
        operands = [weight] if bias is None else [weight, bias]
        return n.b.op(std.Gemm, x, *operands, transB=1)
    product = x @ weight.mT
    return product if bias is None else product + bias


@translates(aten.bilinear.default)
def _bilinear(n: AtenCall, x: Expr, y: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """The sum of x_i w_kij y_j; weights are [K, I, J]."""
    outputs, rows, columns = (weight.size(axis) for axis in range(3))
    flat = n.b.op(std.Reshape, weight.transpose(1, 0, 2), n.b.sizes([rows, outputs * columns]))
    product = x @ flat
    lead: list[int | Expr] = [x.size(axis) for axis in range(rank_of(x) - 1)]
    made = n.b.op(std.Reshape, product, n.b.sizes([*lead, outputs, columns])) * y.unsqueeze(-2)
    total = made.sum(rank_of(x))
    return total if bias is None else total + bias


# Normalizations; halves are computed in float32.


def _affine(x: Expr, weight: Expr | None, bias: Expr | None, rank: int) -> Expr:
    x = x if weight is None else x * per_channel(weight, rank)
    return x if bias is None else x + per_channel(bias, rank)


def _trained_batch_norm(
    n: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running: Sequence[Expr | None],
    momentum: Any,
    eps: float,
) -> list[Expr | None]:
    """Normalization by a batch's own statistics (Ioffe and Szegedy, 2015): these follow, and what is to be kept."""
    x, rank = widened(x), rank_of(x)
    axes = [axis for axis in range(rank) if axis != 1]
    centered, mean, variance = moments(x, axes)
    deviation = (variance + eps).sqrt()
    out = _affine(centered / deviation, weight, bias, rank)
    mean, variance = (detached(value.reshape(-1)) for value in (mean, variance))
    statistics = [mean, detached(1 / deviation.reshape(-1))]
    if running[0] is None or running[1] is None:
        return [out, *statistics]
    # As in PyTorch, the running variance is an unbiased one.
    sizes = n.sizes(n.fake(0))
    count = n.count([size for axis, size in enumerate(sizes) if axis != 1])
    unbiased = variance * (n.scalar(count, x.dtype) / n.scalar(count - 1, x.dtype))
    share = n.scalar(momentum, x.dtype)
    kept = [
        old.cast(x.dtype) * (1 - share) + new * share for old, new in zip(running, (mean, unbiased), strict=True) if old
    ]
    return [out, *statistics, *kept]


def _evaluated_batch_norm(
    n: AtenCall, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, eps: float
) -> Expr:
    size = mean.size(0)
    operands = [
        n.b.fill(start, [size], mean.dtype) if value is None else value for value, start in ((weight, 1), (bias, 0))
    ]
    return n.b.op(std.BatchNormalization, x, *operands, mean, variance, epsilon=float(eps))


@translates(aten._native_batch_norm_legit_functional.default)
def _batch_norm_functional(
    n: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    variance: Expr,
    training: bool,
    momentum: Any,
    eps: float,
) -> list[Expr | None]:
    if training:
        return _trained_batch_norm(n, x, weight, bias, (mean, variance), momentum, eps)
    return [_evaluated_batch_norm(n, x, weight, bias, mean, variance, eps), None, None, mean, variance]


@traces(functional.batch_norm)
def _batch_norm_by_count(
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Running averages of which each batch has a share that a tensor says; an operator of ATen has a number for it."""
    if not isinstance(momentum, Tensor):
        return NotImplemented
    own = running_mean.clone(), running_var.clone()
    out = functional.batch_norm(input, *own, weight, bias, training, 1.0, eps)
    for running, value in zip((running_mean, running_var), own, strict=True):
        running.lerp_(value, momentum)
    return out


@translates(aten.native_batch_norm.default)
def _native_batch_norm(
    n: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    variance: Expr | None,
    training: bool,
    momentum: Any,
    eps: float,
) -> list[Expr | None]:
    """Normalization that changes what is kept in place."""
    if mean is not None and variance is not None and not training:
        return [_evaluated_batch_norm(n, x, weight, bias, mean, variance, eps), None, None]
    out, *statistics = _trained_batch_norm(n, x, weight, bias, (mean, variance), momentum, eps)
    for place, value in enumerate(statistics[2:], 3):
        assert value is not None
        n.change(place, value)
    return [out, *statistics[:2]]


@translates(aten.batch_norm.default)
def _batch_norm(
    n: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    variance: Expr | None,
    training: bool,
    momentum: Any,
    eps: float,
    _cudnn: bool,
) -> Expr | None:
    return _native_batch_norm(n, x, weight, bias, mean, variance, training, momentum, eps)[0]


@translates(aten._native_batch_norm_legit.no_stats)
def _batch_norm_without_statistics(
    n: AtenCall, x: Expr, weight: Expr | None, bias: Expr | None, training: bool, momentum: float, eps: float
) -> list[Expr | None]:
    return _trained_batch_norm(n, x, weight, bias, (None, None), momentum, eps)


@translates(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_in_evaluation(
    n: AtenCall,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    variance: Expr,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    return [_evaluated_batch_norm(n, x, weight, bias, mean, variance, eps), None, None]


def _grouped(
    n: AtenCall, x: Expr, groups: int, weight: Expr | None, bias: Expr | None, eps: float
) -> list[Expr | None]:
    """Each group of channels of each example by itself (Wu and He, 2018), its mean, and its inverse deviation."""
    sizes = n.sizes(n.fake(0))
    parts = widened(x).reshape(0, groups, -1)
    centered, mean, variance = moments(parts, [2])
    deviation = (variance + eps).sqrt()
    out = _affine(n.reshape(centered / deviation, sizes), weight, bias, rank_of(x))
    return [out, detached(mean.squeeze(2)), detached(1 / deviation.squeeze(2))]


@translates(aten.group_norm.default)
def _group_norm(
    n: AtenCall,
    x: Expr,
    groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Expr | None:
    return _grouped(n, x, groups, weight, bias, eps)[0]


@translates(aten.native_group_norm.default)
def _native_group_norm(n: AtenCall, x: Expr, weight: Expr | None, bias: Expr | None, *sizes: Any) -> list[Expr | None]:
    *_, groups, eps = sizes
    return _grouped(n, x, groups, weight, bias, eps)


@translates(aten.layer_norm.default)
def _layer_norm(
    n: AtenCall,
    x: Expr,
    shape: Sequence[Size],
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Expr:
    scale = n.b.fill(1, n.vector(shape), x.dtype) if weight is None else weight
    operands = [scale] if bias is None else [scale, bias]
    return n.b.op(std.LayerNormalization, x, *operands, axis=-len(shape), epsilon=float(eps))


@translates(aten.native_layer_norm.default)
def _native_layer_norm(
    n: AtenCall, x: Expr, shape: Sequence[Size], weight: Expr | None, bias: Expr | None, eps: float
) -> list[Expr | None]:
    axes = list(range(rank_of(x) - len(shape), rank_of(x)))
    _, mean, variance = moments(widened(x), axes)
    statistics = [detached(mean), detached(1 / (variance + eps).sqrt())]
    return [_layer_norm(n, x, shape, weight, bias, eps), *statistics]


@translates(aten.rms_norm.default)
def _rms_norm(
    n: AtenCall, x: Expr, shape: Sequence[Size], weight: Expr | None = None, eps: float | None = None
) -> Expr:
    """Root mean squares (Zhang and Sennrich, 2019)."""
    return _by_root_mean_square(n, x, shape, weight, eps)[0]


@translates(aten._fused_rms_norm.default)
def _fused_rms_norm(
    n: AtenCall, x: Expr, shape: Sequence[Size], weight: Expr | None, eps: float | None
) -> list[Expr | None]:
    out, inverse = _by_root_mean_square(n, x, shape, weight, eps)
    return [out, detached(inverse)]


def _by_root_mean_square(
    n: AtenCall, x: Expr, shape: Sequence[Size], weight: Expr | None, eps: float | None
) -> tuple[Expr, Expr]:
    wide = widened(x)
    if eps is None:
        eps = torch.finfo(n.results[0].dtype).eps
    axes = list(range(rank_of(x) - len(shape), rank_of(x)))
    deviation = ((wide * wide).reduce(std.ReduceMean, axes) + eps).sqrt()
    out = wide / deviation
    return out if weight is None else out * weight.cast(out.dtype), 1 / deviation


# Rows of tables.


@translates(aten.embedding.default)
def _embedding(
    n: AtenCall,
    table: Expr,
    indices: Expr,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Expr:
    """Rows; that of padding gets no gradient."""
    rows = _rows(n, table, from_front(indices), by_frequency=by_frequency)
    if padding < 0:
        return rows
    return n.b.where(indices.equals(padding).unsqueeze(-1), detached(rows), rows)


def _rows(n: AtenCall, table: Expr, indices: Expr, *, by_frequency: bool) -> Expr:
    """Rows of a table, whose gradients may be divided by how often each one is read."""
    rows = table.take(indices)
    if not by_frequency:
        return rows
    flat = indices.reshape(-1)
    counts = add_rows(n.b.op(std.Expand, table.like(1), flat.sizes()), flat.cast(INT64), table.size(0))
    held = detached(rows)
    return held + (rows - held) / counts.take(indices).unsqueeze(-1)


@translates(aten.embedding_renorm.default, aten.embedding_renorm_.default)
def _embedding_renorm(n: AtenCall, *_: Any) -> Expr:
    # PyTorch changes the rows that are read, and updates what they became.
    raise UnsupportedOpError("embedding requires no max_norm, got one; scale the rows in forward instead")


@translates(aten.embedding_bag.padding_idx)
def _embedding_bag_counted(n: AtenCall, table: Expr, *operands: Any) -> list[Expr | None]:
    # Counted from the last row where it is below zero, which means none of the other overload.
    *others, padding = operands
    padding = table.size(0) + padding if padding is not None and padding < 0 else padding
    given: list[Any] = [*others, padding]
    return _embedding_bag(n, table, *given)


@translates(aten._embedding_bag.default)
def _embedding_bag(
    n: AtenCall,
    table: Expr,
    indices: Expr,
    offsets: Expr,
    by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Expr | None = None,
    with_last: bool = False,
    padding: Size | None = None,
) -> list[Expr | None]:
    """Sums, means (1) or maxima (2) of bags of rows [N, D] that begin at offsets [B]."""
    b, indices = n.b, from_front(indices)
    rows = _rows(n, table, indices, by_frequency=by_frequency)
    rows = rows if factors is None else rows * factors.unsqueeze(-1)
    padding = None if padding == -1 else padding
    width = None if with_last else _equal_bags(n)
    if width is not None and padding is None and mode != 2:
        bags = n.reshape(rows, [*n.shape[:1], width, n.shape[1]])
        return [bags.reduce(std.ReduceMean if mode else std.ReduceSum, 1, keepdims=False), None, None, None]
    starts = offsets.slice(0, -1, axis=0) if with_last else offsets
    numbers = up_to(b, indices.size(0))
    bags = (numbers.unsqueeze(1) >= starts.unsqueeze(0)).cast(INT64).sum(1) - 1
    kept = b.op(std.Expand, rows.like(1), indices.sizes())
    if padding is not None:
        kept = (~indices.equals(padding)).cast(rows.dtype)
    count = starts.size(0)
    if mode == 2:
        return [_largest(n, b.where(kept.unsqueeze(1) > 0, rows, -float("inf")), bags), None, None, None]
    summed = kept
    if with_last:
        # What is behind the last bag counts in PyTorch, but is not summed.
        summed = kept * (numbers < offsets.take(-1)).cast(rows.dtype)
    sums = add_rows(rows * summed.unsqueeze(1), bags, count)
    if mode:
        sums = sums / add_rows(kept, bags, count).maximum(1).unsqueeze(1)
    return [sums, None, None, None]


def _equal_bags(n: AtenCall) -> Size | None:
    """The size of all bags where these are rows of a matrix, of which PyTorch makes a vector and offsets."""
    offsets = n.node.args[2]
    if not isinstance(offsets, torch.fx.Node) or offsets.target not in (aten.arange.start_step, aten.arange.default):
        return None
    start, _, step, *_ = [*offsets.args, 1]
    step = step.meta["val"] if isinstance(step, torch.fx.Node) else step
    size: Size = n.size(step)
    return size if start == 0 else None


def _largest(n: AtenCall, rows: Expr, bags: Expr) -> Expr:
    """The largest elements of the rows of each bag, 0 of an empty one."""
    b = n.b
    least = b.fill(-float("inf"), n.vector(n.shape), rows.dtype)
    places = b.op(std.Expand, bags.unsqueeze(1), rows.sizes())
    most = b.op(std.ScatterElements, least, places, rows, axis=0, reduction="max")
    return b.where(most > -float("inf"), most, 0)


# Dropout.


@translates(aten.native_dropout.default)
def _native_dropout(n: AtenCall, x: Expr, p: float, training: bool | None = True) -> list[Expr | None]:
    if training is False or p == 0:
        return [x, n.b.op(std.Expand, n.b.constant(value=True, dtype=ir.DataType.BOOL), x.sizes())]
    if p == 1:
        return [x * 0, n.b.op(std.Expand, n.b.constant(value=False, dtype=ir.DataType.BOOL), x.sizes())]
    on = n.b.constant(value=True, dtype=ir.DataType.BOOL)
    return list(n.b.ops(std.Dropout, x, n.b.constant(p, ir.DataType.FLOAT), on, outputs=2))


@translates(aten.dropout.default)
def _dropout(n: AtenCall, x: Expr, p: float, training: bool) -> Expr:
    return dropped(x, p) if training else x


def dropped(x: Expr, p: float) -> Expr:
    """Elements of which each is dropped with a probability, the others scaled (Srivastava et al., 2014)."""
    if p in (0, 1):
        return x if p == 0 else x * 0
    on = x.builder.constant(value=True, dtype=ir.DataType.BOOL)
    return x.builder.op(std.Dropout, x, x.builder.constant(p, ir.DataType.FLOAT), on)
