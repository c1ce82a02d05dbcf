"""MaxRoiPool as lookups of the elements of its bins."""

from __future__ import annotations

import functools
import math
import operator

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.decompositions.images import Image, number_of
from lstm_lower.passes.decompositions.registry import decomposes
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.formulas.rows import INT64, largest, reshape_to
from lstm_lower.passes.formulas.sizes import up_to


@decomposes(std.MaxRoiPool)
def _max_roi_pool(op: std.MaxRoiPool, b: Builder) -> Expr:
    """The first of the largest elements of each bin of a region; 0 where a bin has none."""
    x, rois = b.wrap(op.data), b.wrap(op.rois)
    dtype = COMPUTE_DTYPES.get(x.dtype, x.dtype)
    of = rois.slice(0, 1, axis=1).squeeze(1).cast(INT64)
    maps = x.take(of)
    corners = _rounded(rois.slice(1, 5, axis=1).cast(dtype) * op.scale)
    sides = [_Side(corners, axis, op.bins[axis], number_of(b, maps.size(axis + 2), dtype)) for axis in (0, 1)]
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


def _rounded(x: Expr) -> Expr:
    """To the nearest whole number, halves away from zero."""
    b = x.builder
    return b.op(std.Sign, x) * (x.abs() + 0.5).floor()


class _Side:
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
