"""Reductions, norms and cumulative sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas import cumulative
from lstm_lower.passes.formulas.complex_numbers import each, magnitude, parts_of
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES, computed, widened
from lstm_lower.torch.aten.arrays import counted, rank_of, sizes_of, with_axes
from lstm_lower.torch.aten.registry import AtenCall, translates

aten = torch.ops.aten
BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64

Axes = int | Sequence[int] | None


def axes_of(x: Expr, dim: Axes) -> list[int]:
    """Axes counted from the front; all of them where none are named."""
    named = [] if not rank_of(x) else [dim] if isinstance(dim, int) else dim
    return [counted(x, axis) for axis in named] if named else list(range(rank_of(x)))


def count_of(n: AtenCall, x: Expr, axes: Sequence[int]) -> Expr:
    """The number of elements along some axes, in the dtype of `x`."""
    sizes = sizes_of(x)
    return n.scalar(n.count([sizes[axis] for axis in axes]), x.dtype)


def _reduced(op: type[std.Reduction], x: Expr, dim: Axes, *, keepdim: bool) -> Expr:
    axes = axes_of(x, dim)
    return x.reduce(op, axes, keepdims=keepdim and bool(rank_of(x))) if axes else x


def _total(n: AtenCall, x: Expr) -> Expr:
    """In the dtype that the result is summed in."""
    return widened(x.cast(n.dtype)) if n.dtype in COMPUTE_DTYPES or n.dtype != x.dtype else x


@translates(aten.sum.default)
def _whole_sum(n: AtenCall, x: Expr, **_: Any) -> Expr:
    return _reduced(std.ReduceSum, _total(n, x), None, keepdim=False)


@translates(aten.sum.dim_IntList)
def _sum(n: AtenCall, x: Expr, dim: Axes, keepdim: bool = False, **_: Any) -> Expr:
    return _reduced(std.ReduceSum, _total(n, x), dim, keepdim=keepdim)


@translates(aten.nansum.default)
def _sum_of_numbers(n: AtenCall, x: Expr, dim: Axes = None, keepdim: bool = False, **_: Any) -> Expr:
    x = _total(n, x)
    x = n.b.where(n.b.op(std.IsNaN, x), 0, x) if x.dtype.is_floating_point() else x
    return _reduced(std.ReduceSum, x, dim, keepdim=keepdim)


@translates(aten.mean.default)
def _whole_mean(n: AtenCall, x: Expr, **_: Any) -> Expr:
    return _mean(n, x, None)


@translates(aten.mean.dim)
def _mean(n: AtenCall, x: Expr, dim: Axes, keepdim: bool = False, **_: Any) -> Expr:
    return _reduced(std.ReduceMean, _total(n, x), dim, keepdim=keepdim)


@translates(aten.prod.default)
def _whole_product(n: AtenCall, x: Expr, **_: Any) -> Expr:
    return _reduced(std.ReduceProd, _total(n, x), None, keepdim=False)


@translates(aten.prod.dim_int)
def _product(n: AtenCall, x: Expr, dim: int, keepdim: bool = False, **_: Any) -> Expr:
    return _reduced(std.ReduceProd, _total(n, x), dim, keepdim=keepdim)


def _holds(x: Expr) -> Expr:
    return x if x.dtype == BOOL else ~computed(x).equals(0)


@translates(aten.any.default, aten.any.dim, aten.any.dims)
def _any(n: AtenCall, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    return _reduced(std.ReduceSum, _holds(x).cast(INT64), dim, keepdim=keepdim) > 0


@translates(aten.all.default, aten.all.dim, aten.all.dims)
def _all(n: AtenCall, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    return ~(_reduced(std.ReduceSum, (~_holds(x)).cast(INT64), dim, keepdim=keepdim) > 0)


@translates(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def _count_nonzero(n: AtenCall, x: Expr, dim: Axes = None) -> Expr:
    return _reduced(std.ReduceSum, _holds(x).cast(INT64), dim, keepdim=False)


# Extremes and their places.


def _extreme(op: type[std.Reduction]) -> Callable[..., Expr]:
    """The largest or smallest elements, of which equal ones share a gradient; NaN where an element is."""

    def extreme(n: AtenCall, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
        return _reduced(op, computed(x), dim, keepdim=keepdim)

    return extreme


translates(aten.amax.default, aten.max.default)(_extreme(std.ReduceMax))
translates(aten.amin.default, aten.min.default)(_extreme(std.ReduceMin))


@translates(aten.aminmax.default)
def _both_extremes(n: AtenCall, x: Expr, *, dim: int | None = None, keepdim: bool = False) -> list[Expr]:
    return [_extreme(op)(n, x, dim, keepdim) for op in (std.ReduceMin, std.ReduceMax)]


def _at(x: Expr, places: Expr, dim: int, *, keepdim: bool) -> list[Expr]:
    """Elements along an axis at places [..., 1, ...], and the places."""
    axis = counted(x, dim)
    values = x.builder.op(std.GatherElements, x, places, axis=axis)
    return [part if keepdim else part.squeeze(axis) for part in (values, places)]


def _without_axes(formula: Callable[..., list[Expr]]) -> Callable[..., list[Expr]]:
    """A formula along an axis, of a scalar too, which has none."""

    @functools.wraps(formula)
    def of_any(n: AtenCall, x: Expr, *args: Any, **options: Any) -> list[Expr]:
        if rank_of(x):
            return formula(n, x, *args, **options)
        return [y.reshape() for y in formula(n, x.unsqueeze(0), *args, **options)]

    return of_any


def _found(op: type[std.Arg]) -> Callable[..., list[Expr]]:
    """Extremes along an axis with their places, of equal ones the first, which has all of the gradient."""

    @_without_axes
    def found(n: AtenCall, x: Expr, dim: int, keepdim: bool = False) -> list[Expr]:
        places = n.b.op(op, computed(x), axis=counted(x, dim), keepdims=1)
        return _at(x, places, dim, keepdim=keepdim)

    return found


translates(aten.max.dim)(_found(std.ArgMax))
translates(aten.min.dim)(_found(std.ArgMin))


def _place(op: type[std.Arg]) -> Callable[..., Expr]:
    def place(n: AtenCall, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
        x = computed(with_axes(x))
        keeps = keepdim and bool(n.results[0].dim())
        if dim is None:
            result = n.b.op(op, x.reshape(-1), axis=0, keepdims=0)
            return result.unsqueeze(*range(rank_of(x))) if keeps else result
        return n.b.op(op, x, axis=counted(x, dim), keepdims=int(keeps))

    return place


translates(aten.argmax.default)(_place(std.ArgMax))
translates(aten.argmin.default)(_place(std.ArgMin))


# Moments.


def _moments(n: AtenCall, x: Expr, dim: Axes, correction: float | None, *, keepdim: bool) -> tuple[Expr, Expr]:
    """Variance and mean; the divisor is the number of elements less the correction, which is 1 unless it is given."""
    x, axes = widened(x), axes_of(x, dim)
    mean = x.reduce(std.ReduceMean, axes) if axes else x
    apart = x - mean
    divisor = count_of(n, x, axes) - (1 if correction is None else correction)
    variance = (apart * apart).sum(axes, keepdims=keepdim) / divisor.maximum(0) if axes else apart / divisor
    return variance, mean if keepdim else mean.squeeze(*axes)


def _deviation(variance: Expr) -> Expr:
    """A root without a slope at 0."""
    b, none = variance.builder, variance.equals(0)
    return b.where(none, 0, b.where(none, 1, variance).sqrt())


@translates(aten.var.correction)
def _var(n: AtenCall, x: Expr, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> Expr:
    return _moments(n, x, dim, correction, keepdim=keepdim)[0]


@translates(aten.std.correction)
def _std(n: AtenCall, x: Expr, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> Expr:
    return _deviation(_moments(n, x, dim, correction, keepdim=keepdim)[0])


@translates(aten.var_mean.correction)
def _var_mean(n: AtenCall, x: Expr, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> list[Expr]:
    return list(_moments(n, x, dim, correction, keepdim=keepdim))


@translates(aten.std_mean.correction)
def _std_mean(n: AtenCall, x: Expr, dim: Axes = None, *, correction: Any = None, keepdim: bool = False) -> list[Expr]:
    variance, mean = _moments(n, x, dim, correction, keepdim=keepdim)
    return [_deviation(variance), mean]


# Norms.


@translates(aten.logsumexp.default)
def _log_sum_exp(n: AtenCall, x: Expr, dim: Axes, keepdim: bool = False) -> Expr:
    """One node, whose gradient is PyTorch's also where x swallows the logarithm of a count, as -1e30 does."""
    x = widened(x.cast(n.dtype))
    return x.reduce(std.ReduceLogSumExp, axes_of(x, dim), keepdims=keepdim)


def _root_of_powers(x: Expr, order: float, axes: list[int], *, keepdim: bool) -> Expr:
    """The root of a sum of powers of magnitudes; at zeros there is no slope."""

    def power(base: Expr, exponent: float) -> Expr:
        b, none = base.builder, base.equals(0)
        return b.where(none, 0, b.where(none, 1, base) ** exponent)

    return power(power(x.abs(), order).sum(axes, keepdims=keepdim), 1 / order)


def norm(x: Expr, order: float, axes: list[int], *, keepdim: bool) -> Expr:
    """A vector's norm of any order along axes."""
    match float(order):
        case 2.0:
            return x.reduce(std.ReduceL2, axes, keepdims=keepdim)
        case 1.0:
            return x.reduce(std.ReduceL1, axes, keepdims=keepdim)
        case 0.0:
            return (~x.equals(0)).cast(x.dtype).sum(axes, keepdims=keepdim)
        case math.inf:
            return x.abs().reduce(std.ReduceMax, axes, keepdims=keepdim)
        case _ if order == -math.inf:
            return x.abs().reduce(std.ReduceMin, axes, keepdims=keepdim)
    return _root_of_powers(x, order, axes, keepdim=keepdim)


@translates(aten.linalg_vector_norm.default)
def _vector_norm(n: AtenCall, x: Expr, ord: Any = 2, dim: Axes = None, keepdim: bool = False, **_: Any) -> Expr:
    x = magnitude(each(parts_of(x))) if is_complex(x.dtype) else x
    x = widened(x.cast(n.dtype))
    if not rank_of(x):
        return norm(x.unsqueeze(0), ord, [0], keepdim=False)
    return norm(x, ord, axes_of(x, dim), keepdim=keepdim)


@translates(aten.dist.default)
def _dist(n: AtenCall, x: Expr, y: Expr, p: float = 2) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    apart = with_axes(x - y)
    return norm(apart, p, list(range(rank_of(apart))), keepdim=False)


def _distances(apart: Expr, order: float) -> Expr:
    """Along the last axis; no slope where there is none."""
    return norm(apart, order, [rank_of(apart) - 1], keepdim=False)


@translates(aten._cdist_forward.default, aten.cdist.default)
def _cdist(n: AtenCall, x: Expr, y: Expr, p: float = 2.0, compute_mode: int | None = None) -> Expr:
    """Distances of all pairs of rows."""
    return _distances(x.unsqueeze(rank_of(x) - 1) - y.unsqueeze(rank_of(y) - 2), p)


# Cumulative.


@translates(aten.cumsum.default)
def _cumsum(n: AtenCall, x: Expr, dim: int, **_: Any) -> Expr:
    x = _total(n, x)
    return n.b.op(std.CumSum, x, n.b.constant(counted(x, dim))) if rank_of(x) else x


@translates(aten.cumprod.default)
def _cumprod(n: AtenCall, x: Expr, dim: int, **_: Any) -> Expr:
    x = _total(n, x)
    return cumulative.product(x, counted(x, dim)) if rank_of(x) else x


@translates(aten.logcumsumexp.default)
def _log_cumsum_exp(n: AtenCall, x: Expr, dim: int) -> Expr:
    x = widened(x)
    return cumulative.log_sum_exp(x, counted(x, dim)) if rank_of(x) else x


def _running(*, largest: bool) -> Callable[..., list[Expr]]:
    """The largest or smallest of all elements before, with its last place."""

    @_without_axes
    def running(n: AtenCall, x: Expr, dim: int) -> list[Expr]:
        places = cumulative.extreme_place(computed(x), counted(x, dim), largest=largest)
        return _at(x, places, dim, keepdim=True)

    return running


translates(aten.cummax.default)(_running(largest=True))
translates(aten.cummin.default)(_running(largest=False))


# Orders.


def sorted_along(x: Expr, axis: int, *, descending: bool = False) -> list[Expr]:
    """Elements in order, equal ones as they stood, and their places."""
    values = computed(x)
    count = x.builder.sizes([x.size(axis)])
    return x.builder.ops(std.TopK, values, count, outputs=2, axis=axis, largest=int(descending))


@translates(aten.sort.default)
@_without_axes
def _sort(n: AtenCall, x: Expr, dim: int = -1, descending: bool = False) -> list[Expr]:
    return sorted_along(x, counted(x, dim), descending=descending)


@translates(aten.sort.stable)
@_without_axes
def _stable_sort(
    n: AtenCall,
    x: Expr,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> list[Expr]:
    return sorted_along(x, counted(x, dim), descending=descending)


@translates(aten.topk.default)
@_without_axes
def _topk(
    n: AtenCall,
    x: Expr,
    k: Any,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[Expr]:
    axis = counted(x, dim)
    options = {"axis": axis, "largest": int(largest), "sorted": int(sorted)}
    return n.b.ops(std.TopK, computed(x), n.vector([k]), outputs=2, **options)


@translates(aten.kthvalue.default)
@_without_axes
def _kth_value(n: AtenCall, x: Expr, k: Any, dim: int = -1, keepdim: bool = False) -> list[Expr]:
    """The element of a rank, counted from 1, along an axis, and its place."""
    axis, last = counted(x, dim), n.vector([k])
    _, order = sorted_along(x, axis)
    return _at(x, order.slice(last - 1, last, axis=axis), dim, keepdim=keepdim)


@translates(aten.median.dim)
@_without_axes
def _median(n: AtenCall, x: Expr, dim: int, keepdim: bool = False) -> list[Expr]:
    """The lower one of two; the first that is no number where there is one."""
    b, axis = n.b, counted(x, dim)
    _, order = sorted_along(x, axis)
    middle = (b.sizes([x.size(axis)]) - 1) / 2
    places = order.slice(middle, middle + 1, axis=axis)
    if x.dtype.is_floating_point():
        missing = b.op(std.IsNaN, x).cast(INT32)
        first = b.op(std.ArgMax, missing, axis=axis, keepdims=1)
        places = b.where(missing.sum(axis, keepdims=True) > 0, first, places)
    return _at(x, places, dim, keepdim=keepdim)


def _of_all(middle: Callable[..., list[Expr]]) -> Callable[[AtenCall, Expr], Expr]:
    """Of a whole tensor, in which equal elements share a gradient."""

    def of_all(n: AtenCall, x: Expr) -> Expr:
        flat = with_axes(x).reshape(-1)
        value = detached(middle(n, flat, 0)[0])
        if not x.dtype.is_floating_point():
            return value
        none = n.b.op(std.IsNaN, flat) & n.b.op(std.IsNaN, value)
        equal = flat.equals(value) | none
        return n.b.where(equal, flat, 0).sum(0) / equal.cast(x.dtype).sum(0)

    return of_all


translates(aten.median.default)(_of_all(_median))


@translates(aten.nanmedian.dim)
@_without_axes
def _nanmedian(n: AtenCall, x: Expr, dim: int, keepdim: bool = False) -> list[Expr]:
    """The median of those that are numbers."""
    b, axis = n.b, counted(x, dim)
    if not x.dtype.is_floating_point():
        return _median(n, x, dim, keepdim)
    missing = b.op(std.IsNaN, x)
    _, order = sorted_along(b.where(missing, math.inf, x), axis)
    middle = ((~missing).cast(INT64).sum(axis, keepdims=True) - 1).maximum(0) / 2
    return _at(x, b.op(std.GatherElements, order, middle, axis=axis), dim, keepdim=keepdim)


translates(aten.nanmedian.default)(_of_all(_nanmedian))


@translates(aten.mode.default)
@_without_axes
def _mode(n: AtenCall, x: Expr, dim: int = -1, keepdim: bool = False) -> list[Expr]:
    """The value that is there most often, of several the smallest, with its last place."""
    b, axis = n.b, counted(x, dim)
    ordered, order = sorted_along(x, axis)
    before = b.concat([ordered.slice(0, 1, axis=axis), ordered.slice(0, -1, axis=axis)], axis)
    ones = b.fill(1, ordered.sizes(), INT64)
    numbers = b.op(std.CumSum, ones, b.constant(axis)) - 1
    # How far along each element is in its row of equal ones.
    starts = b.where(ordered.equals(before), 0, numbers)
    first = b.op(std.GatherElements, starts, cumulative.extreme_place(starts, axis, largest=True), axis=axis)
    best = b.op(std.ArgMax, numbers - first, axis=axis, keepdims=1)
    return _at(x, b.op(std.GatherElements, order, best, axis=axis), dim, keepdim=keepdim)
