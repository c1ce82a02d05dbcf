"""Reading and writing by indices.

`x[i]`, `take`, `put`, `index_put` and `index_fill` count negative indices from the end, as ONNX does; the others refuse
them (PyTorch 2.13, on the processor), and so do their formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import add_rows, largest, reshape_to
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.arrays import broadcast_to, common_shape, counted, rank_of, sizes_of, vector_of, with_axes
from lstm_lower.torch.aten.registry import AtenCall, Size, translates

aten = torch.ops.aten
BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64
_MASKS = (BOOL, ir.DataType.UINT8)


def _places(index: Expr) -> Expr:
    """Indices from 0 on, in int64."""
    return from_front(index.cast(INT64))


class _Indexed:
    """A tensor with indices along some of its axes.

    Attributes:
        order: its axes, those that are indexed in front.
        places: indices [..., number of indexed axes].
        start: the axis of the result at which the axes of the indices stand.
    """

    def __init__(self, n: AtenCall, x: Expr, indices: Sequence[Expr | None]) -> None:
        self.n, self.x = n, x
        parts: dict[int, Expr] = {}
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif index.dtype in _MASKS:
                for found in _true_places(index):
                    parts[axis] = found
                    axis += 1
            else:
                parts[axis] = index.cast(INT64)
                axis += 1
        axes, rank = list(parts), rank_of(x)
        self.order = [*axes, *(axis for axis in range(rank) if axis not in parts)]
        together = axes == list(range(axes[0], axes[0] + len(axes)))
        self.start = axes[0] if together else 0
        self.axes = axes
        self.index_rank = max(map(rank_of, parts.values()))
        self.parts = list(parts.values())

    @property
    def places(self) -> Expr:
        """Indices [..., number of indexed axes]."""
        b = self.n.b
        if len(self.parts) > 1:
            total = self.parts[0] - self.parts[0]
            for part in self.parts[1:]:
                total = total + (part - part)
            sizes = total.sizes()
            same = all(part.shape == total.shape for part in self.parts)
            parts = self.parts if same else [b.op(std.Expand, part, sizes) for part in self.parts]
        else:
            parts = self.parts
        return b.concat([part.unsqueeze(rank_of(part)) for part in parts], self.index_rank)

    def inner(self, x: Expr) -> Expr:
        """A tensor of the result's shape with the axes of the indices in front."""
        count = self.index_rank
        moved = range(self.start, self.start + count)
        return x.transpose(*moved, *(axis for axis in range(rank_of(x)) if axis not in moved))

    def outer(self, x: Expr) -> Expr:
        """A tensor with the axes of the indices in front in the result's order."""
        count = self.index_rank
        rest = range(count, rank_of(x))
        return x.transpose(*rest[: self.start], *range(count), *rest[self.start :])

    def read(self) -> Expr:
        """The elements."""
        if len(self.axes) == 1:
            return self.x.take(self.parts[0], axis=self.axes[0])
        front = self.x.transpose(*self.order)
        return self.outer(self.n.b.op(std.GatherND, front, self.places))

    def written(self, values: Expr, *, accumulate: bool) -> Expr:
        """The tensor with other elements, or with values added to them."""
        b = self.n.b
        front, places = self.x.transpose(*self.order), self.places
        leading = places.sizes().slice(0, self.index_rank, axis=0)
        rest = sizes_of(front)[len(self.axes) :]
        before = rest[: self.start]
        sizes = [*([self.n.vector(before)] if before else []), leading]
        sizes += [self.n.vector(rest[self.start :])] if rest[self.start :] else []
        spread = b.op(std.Expand, values.cast(self.x.dtype), b.concat(sizes, 0))
        options = {"reduction": "add"} if accumulate else {}
        result = b.op(std.ScatterND, front, places, self.inner(spread), **options)
        return result.transpose(*sorted(range(len(self.order)), key=self.order.__getitem__))


def _true_places(mask: Expr) -> list[Expr]:
    """Where a mask holds, along each of its axes."""
    mask = mask if mask.dtype == BOOL else ~computed(mask).equals(0)
    found = mask.builder.op(std.NonZero, mask)
    if rank_of(mask) == 1:
        return [found.squeeze(0)]
    return [found.take(axis) for axis in range(rank_of(mask))]


@translates(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(n: AtenCall, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    return _Indexed(n, x, indices).read()


@translates(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(n: AtenCall, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False) -> Expr:
    mask = indices[0]
    if len(indices) == 1 and mask is not None and mask.dtype == BOOL and _is_one(values):
        # One element for all places needs no list of them.
        spread = mask.unsqueeze(*range(rank_of(mask), rank_of(x)))
        value = values.cast(x.dtype).reshape()
        return n.b.where(spread, x + value if accumulate else value, x)
    return _Indexed(n, x, indices).written(values, accumulate=accumulate)


def _is_one(x: Expr) -> bool:
    return all(size == 1 for size in x.shape or ())


@translates(aten.index_select.default)
def _index_select(n: AtenCall, x: Expr, dim: int, index: Expr) -> Expr:
    return (
        n.reshape(with_axes(x).take(_places(with_axes(index)), axis=counted(x, dim)), n.shape)
        if not rank_of(x)
        else x.take(_places(with_axes(index)), axis=counted(x, dim))
    )


@translates(aten.gather.default)
def _gather(n: AtenCall, x: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    if not rank_of(x):
        return n.reshape(x.unsqueeze(0).take(_places(with_axes(index))), n.shape)
    return n.b.op(std.GatherElements, x, _places(index), axis=counted(x, dim))


@translates(aten.take_along_dim.default)
def _take_along_dim(n: AtenCall, x: Expr, indices: Expr, dim: int | None = None) -> Expr:
    """Elements along an axis, the other axes repeated as either operand has them."""
    if dim is None:
        return with_axes(x).reshape(-1).take(indices.cast(INT64).reshape(-1))
    axis = counted(x, dim)
    sizes = n.shape
    whole = [*sizes[:axis], sizes_of(x)[axis], *sizes[axis + 1 :]]
    places = broadcast_to(n, indices.cast(INT64), sizes)
    return n.b.op(std.GatherElements, broadcast_to(n, x, whole), places, axis=axis)


# Scatters.


def _scatter(x: Expr, dim: int, index: Expr, src: Expr, reduction: str = "none") -> Expr:
    """Elements put at places along an axis, or combined with what stands there."""
    if not rank_of(x):
        return _scatter(x.unsqueeze(0), 0, with_axes(index), with_axes(src), reduction).reshape()
    options = {} if reduction == "none" else {"reduction": reduction}
    return x.builder.op(std.ScatterElements, x, index, src.cast(x.dtype), axis=counted(x, dim), **options)


def _beside(n: AtenCall, index: Expr, src: Expr) -> Expr:
    """The part of what is scattered that there are indices of: ONNX requires as many."""
    for axis, (size, own) in enumerate(zip(n.fake(2).shape, n.fake(3).shape, strict=True)):
        # As formulas: a comparison of numbers would fix them.
        if str(size) != str(own):
            src = src.slice(0, index.size(axis), axis=axis)
    return src


def _spread(n: AtenCall, value: Any, index: Expr, like: Expr) -> Expr:
    """A number at each place."""
    return broadcast_to(n, n.scalar(value, like.dtype), sizes_of(index))


_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


@translates(aten.scatter.src, aten.scatter.reduce)
def _scattered(n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr, *, reduce: str | None = None) -> Expr:
    reduction = "none" if reduce is None else _REDUCTIONS[reduce]
    return _scatter(x, dim, _places(index), _beside(n, index, src), reduction)


@translates(aten.scatter.value, aten.scatter.value_reduce)
def _scattered_value(n: AtenCall, x: Expr, dim: int, index: Expr, value: Any, *, reduce: str | None = None) -> Expr:
    reduction = "none" if reduce is None else _REDUCTIONS[reduce]
    return _scatter(x, dim, _places(index), _spread(n, value, index, x), reduction)


@translates(aten.scatter_add.default)
def _scatter_add(n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return _scatter(x, dim, _places(index), _beside(n, index, src), "add")


@translates(aten.scatter_reduce.two)
def _scatter_reduce(
    n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    src = _beside(n, index, src).cast(x.dtype)
    return _combined(n, x, dim, _places(index), src, reduce, include_self=include_self)


def _combined(n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool) -> Expr:
    """What meets at a place, with what stands there already or without."""
    if reduce == "mean":
        return _mean(n, x, dim, index, src, include_self=include_self)
    start = x
    if not include_self:
        start = _scatter(x, dim, index, _spread(n, _neutral(reduce, x.dtype), index, x))
    result = _scatter(start, dim, index, src, _REDUCTIONS[reduce])
    if include_self or reduce not in ("amax", "amin") or not x.dtype.is_floating_point():
        return result
    return _shared_with_self(n, x, dim, index, src, result)


def _neutral(reduce: str, dtype: ir.DataType) -> float | int:
    """What changes nothing."""
    if reduce in ("sum", "prod"):
        return int(reduce == "prod")
    if dtype.is_floating_point():
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(dtype.numpy())
    return int(limits.min if reduce == "amax" else limits.max)


def _mean(n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr, *, include_self: bool) -> Expr:
    """Means of what meets at a place, of integers rounded down."""
    b = n.b
    counts = _scatter(b.zeros_like(x), dim, index, _spread(n, 1, index, x), "add")
    if include_self:
        counts = counts + 1
        start = x
    else:
        start = b.where(counts > 0, 0, x)
        counts = counts.maximum(1)
    total = _scatter(start, dim, index, src, "add")
    return total / counts if x.dtype.is_floating_point() else (total - total % counts) / counts


def _shared_with_self(n: AtenCall, x: Expr, dim: int, index: Expr, src: Expr, result: Expr) -> Expr:
    """The largest elements, whose gradient PyTorch shares out to what was there before, too, if that is as large."""
    b = n.b
    there = b.op(std.GatherElements, result, index, axis=counted(x, dim))
    counts = _scatter(b.zeros_like(x), dim, index, src.equals(there).cast(x.dtype), "add")
    shared = x.equals(result) & (counts > 0) & (result.abs() < math.inf)
    held = detached(result)
    return b.where(shared, held + (result - held) * (counts / (counts + 1)), result)


def _along(n: AtenCall, x: Expr, dim: int, index: Expr, source: Expr) -> tuple[Expr, Expr]:
    """Indices along an axis as those of single elements, and these."""
    if not rank_of(x):
        return with_axes(index), with_axes(source)
    source = source if rank_of(source) else source.unsqueeze(*range(rank_of(x)))
    axis = counted(x, dim)
    index = with_axes(index)
    index = index.unsqueeze(*(place for place in range(rank_of(x)) if place != axis))
    sizes = sizes_of(x)
    sizes[axis] = sizes_of(index)[axis]
    return broadcast_to(n, index, sizes), source


@translates(aten.index_reduce.default)
def _index_reduce(
    n: AtenCall, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    places, source = _along(n, x, dim, _places(index), source.cast(x.dtype))
    return _combined(n, x, dim, places, source, reduce, include_self=include_self)


@translates(aten.index_add.default)
def _index_add(n: AtenCall, x: Expr, dim: int, index: Expr, source: Expr, *, alpha: Any = 1) -> Expr:
    source = source.cast(x.dtype)
    source = source if isinstance(alpha, int) and alpha == 1 else source * n.scalar(alpha, x.dtype)
    return _rows_written(n, x, dim, _places(index), source, "add")


@translates(aten.index_copy.default)
def _index_copy(n: AtenCall, x: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    return _rows_written(n, x, dim, _places(index), source.cast(x.dtype), "none")


def _rows_written(n: AtenCall, x: Expr, dim: int, index: Expr, source: Expr, reduction: str) -> Expr:
    """Slices along an axis replaced by others, or with others added."""
    if counted(x, dim):
        return _scatter(x, dim, *_along(n, x, dim, index, source), reduction)
    whole, options = with_axes(x), {} if reduction == "none" else {"reduction": reduction}
    rows = source if rank_of(source) == rank_of(whole) else source.unsqueeze(0)
    result = n.b.op(std.ScatterND, whole, with_axes(index).unsqueeze(1), rows, **options)
    return result if rank_of(x) else result.reshape()


@translates(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _index_fill(n: AtenCall, x: Expr, dim: int, index: Expr, value: Any) -> Expr:
    b, axis = n.b, counted(x, dim)
    whole = with_axes(x)
    none = b.fill(0, [whole.size(axis)], INT64)
    places = with_axes(index.cast(INT64))
    chosen = b.op(std.ScatterElements, none, places, b.fill(1, places.sizes(), INT64), axis=0) > 0
    chosen = chosen.unsqueeze(*range(1, rank_of(whole) - axis)) if rank_of(whole) - axis > 1 else chosen
    result = b.where(chosen, n.scalar(value, x.dtype), whole)
    return result if rank_of(x) else result.reshape()


@translates(aten.put.default)
def _put(n: AtenCall, x: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    flat, places, values = (with_axes(part).reshape(-1) for part in (x, index.cast(INT64), source.cast(x.dtype)))
    return n.reshape(_scatter(flat, 0, places, values, "add" if accumulate else "none"), n.shape)


@translates(aten.take.default)
def _take(n: AtenCall, x: Expr, index: Expr) -> Expr:
    return with_axes(x).reshape(-1).take(index.cast(INT64))


# Masks.


@translates(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(n: AtenCall, x: Expr, mask: Expr, value: Any) -> Expr:
    return n.b.where(mask, n.scalar(value, x.dtype), x)


@translates(aten.masked_select.default)
def _masked_select(n: AtenCall, x: Expr, mask: Expr) -> Expr:
    """Elements where a mask holds, both repeated as the other is."""
    sizes = n.sizes(common_shape(n.fake(0).shape, n.fake(1).shape))
    flat, chosen = (with_axes(broadcast_to(n, part, sizes)).reshape(-1) for part in (x, mask))
    return flat.take(_true_places(chosen)[0])


@translates(aten.masked_scatter.default)
def _masked_scatter(n: AtenCall, x: Expr, mask: Expr, source: Expr) -> Expr:
    """Elements of another tensor, one after another, where a mask holds."""
    b = n.b
    mask = broadcast_to(n, mask, n.shape)
    flat = with_axes(mask).reshape(-1)
    number = b.op(std.CumSum, flat.cast(INT64), b.constant(0)) - 1
    values = with_axes(source.cast(x.dtype)).reshape(-1).take(b.where(flat, number, 0))
    return b.where(mask, n.reshape(values, n.shape), x)


@translates(aten.nonzero.default)
def _nonzero(n: AtenCall, x: Expr) -> Expr:
    mask = x if x.dtype == BOOL else ~computed(x).equals(0)
    if not rank_of(x):
        return n.b.fill(0, [mask.cast(INT64).reshape(1), 0], INT64)
    return n.b.op(std.NonZero, mask).transpose(1, 0)


@translates(aten.nonzero_numpy.default)
def _nonzero_numpy(n: AtenCall, x: Expr) -> list[Expr]:
    return _true_places(with_axes(x))


# Searches, classes and counts.


@translates(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def _searchsorted(
    n: AtenCall,
    ordered: Expr,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    """How many of the numbers in order are smaller than each value, or not larger."""
    if sorter is not None:
        ordered = n.b.op(std.GatherElements, ordered, sorter, axis=rank_of(ordered) - 1)
    ordered, values = n.promoted(ordered, values)
    before: Expr
    beside = values.unsqueeze(rank_of(values))
    behind = ordered.unsqueeze(rank_of(ordered) - 1) if rank_of(ordered) > 1 else ordered
    before = behind <= beside if right or side == "right" else behind < beside
    return before.cast(INT64).sum(rank_of(values))


@translates(aten.bucketize.Tensor, aten.bucketize.Scalar)
def _bucketize(n: AtenCall, values: Any, boundaries: Expr, *, out_int32: bool = False, right: bool = False) -> Expr:
    return _searchsorted(n, boundaries, values, right=right)


@translates(aten.one_hot.default)
def _one_hot(n: AtenCall, x: Expr, num_classes: Size = -1) -> Expr:
    """Of classes that there are, which are looked up among them."""
    if isinstance(num_classes, int) and num_classes < 0:
        num_classes = n.shape[-1]
    classes = up_to(n.b, vector_of(num_classes))
    return classes.take(_places(x)).unsqueeze(rank_of(x)).equals(classes).cast(INT64)


def _different(n: AtenCall, x: Expr, *, ordered: bool, axis: int | None = None) -> list[Expr]:
    """Different elements, or slices along an axis; which of them each one is; how often each occurs."""
    values = x.cast(INT64) if x.dtype.is_integer() or x.dtype == BOOL else x
    along = {} if axis is None else {"axis": axis}
    y, _, inverse, counts = n.b.ops(std.Unique, values, outputs=4, sorted=int(ordered), **along)
    for value, dtype in ((y, values.dtype), (inverse, INT64), (counts, INT64)):
        value.value.type = ir.TensorType(dtype)
    return [detached(y) if y.dtype.is_floating_point() else y, inverse, counts]


@translates(aten._unique2.default)
def _unique(n: AtenCall, x: Expr, sorted: bool = True, *_: bool, **__: bool) -> list[Expr]:
    y, inverse, counts = _different(n, with_axes(x).reshape(-1), ordered=sorted)
    return [y, reshape_to(inverse, x.sizes()), counts]


@translates(aten.unique_dim.default)
def _unique_slices(n: AtenCall, x: Expr, dim: int, sorted: bool = True, *_: bool, **__: bool) -> list[Expr]:
    return _different(n, x, ordered=sorted, axis=counted(x, dim))


@translates(aten.unique_consecutive.default)
def _unique_consecutive(
    n: AtenCall,
    x: Expr,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Expr]:
    """Elements that are not as the one before, the runs that elements belong to, and how long these are."""
    if dim is not None and rank_of(x) != 1:
        raise n.refuse("a vector, or no dim", "torch.unique takes slices along an axis")
    b, flat = n.b, with_axes(x).reshape(-1)
    size = flat.sizes()
    changes = ~flat.slice(1, 2**31 - 1, axis=0).equals(flat.slice(0, -1, axis=0))
    first = b.concat([b.constant([True], BOOL), changes], 0).slice(0, size, axis=0)
    starts = _true_places(first)[0]
    inverse = b.op(std.CumSum, first.cast(INT64), b.constant(0)) - 1
    ends = b.concat([starts.slice(1, 2**31 - 1, axis=0), size], 0).slice(0, starts.sizes(), axis=0)
    return [flat.take(starts), reshape_to(inverse, x.sizes()), ends - starts]


@translates(aten.bincount.default)
def _bincount(n: AtenCall, x: Expr, weights: Expr | None = None, minlength: Size = 0) -> Expr:
    b, numbers = n.b, _places(x)
    count = largest(b.concat([b.ints(-1), numbers], 0)) + 1
    count = count.maximum(b.sizes([vector_of(minlength)]))
    rows = b.fill(1, numbers.sizes(), INT64) if weights is None else weights.cast(n.dtype)
    return add_rows(rows.unsqueeze(1), numbers, count).squeeze(1)


@translates(aten.histc.default)
def _histc(n: AtenCall, x: Expr, bins: int = 100, min: float = 0, max: float = 0) -> Expr:
    """How many elements each of equal parts of a range has; the last part has its end."""
    b, flat = n.b, with_axes(x).reshape(-1)
    if min == max:
        low, high = (b.op(op, flat, keepdims=0) for op in (std.ReduceMin, std.ReduceMax))
        same = low.equals(high)
        low, high = b.where(same, low - 1, low), b.where(same, high + 1, high)
    else:
        low, high = (n.scalar(bound, x.dtype) for bound in (min, max))
    inside = (flat >= low) & (flat <= high)
    place = (b.where(inside, flat - low, 0) * bins / (high - low)).cast(INT64).minimum(b.constant(bins - 1))
    ones = b.fill(1, flat.sizes(), x.dtype)
    return add_rows(ones.unsqueeze(1), b.where(inside, place, bins), bins).squeeze(1)
