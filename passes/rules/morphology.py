"""Lowering of greyscale dilation and of its gradients.

What a window that lies on padding alone gives, and where its gradient goes, is what TensorFlow's kernels have
(tensorflow/core/kernels/dilation_ops.cc): the least number, and the window's start.

Symbols: N batch, H x W an image with C channels, R x S the filter,
P x Q the windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import finfo

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, ORDERED, RawOp
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided, up_to
from lstm_lower.passes.formulas.spatial import margins
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.spatial import SpatialAxis


def _places(n: Node, b: Builder, at: int) -> tuple[Expr, Expr]:
    """Which rows, or columns, each window meets, [windows, kernel]; those beyond are the nearest; which are inside."""
    size = n.size("HW"[at])
    axis = n.op.axes(n.call.attributes, (n.size("R"), n.size("S")))[at]
    count: Size = divided(size + (axis.stride - 1), axis.stride)
    if axis.padding == "VALID":
        count = divided(size - axis.extent, axis.stride) + 1
    starts = up_to(b, count) * axis.stride - b.sizes([margins(axis, size, count).before])
    places = starts.unsqueeze(1) + up_to(b, axis.kernel) * axis.dilation
    bounded = places.minimum(b.sizes([size]) - 1).maximum(0)
    return bounded, places.equals(bounded)


def _windows(n: Node, b: Builder, image: Expr) -> Expr:
    """The elements of all windows [N, P, R, Q, S, C]."""
    rows, columns = (_places(n, b, at)[0] for at in (0, 1))
    return image.take(rows, axis=1).take(columns, axis=3)


def _sums(n: Node, b: Builder) -> Expr:
    """The sums that compete [N, P, R, Q, S, C], and the least number where there is none."""
    dtype = n.moved("input").dtype
    added = _windows(n, b, computed(n.moved("input"))) + computed(n.moved("filter")).unsqueeze(1)
    (_, in_rows), (_, in_columns) = (_places(n, b, at) for at in (0, 1))
    counts = in_rows.unsqueeze(2, 3, 4) & in_columns.unsqueeze(2)
    if not added.dtype.is_floating_point():
        # Sums of small integers wrap.
        return b.where(counts, computed(added.cast(dtype)), int(np.iinfo(dtype.numpy()).min))
    least = float(finfo(dtype.numpy()).min)  # type: ignore[no-untyped-call]
    counts = counts & ~b.op(std.IsNaN, added)
    return b.where(counts, added, least).maximum(least)


class _Dilation(RawOp, abstract=True, input="N H W C", filter="R S C", out_backprop="N P Q C"):
    @classmethod
    def axes(cls, attributes: Any, kernel: tuple[Any, Any]) -> list[SpatialAxis]:
        """How the windows slide along rows and columns."""
        strides, rates, padding = (attributes[name] for name in ("strides", "rates", "padding"))
        return [SpatialAxis(kernel[at], strides[at + 1], rates[at + 1], padding, (0, 0)) for at in (0, 1)]

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows slide over rows and columns alone; there is a gradient for each."""
        for name in ("strides", "rates"):
            given = call.attributes[name]
            if len(given) != 4 or given[0] != 1 or given[3] != 1 or min(given) < 1:
                raise call.error(f"attribute {name}", "four numbers above 0, the first and the last 1", given)
        kernel = call.sizes.get("R"), call.sizes.get("S")
        for axis, image, windows in zip(cls.axes(call.attributes, kernel), "HW", "PQ", strict=True):
            size, found = call.sizes.get(image), call.sizes.get(windows)
            if not isinstance(size, int) or not (isinstance(axis.kernel, int) or axis.padding == "SAME"):
                continue
            count = max(axis.output_size(size), 0)
            if isinstance(found, int) and found != count:
                raise call.error("out_backprop", f"{windows} = {count} (for {image} = {size})", found)
            call.sizes[windows] = count


class Dilation2D(_Dilation, T=ORDERED):
    """The largest sum of an image's element and that of the filter in each window; padding and NaN do not count."""


@lowers(Dilation2D, repeatable=True)
def dilation(n: Node, b: Builder) -> Expr:
    """The largest of each window's sums."""
    return _sums(n, b).reduce(std.ReduceMax, (2, 4), keepdims=False).cast(n.moved("input").dtype)


def _shared_out(n: Node, b: Builder) -> Expr:
    """Each window's gradient at the first of its largest sums, zero at the others [N, P, R, Q, S, C]."""
    sums = _sums(n, b)
    sizes = sums.sizes()
    batch, rows, kernel_rows, columns, kernel_columns, channels = (sizes.slice(i, i + 1, axis=0) for i in range(6))
    flat = b.concat([batch, rows, columns, channels, kernel_rows * kernel_columns], 0)
    competing = reshape_to(sums.transpose(0, 1, 3, 5, 2, 4), flat)
    largest = b.op(std.ArgMax, competing, axis=-1, keepdims=1)
    own = largest.equals(up_to(b, kernel_rows * kernel_columns))
    shared = b.where(own, n.out_backprop.unsqueeze(4), 0)
    shape = b.concat([batch, rows, columns, channels, kernel_rows, kernel_columns], 0)
    return reshape_to(shared, shape).transpose(0, 1, 4, 2, 5, 3)


class Dilation2DBackpropInput(_Dilation, T=FLOATS):
    """Gradient of Dilation2D with respect to the image: it goes to the first of the largest sums."""


@lowers(Dilation2DBackpropInput, repeatable=True)
def dilation_backprop_input(n: Node, b: Builder) -> Expr:
    """Shares of windows, added up at the elements that they meet."""
    return pullback(b, [_windows(n, b, n.input)], [n.input], [_shared_out(n, b)])[0]


class Dilation2DBackpropFilter(Dilation2DBackpropInput):
    """Gradient of Dilation2D with respect to the filter."""


@lowers(Dilation2DBackpropFilter, repeatable=True)
def dilation_backprop_filter(n: Node, b: Builder) -> Expr:
    """Shares of windows, added up at the filter's elements."""
    return _shared_out(n, b).sum((0, 1, 3))
