"""Operators that sample images at computed places, as lookups and weights; MaxRoiPool as those of its bins."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES, widened
from lstm_lower.passes.formulas.rows import INT64, largest, reshape_to
from lstm_lower.passes.formulas.sizes import Size, divided, entries, remainder, scalar, up_to, wide
from lstm_lower.passes.formulas.special_functions import rounded
from lstm_lower.passes.rewriting import decomposes

# Of the cubic interpolation (Keys, 1981), as ONNX has it.
_CUBIC = -0.75


class Image:
    """An image whose elements are looked up.

    Attributes:
        sizes: along each spatial axis.
    """

    def __init__(self, x: Expr) -> None:
        """Takes an image `[N, C, ...]`."""
        rank = len(x.shape or ())
        b = x.builder
        self.sizes = [x.size(axis) for axis in range(2, rank)]
        flat = reshape_to(x, b.sizes([x.size(0), x.size(1), functools.reduce(operator.mul, self.sizes)]))
        self._elements = flat.transpose(0, 2, 1)

    def at(self, places: Sequence[Expr]) -> Expr:
        """Elements `[N, P, C]` at places `[N, P]` along each spatial axis, integers within the image."""
        numbers = places[0]
        for size, place in zip(self.sizes[1:], places[1:], strict=True):
            numbers = numbers * size + place
        return numbers.builder.op(std.GatherND, self._elements, numbers.unsqueeze(-1), batch_dims=1)


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How an image is sampled at places between its elements.

    Attributes:
        mode: `linear`, `nearest` or `cubic`.
        padding: what is beyond the image: `zeros`, `border` or `reflection`.
        align_corners: whether -1 and 1 are the middles of the first and the last element, not their outer edges.
    """

    mode: str
    padding: str
    align_corners: bool


class _Axis:
    """Places along one spatial axis of a GridSample.

    Attributes:
        size: the number of elements, as a number of the places' dtype.
    """

    def __init__(self, op: Sampling, size: Size, like: Expr) -> None:
        self.op = op
        b = like.builder
        self.size = number_of(b, size, like.dtype)
        self.low, self.high = (like.like(0), self.size - 1) if op.align_corners else (like.like(-0.5), self.size - 0.5)

    def from_grid(self, grid: Expr) -> Expr:
        """Places from the grid's numbers, -1 to 1, brought back into the image if the padding does so.

        In mode cubic it does that with the elements around them alone, in onnxruntime and in PyTorch.
        """
        x = (grid + 1) / 2 * (self.size - 1) if self.op.align_corners else ((grid + 1) * self.size - 1) / 2
        x = x.builder.op(std.Round, x) if self.op.mode == "nearest" else x
        if self.op.padding == "zeros" or self.op.mode == "cubic":
            return x
        b, last = x.builder, self.size - 1
        if self.op.padding == "reflection":
            x = b.where((x < self.low) | (x > self.high), self.inside(x), x)
        # As in PyTorch, places on the first and on the last element have no gradient, as those beyond them.
        before, behind = x <= 0, x >= last
        return b.where(before, 0, b.where(behind, last, x))

    def inside(self, x: Expr) -> Expr:
        """Places brought back into the image by the padding."""
        if self.op.padding == "border":
            return x.maximum(0).minimum(self.size - 1)
        span = self.high - self.low
        distance = (x - self.low).abs()
        # Of an image of one element all places are that.
        span = span.builder.where(span > 0, span, 1)
        whole = (distance / span).floor()
        rest = distance - whole * span
        odd = whole - (whole / 2).floor() * 2 > 0
        return x.builder.where(odd, self.high - rest, self.low + rest)

    def element(self, x: Expr) -> tuple[Expr, Expr | None]:
        """The number of the element at a whole place, and where that is one; `None` for everywhere."""
        b = x.builder
        found = None if self.op.padding == "zeros" else self.inside(x)
        exists = None
        if found is None:
            exists = (x > -1) & (x < self.size)
            found = x
        # Whole numbers are not always that after turning round.
        whole = b.op(std.Round, found).maximum(0).minimum(self.size - 1)
        return whole.cast(INT64), exists

    def weighted(self, x: Expr) -> list[tuple[Expr, Expr | None]]:
        """Whole places near a place, with their weights."""
        if self.op.mode == "nearest":
            return [(x, None)]
        floor = x.floor()
        part = x - floor
        if self.op.mode == "linear":
            return [(floor, 1 - part), (floor + 1, part)]
        return [(floor + offset, weight) for offset, weight in zip((-1, 0, 1, 2), _cubic(part), strict=True)]


def _cubic(t: Expr) -> list[Expr]:
    """The weights of four elements, of which the second lies `t` before."""

    def near(d: Expr) -> Expr:
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1

    def far(d: Expr) -> Expr:
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@decomposes(std.GridSample)
def _grid_sample(op: std.GridSample, b: Builder) -> Expr:
    data = b.wrap(op.data)
    if data.shape is None:
        raise op.unsupported("X, for the gradient,", "a known rank", std.undeclared(op.data))
    return grid_sampled(data, b.wrap(op.grid), Sampling(op.mode, op.padding, bool(op.align_corners)))


def grid_sampled(data: Expr, grid: Expr, how: Sampling) -> Expr:
    """The sum of the elements around each place by their weights.

    Args:
        data: images `[N, C, ...]`.
        grid: places `[N, ..., axes]`, the last axis first.
        how: the options.
    """
    b, grid = data.builder, widened(grid)
    image, x = Image(widened(data)), len(data.shape or ()) - 2
    sizes = [grid.size(axis) for axis in range(x + 1)]
    count = functools.reduce(operator.mul, sizes[1:])
    flat = reshape_to(grid, b.sizes([sizes[0], count, x]))
    # The grid tells of the last axis first.
    parts = [flat.slice(x - 1 - axis, x - axis, axis=2).squeeze(2) for axis in range(x)]
    axes = [_Axis(how, size, part) for size, part in zip(image.sizes, parts, strict=True)]
    near = [axis.weighted(axis.from_grid(part)) for axis, part in zip(axes, parts, strict=True)]
    terms = []
    for corner in itertools.product(*near):
        places, exist = zip(*(axis.element(at) for axis, (at, _) in zip(axes, corner, strict=True)), strict=True)
        weight = _product([w for _, w in corner if w is not None], operator.mul)
        within = _product([e for e in exist if e is not None], functools.partial(b.op, std.And))
        term = image.at(places)
        term = term if weight is None else term * weight.unsqueeze(-1).cast(term.dtype)
        terms.append(term if within is None else b.where(within.unsqueeze(-1), term, 0))
    total = functools.reduce(operator.add, terms).transpose(0, 2, 1)
    return reshape_to(total, b.sizes([sizes[0], data.size(1), *sizes[1:]])).cast(data.dtype)


def _product(factors: Sequence[Expr], by: Callable[[Expr, Expr], Expr]) -> Expr | None:
    return functools.reduce(by, factors) if factors else None


@decomposes(std.AffineGrid)
def _affine_grid(op: std.AffineGrid, b: Builder) -> Expr:
    """Theta times the even places of an image and 1."""
    theta = b.wrap(op.theta)
    ranks = b.facts.shape(op.size), b.facts.shape(op.output)
    known = [dim for dim in (theta.shape or ())[1:2] if isinstance(dim, int)]
    known += [dim - 2 for dim in (ranks[0] or ()) if isinstance(dim, int)]
    known += [len(ranks[1]) - 2] if ranks[1] is not None else []
    rows = known[0] if known else None
    if not isinstance(rows, int):
        raise op.unsupported(
            "theta, for the gradient,",
            "a known size of axis 1, the number of spatial axes",
            std.undeclared(op.theta),
        )
    size = wide(b.wrap(op.size))
    sizes = entries(size) or [size.slice(i, i + 1, axis=0) for i in range(rows + 2)]
    return affine_places(theta, sizes, align_corners=bool(op.align_corners))


def affine_places(theta: Expr, sizes: Sequence[Size], *, align_corners: bool) -> Expr:
    """Where the elements of images are, moved: `[N, ..., axes]`, the last axis first.

    Args:
        theta: `[N, axes, axes + 1]`.
        sizes: of the images `[N, C, ...]`, each a number or a tensor of one.
        align_corners: see `Sampling`; the one element of an axis is in the middle.
    """
    b, rows = theta.builder, len(sizes) - 2
    parts = []
    for axis, count in enumerate(sizes[2:]):
        number = number_of(b, count, theta.dtype)
        steps = up_to(b, count).cast(theta.dtype)
        if align_corners:
            even = steps / (number - 1).maximum(1) * 2 - (number - 1).minimum(1)
        else:
            even = (steps * 2 + 1) / number - 1
        behind = rows - 1 - axis
        even = even.unsqueeze(*range(1, behind + 1))
        parts.append(b.op(std.Expand, even, b.sizes(sizes[2:])).reshape(-1, 1))
    # The grid tells of the last axis first.
    ones = b.op(std.Expand, theta.like(1), parts[0].sizes())
    places = b.concat([*reversed(parts), ones], 1)
    return reshape_to(places @ theta.transpose(0, 2, 1), b.sizes([sizes[0], *sizes[2:], rows]))


@decomposes(std.RoiAlign)
def _roi_align(op: std.RoiAlign, b: Builder) -> Expr:
    """The mean, or the largest weighted element, of samples at even distances in each bin of a region."""
    x, rois = b.wrap(op.data), b.wrap(op.rois)
    dtype = COMPUTE_DTYPES.get(x.dtype, x.dtype)
    maps = x.cast(dtype).take(b.wrap(op.batches))
    image = Image(maps)
    bounds = rois.cast(dtype) * op.scale - (0.5 if op.coordinates == "half_pixel" else 0)
    sides = [_Side(op, bounds, axis, number_of(b, maps.size(axis + 2), dtype)) for axis in (0, 1)]
    rows, columns = sides
    counts = [rois.size(0), op.height, rows.most, op.width, columns.most]
    total = functools.reduce(operator.mul, counts[1:])

    def both(row: Expr, column: Expr, by: Callable[[Expr, Expr], Expr]) -> Expr:
        """A number for each sample of each bin, from those of rows and of columns."""
        return reshape_to(by(row.unsqueeze(2), column.unsqueeze(1)), b.sizes([counts[0], total]))

    terms = []
    for row, column in itertools.product(rows.near, columns.near):
        places = [both(row[0], column[0], lambda r, c: r + c * 0), both(row[0], column[0], lambda r, c: r * 0 + c)]
        terms.append(image.at(places) * both(row[1], column[1], operator.mul).unsqueeze(-1))
    within, exists = (
        both(*masks, functools.partial(b.op, std.And)).unsqueeze(-1)
        for masks in ((rows.within, columns.within), (rows.exists, columns.exists))
    )
    number = (rows.number * columns.number).unsqueeze(2, 3)
    shape = b.sizes([*counts, x.size(1)])
    if op.mode == "max":
        found = b.where(within, functools.reduce(lambda one, other: one.maximum(other), terms), 0)
        found = reshape_to(b.where(exists, found, -math.inf), shape).reduce(std.ReduceMax, [2, 4], keepdims=False)
        found = b.where(number > 0, found, 0)
    else:
        both_masks = within & exists
        found = reshape_to(b.where(both_masks, functools.reduce(operator.add, terms), 0), shape)
        found = found.sum([2, 4]) / number.maximum(1)
    return found.transpose(0, 3, 1, 2).cast(x.dtype)


class _Side:
    """The samples of all regions along one axis, counted by bin and by sample in it.

    Attributes:
        number: how many samples a bin has, `[R, 1]`.
        most: how many there is room for.
        near: the two elements around each sample, `[R, bins * most]`, with their weights.
        within: which samples lie in the image.
        exists: which of those that there is room for are samples.
    """

    def __init__(self, op: std.RoiAlign, bounds: Expr, axis: int, size: Expr) -> None:
        b, bins = bounds.builder, (op.height, op.width)[axis]
        start, end = (bounds.slice(i, i + 1, axis=1) for i in (1 - axis, 3 - axis))
        length = end - start if op.coordinates == "half_pixel" else (end - start).maximum(1)
        self.most: Size = op.samples
        if op.samples > 0:
            self.number = b.constant([[op.samples]], bounds.dtype)
        else:
            # As many as there are elements in a bin.
            self.number = b.op(std.Ceil, length / bins).maximum(0)
            flat = b.concat([self.number.reshape(-1), b.constant([1], bounds.dtype)], 0)
            self.most = b.op(std.ReduceMax, flat, keepdims=1).cast(INT64)
        numbers = up_to(b, self.most).cast(bounds.dtype)
        number = self.number.unsqueeze(2)
        part = (numbers + 0.5) / number.maximum(1)
        bin_ = b.constant([[i] for i in range(bins)], bounds.dtype)
        places = start.unsqueeze(2) + (bin_ + part) * (length / bins).unsqueeze(2)
        flat_sizes = b.sizes([bounds.size(0), self.most * bins])
        there = b.op(std.Expand, numbers < number, places.sizes())
        self.exists = reshape_to(there, flat_sizes)
        self.near, self.within = _samples(reshape_to(places, flat_sizes), size)


def number_of(b: Builder, size: Size, dtype: ir.DataType) -> Expr:
    """A size as a number of a dtype."""
    return b.constant(size, dtype) if isinstance(size, int) else scalar(b, size).cast(dtype)


def _samples(x: Expr, size: Expr) -> tuple[list[tuple[Expr, Expr]], Expr]:
    """The two elements around each place with their weights, and which places lie within one of the image."""
    b = x.builder
    inside = ~((x < -1) | (x > size))
    x = x.maximum(0)
    low = x.floor().minimum(size - 1)
    x = b.where(x > size - 1, low, x)
    part = x - low
    pairs = [(low, 1 - part), ((low + 1).minimum(size - 1), part)]
    return [(place.cast(INT64), weight) for place, weight in pairs], inside


@decomposes(std.STFT)
def _stft(op: std.STFT, b: Builder) -> Expr:
    """The discrete Fourier transform of each frame, weighted by the window."""
    signal, window = b.wrap(op.signal), None if op.window is None else b.wrap(op.window)
    step = b.wrap(op.step).cast(INT64).reshape(1)
    if op.length is not None:
        length: Size = b.wrap(op.length).cast(INT64).reshape(1)
    else:
        assert window is not None
        length = window.size(0)
    if signal.shape is not None and len(signal.shape) == 2:
        signal = signal.unsqueeze(2)
    frames = divided(signal.size(1) - length, step) + 1
    places = (up_to(b, frames) * step).unsqueeze(1) + up_to(b, length).unsqueeze(0)
    framed = signal.take(places, axis=1)
    framed = framed if window is None else framed * window.cast(framed.dtype).unsqueeze(1)
    return b.op(std.DFT, framed, None, b.constant(2, INT64), onesided=op.onesided)


@decomposes(std.DeformConv)
def _deform_conv(op: std.DeformConv, b: Builder) -> Expr:
    """For each place of the kernel the image at that place and its offset, times the mask; then a product."""
    x, weights, offsets = b.wrap(op.data), b.wrap(op.weights), b.wrap(op.offsets)
    if x.shape is None or len(x.shape) != 4:
        raise op.unsupported("X, for the gradient,", "rank 4", x.shape)
    kernel: list[Size] = list(op.kernel) if op.kernel is not None else [weights.size(axis) for axis in (2, 3)]
    dtype = COMPUTE_DTYPES.get(x.dtype, x.dtype)
    # Offset groups count as images of their own.
    groups, places = op.offset_groups, kernel[0] * kernel[1]
    sizes: list[Size] = [x.size(axis) for axis in range(4)]
    images: Size = sizes[0] * groups
    channels = divided(sizes[1], groups)
    image = Image(reshape_to(x.cast(dtype), b.sizes([images, channels, *sizes[2:]])))
    out = [offsets.size(2), offsets.size(3)]
    total = out[0] * out[1]
    moved = reshape_to(offsets.cast(dtype), b.sizes([images, places, 2, *out]))
    near = []
    strides, pads, dilations = op.strides, op.pads, op.dilations
    assert strides is not None
    assert pads is not None
    assert dilations is not None
    for axis in range(2):
        steps = up_to(b, out[axis]) * strides[axis] - pads[axis][0]
        steps = steps.unsqueeze(1) if axis == 0 else steps
        base = (_taps(b, kernel, axis, dilations[axis]).unsqueeze(1, 2) + steps).cast(dtype)
        at = moved.slice(axis, axis + 1, axis=2).squeeze(2) + base
        near.append(_around(reshape_to(at, b.sizes([images, total * places])), number_of(b, sizes[2 + axis], dtype)))
    terms = []
    for row, column in itertools.product(*near):
        term = image.at([row[0], column[0]]) * (row[1] * column[1]).unsqueeze(-1)
        terms.append(b.where((row[2] & column[2]).unsqueeze(-1), term, 0))
    sampled = functools.reduce(operator.add, terms)
    if op.mask is not None:
        mask = reshape_to(b.wrap(op.mask).cast(dtype), b.sizes([images, total * places]))
        sampled = sampled * mask.unsqueeze(-1)
    # [N * offset groups, places * out, channels] -> [N, groups, channels * places, out].
    rows = divided(sizes[1], op.group)
    columns = reshape_to(sampled.transpose(0, 2, 1), b.sizes([sizes[0], op.group, rows * places, total]))
    outputs = weights.size(0)
    matrix = reshape_to(weights.cast(dtype), b.sizes([op.group, divided(outputs, op.group), rows * places]))
    result = reshape_to(matrix @ columns, b.sizes([sizes[0], outputs, *out]))
    if op.bias is not None:
        result = result + b.wrap(op.bias).cast(dtype).unsqueeze(1, 2)
    return result.cast(x.dtype)


def _taps(b: Builder, kernel: list[Size], axis: int, dilation: int) -> Expr:
    """Where each place of the kernel lies along an axis."""
    height, width = kernel
    if isinstance(height, int) and isinstance(width, int):
        return b.constant([(k // width, k % width)[axis] * dilation for k in range(height * width)], INT64)
    found = (divided, remainder)[axis](up_to(b, height * width), width)
    assert isinstance(found, Expr)
    return found * dilation


def _around(at: Expr, size: Expr) -> list[tuple[Expr, Expr, Expr]]:
    """The elements before and behind a place, their weights, and whether they are in the image."""
    floor = at.floor()
    part = at - floor
    found = []
    for place, weight in ((floor, 1 - part), (floor + 1, part)):
        inside = (place > -1) & (place < size)
        found.append((place.maximum(0).minimum(size - 1).cast(INT64), weight, inside))
    return found


@decomposes(std.MaxRoiPool)
def _max_roi_pool(op: std.MaxRoiPool, b: Builder) -> Expr:
    """The first of the largest elements of each bin of a region; 0 where a bin has none."""
    x, rois = b.wrap(op.data), b.wrap(op.rois)
    dtype = COMPUTE_DTYPES.get(x.dtype, x.dtype)
    of = rois.slice(0, 1, axis=1).squeeze(1).cast(INT64)
    maps = x.take(of)
    corners = rounded(rois.slice(1, 5, axis=1).cast(dtype) * op.scale)
    sides = [_Bins(corners, axis, op.bins[axis], number_of(b, maps.size(axis + 2), dtype)) for axis in (0, 1)]
    sizes = [rois.size(0), op.bins[0], sides[0].most, op.bins[1], sides[1].most]
    flat = b.sizes([sizes[0], functools.reduce(operator.mul, sizes[1:])])
    # [R, bins, places] -> [R, bins, places, 1, 1] and [R, 1, 1, bins, places].
    apart = [(3, 4), (1, 2)]
    places = [
        reshape_to(b.op(std.Expand, side.places.unsqueeze(*axes), b.sizes(sizes)), flat)
        for side, axes in zip(sides, apart, strict=True)
    ]
    # [R, places, C] -> [R, C, bins, bins, all places of a bin].
    found = reshape_to(Image(maps).at(places), b.sizes([*sizes, x.size(1)])).transpose(0, 5, 1, 3, 2, 4)
    exists = [side.exists.unsqueeze(*axes) for side, axes in zip(sides, apart, strict=True)]
    both = b.op(std.And, *exists).unsqueeze(1).transpose(0, 1, 2, 4, 3, 5)
    whole = b.sizes([sizes[0], x.size(1), *op.bins, sides[0].most * sides[1].most])
    found = reshape_to(b.where(both, found, -math.inf), whole)
    place = b.op(std.ArgMax, found, axis=4, keepdims=1)
    best = b.op(std.GatherElements, found, place, axis=4).squeeze(4)
    counts = [side.exists.cast(INT64).sum(2) for side in sides]
    some = counts[0].unsqueeze(2) * counts[1].unsqueeze(1) > 0
    return b.where(some.unsqueeze(1), best, 0)


class _Bins:
    """The bins of all regions along one axis.

    Attributes:
        most: how many elements a bin has at most.
        places: the numbers of its elements, `[R, bins, most]`, of the image's last one where there are no more.
        exists: which of these are its own.
    """

    def __init__(self, corners: Expr, axis: int, bins: int, size: Expr) -> None:
        b = corners.builder
        first, last = (corners.slice(i, i + 1, axis=1) for i in (1 - axis, 3 - axis))
        bin_ = (last - first + 1).maximum(1) / bins
        numbers = up_to(b, bins).cast(corners.dtype)
        start, end = (
            (b.op(rounding, at * bin_) + first).maximum(0).minimum(size)
            for rounding, at in ((std.Floor, numbers), (std.Ceil, numbers + 1))
        )
        # Room for one, if all are empty.
        lengths = b.concat([(end - start).reshape(-1), b.constant([1], corners.dtype)], 0)
        self.most = largest(lengths).cast(INT64)
        places = start.unsqueeze(2) + up_to(b, self.most).cast(corners.dtype)
        self.exists = places < end.unsqueeze(2)
        self.places = places.minimum(size - 1).cast(INT64)
