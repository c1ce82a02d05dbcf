"""Lowering of the gradients of poolings.

Symbols: N batch, D x H x W the volume or image, O x P x Q the windows, C channels.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, RawOp
from lstm_lower.passes.formulas.rows import INT64, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import Size, entries, up_to
from lstm_lower.passes.formulas.spatial import Margins, arranged, channels_first, margins, padded, slid, spread
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.windows import check_float32, window_margins, window_maxima
from lstm_lower.spatial import (
    SYMBOLS,
    SpatialAxis,
    SpatialOp,
    bind_sizes,
    check_output_sizes,
    check_windows,
    spatial_positions,
    window_axes,
)


def _axes(n: Node) -> list[SpatialAxis]:
    axes = window_axes(n.call)
    if axes is None:
        raise n.unsupported("ksize", "known sizes and strides of the windows", "ones known at run time only")
    return axes


class _PoolingGradient(SpatialOp, RawOp, abstract=True):
    """The gradient of a pooling with respect to its image, or that of this with respect to the pooling's gradient.

    Attributes:
        windowed: the operand with an entry for each window.
    """

    windowed: ClassVar[str] = "grad"

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows must lie on rows and columns, and there must be one for each entry."""
        check_windows(call, "ksize", "strides")
        check_output_sizes(call, cls.windowed)


class MaxPoolGrad(_PoolingGradient, orig_input="N H W C", orig_output="N P Q C", grad="N P Q C", T=FLOATS):
    """Gradient of the largest element of each window: it goes to the first one of these."""


class _ByOperands(
    _PoolingGradient, abstract=True, strides="4", orig_output="N P Q C", ksize="4", T=FLOATS, orig_input="N H W C"
):
    """One whose sizes and strides are operands."""

    static_operands = ("ksize", "strides")


class MaxPoolGradV2(_ByOperands, grad="N P Q C"):
    """MaxPoolGrad with sizes and strides as operands."""


@lowers(MaxPoolGrad, MaxPoolGradV2)
def max_pool_grad(n: Node, b: Builder) -> Expr:
    """Pools again to learn the places of the largest elements, and adds the gradient there."""
    image = arranged(n.orig_input, n.data_format, "NCHW")
    _, where = window_maxima(n, b, _axes(n), image)
    result = _added(n, b, image, where, arranged(n.grad, n.data_format, "NCHW"))
    return arranged(result, "NCHW", n.data_format)


class MaxPoolGradWithArgmax(_PoolingGradient, input="N H W C", grad="N P Q C", argmax="N P Q C", T=FLOATS):
    """MaxPoolGrad where the places of the largest elements are known."""


@lowers(MaxPoolGradWithArgmax)
def max_pool_grad_with_argmax(n: Node, b: Builder) -> Expr:
    """Adds the gradient at the places, which without the batch start anew with each image."""
    places = n.argmax.cast(INT64)
    if not n.include_batch_in_index:
        count = b.sizes([n.size("N")]).reshape()
        numbers = up_to(b, count)
        each = b.op(std.ReduceProd, tail_of(n.input, 1), keepdims=1)
        places = places + (numbers * each).unsqueeze(1, 2, 3)
    return _added(n, b, n.input, places, n.grad)


def _added(n: Node, b: Builder, image: Expr, places: Expr, gradient: Expr) -> Expr:
    """The gradient added at numbers of elements, in zeros of the image's shape."""
    overlap = any(axis.kernel > axis.stride for axis in _axes(n))
    flat = b.fill(0, b.op(std.Size, image).reshape(1), image.dtype)
    adding = {"reduction": "add"} if overlap else {}
    total = b.op(std.ScatterElements, flat, places.reshape(-1), gradient.reshape(-1), axis=0, **adding)
    result = reshape_to(total, image.sizes())
    if image.shape is not None:
        b.set_shape(result, image.shape)
    return result


class MaxPoolGradGrad(_PoolingGradient, orig_input="N H W C", orig_output="N P Q C", grad="N H W C", T=FLOATS):
    """Gradient of MaxPoolGrad: the element of `grad` at the place of each window's largest one."""

    windowed = "orig_output"


class MaxPoolGradGradV2(_ByOperands, grad="N H W C"):
    """MaxPoolGradGrad with sizes and strides as operands."""

    windowed = "orig_output"


class MaxPool3DGradGrad(
    _PoolingGradient,
    orig_input="N D H W C",
    orig_output="N O P Q C",
    grad="N D H W C",
    T=("float16", "bfloat16", "float32"),
):
    """Gradient of MaxPool3DGrad as TensorFlow has it: unlike that op it takes the first of equal elements only."""

    windowed = "orig_output"


@lowers(MaxPoolGradGrad, MaxPoolGradGradV2, MaxPool3DGradGrad)
def max_pool_grad_grad(n: Node, b: Builder) -> Expr:
    """Pools again to learn the places of the largest elements, and gathers from there."""
    first = channels_first(n.data_format)
    _, where = window_maxima(n, b, _axes(n), arranged(n.orig_input, n.data_format, first))
    met = arranged(n.grad, n.data_format, first).reshape(-1).take(where)
    return arranged(met, first, n.data_format)


class MaxPool3DGrad(_PoolingGradient, orig_input="N D H W C", orig_output="N O P Q C", grad="N O P Q C"):
    """Gradient of the largest element of each window of a volume: it goes to each one that is equal to it."""


@lowers(MaxPool3DGrad)
def max_pool_3d_grad(n: Node, b: Builder) -> Expr:
    """The elements of each window as channels, and of the gradient at those that equal the largest.

    Unlike MaxPoolGrad, TensorFlow's kernel gives the gradient to each of equal elements.
    """
    check_float32(n, "grad", std.ConvTranspose)
    axes = _axes(n)
    places, kernel = window_margins(n, axes), [axis.kernel for axis in axes]
    first = channels_first(n.data_format)
    image, largest, gradient = (
        arranged(x, n.data_format, first).reshape(-1, 1, 0, 0, 0) for x in (n.orig_input, n.orig_output, n.grad)
    )
    taps = math.prod(kernel)
    each = b.constant(np.eye(taps).reshape(taps, 1, *kernel), image.dtype)
    met = slid(image, each, axes, places, 1)
    chosen = b.where(met.equals(largest), gradient, 0)
    volume = arranged(n.orig_input, n.data_format, first).sizes()
    result = reshape_to(spread(chosen, each, axes, places, 1), volume)
    return arranged(result, first, n.data_format)


class _AveragesGradient(_PoolingGradient, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the image's sizes where they are known."""
        bind_sizes(call, "orig_input_shape", call.attributes["data_format"])
        super().verify(call)


class AvgPoolGrad(_AveragesGradient, orig_input_shape="4", grad="N P Q C"):
    """Gradient of the mean of each window, to which the padding does not belong."""


class AvgPool3DGrad(_AveragesGradient, orig_input_shape="5", grad="N O P Q C"):
    """Gradient of the mean of each window of a volume, to which the padding does not belong."""


@lowers(AvgPoolGrad, AvgPool3DGrad)
def avg_pool_grad(n: Node, b: Builder) -> Expr:
    """Spreads each window's share over its elements: a transposed convolution with ones, channel by channel."""
    check_float32(n, "grad", std.ConvTranspose)
    axes = _axes(n)
    sizes = entries(n.orig_input_shape)
    assert sizes is not None
    image = [sizes[position] for position in spatial_positions(n.data_format)]
    windows = [n.size(symbol) for symbol in SYMBOLS[len(n.data_format)][2]]
    places = [margins(axis, size, count) for axis, size, count in zip(axes, image, windows, strict=True)]
    first = channels_first(n.data_format)
    share = arranged(n.grad, n.data_format, first)
    for behind, axis, place, size, count in zip(range(len(axes))[::-1], axes, places, image, windows, strict=True):
        elements = _elements(n, b, axis, place, size, count)
        share = share / elements.unsqueeze(*range(1, 1 + behind))
    made = b.op(
        std.ConvTranspose,
        share.reshape(-1, 1, *[0] * len(axes)),
        b.fill(1, [1, 1, *(axis.kernel for axis in axes)], share.dtype),
        kernel_shape=[axis.kernel for axis in axes],
        strides=[axis.stride for axis in axes],
    )
    made = padded(made, [(0 - place.before, 0 - place.after) for place in places])
    whole = b.sizes([*(n.size(symbol) for symbol in "NC"), *image])
    result = reshape_to(made, whole)
    return arranged(result, first, n.data_format)


def _elements(n: Node, b: Builder, axis: SpatialAxis, place: Margins, size: Size, windows: Size) -> Expr:
    """How many elements of the image each window has along an axis, in the gradient's dtype."""
    dtype = n.grad.dtype
    if axis.padding == "VALID":
        return b.constant([axis.kernel], dtype)
    if isinstance(size, int) and isinstance(windows, int) and isinstance(place.before, int):
        starts = [number * axis.stride - place.before for number in range(windows)]
        return b.constant([min(start + axis.kernel, size) - max(start, 0) for start in starts], dtype)
    count = b.sizes([windows]).reshape()
    start = up_to(b, count) * axis.stride - b.sizes([place.before])
    end: Expr = (start + axis.kernel).minimum(b.sizes([size]))
    return (end - start.maximum(0)).cast(dtype)
