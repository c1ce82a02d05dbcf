"""Scattering that reduces: updates of the same place accumulate, before the operators could say so (16, 18)."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import stated
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.opset.registry import Site, before

_INT64 = ir.DataType.INT64
_COMBINE: dict[str, type[std.Standard]] = {"add": std.Add, "mul": std.Mul, "max": std.Max, "min": std.Min}


@before(18, std.ScatterND, std.ScatterElements)
def scatter_extremes(site: Site) -> Sequence[Expr] | None:
    """Reductions max and min are of 18."""
    return _written_out(site) if site.attribute("reduction", "none") in ("max", "min") else None


@before(16, std.ScatterND, std.ScatterElements)
def scatter_sums(site: Site) -> Sequence[Expr] | None:
    """Reductions add and mul are of 16."""
    return _written_out(site) if site.attribute("reduction", "none") != "none" else None


def _written_out(site: Site) -> Sequence[Expr]:
    reduction = site.attribute("reduction")
    if reduction not in _COMBINE:
        raise site.refusal("attribute reduction", f"one of none, {', '.join(_COMBINE)}", reduction)
    if site.dtype() in (ir.DataType.BOOL, ir.DataType.STRING):
        raise site.refusal(
            "data", f"numbers for reduction {reduction} in opset {site.target}", site.dtype().name.lower()
        )
    data, indices, updates = (site.input(index) for index in range(3))
    if site.operator is std.ScatterND:
        shape = indices.shape
        depth = shape[-1] if shape else None
        if not isinstance(depth, int):
            raise site.refusal("indices", f"a known last size to be written in opset {site.target}", depth)
        rank = len(shape) if shape is not None else 0
    else:
        indices = _coordinates(site, indices)
        depth, rank = site.rank(), site.rank() + 1
    if rank != 2:
        rest = tail_of(data, depth)
        updates = site.builder.op(std.Reshape, updates, site.builder.concat([site.builder.ints(-1), rest], axis=0))
        indices = indices.reshape(-1, depth)
    return [_scatter(site.builder, data, indices, updates, depth, _COMBINE[reduction])]


def _coordinates(site: Site, indices: Expr) -> Expr:
    """The full index [..., rank] in `data` of every element of ScatterElements' `indices`."""
    b, rank = site.builder, site.rank()
    axis = site.attribute("axis", 0) % rank
    sizes = indices.sizes()
    parts = []
    for place in range(rank):
        if place == axis:
            part = indices.cast(_INT64)
        else:
            size = sizes.take(place)
            steps = up_to(b, size)
            others = [other for other in range(rank) if other != place]
            part = b.op(std.Expand, steps.unsqueeze(*others) if others else steps, sizes)
        parts.append(part.unsqueeze(rank))
    return b.concat(parts, axis=rank)


def _scatter(b: Builder, data: Expr, indices: Expr, updates: Expr, depth: int, combine: type[std.Standard]) -> Expr:
    """Applies the updates in rounds: in round `r` the r-th update of every place, so that no place comes twice.

    The order of the updates of a place is kept, hence results are those of a sequential loop, bit for bit. Sorting
    finds the updates of a place; TopK puts the earlier of equal elements first. Only the places that are updated are
    carried through the rounds.

    Args:
        b: where nodes go.
        data: [d1, ..., dr].
        indices: [N, depth], int64, may be negative.
        updates: [N, *data.shape[depth:]].
        depth: leading axes of `data` that are indexed.
        combine: operator that combines the old value with an update.
    """
    sizes = data.sizes().slice(0, depth, axis=0)
    indices = b.where(indices < 0, indices + sizes, indices)
    place = indices.slice(0, 1, axis=1)
    for axis in range(1, depth):
        place = place * sizes.slice(axis, axis + 1, axis=0) + indices.slice(axis, axis + 1, axis=1)
    place = place.reshape(-1)
    count = place.sizes()

    by_place = _Groups(b, place, count)
    one_of_each = indices.take(by_place.order.take(by_place.starts))
    position = up_to(b, count)
    # Every sorted element's number of its group, and how many of the group stand before it.
    group = b.op(std.CumSum, by_place.is_start, b.constant(0, _INT64)) - 1
    round_ = position - by_place.starts.take(group)

    by_round = _Groups(b, round_, count)
    group = group.take(by_round.order)
    updates = updates.take(by_place.order.take(by_round.order))
    bounds = b.concat([by_round.starts, count], axis=0)
    rounds = by_round.starts.sizes().squeeze(0)
    values = b.op(std.GatherND, data, one_of_each)

    inner = b.inner("round")
    index = _parameter(inner, "index", _INT64, ())
    condition = _parameter(inner, "condition", ir.DataType.BOOL, ())
    carried = _parameter(inner, "values", data.dtype, None)
    first, last = (bounds.take(number).unsqueeze(0) for number in (index, index + 1))
    now = group.slice(first, last, axis=0)
    new = inner.op(combine, carried.take(now), updates.slice(first, last, axis=0))
    after = inner.op(std.ScatterND, carried, now.unsqueeze(1), new)
    body = inner.graph
    body.inputs.extend([index.value, condition.value, carried.value])
    body.outputs.extend([inner.op(std.Identity, condition).value, after.value])
    values = b.op(std.Loop, rounds, b.constant(value=True, dtype=ir.DataType.BOOL), values, body=body)
    return b.op(std.ScatterND, data, one_of_each, values)


class _Groups:
    """Equal elements of a vector of numbers from 0 on, brought together by a stable sort.

    Attributes:
        order: [N], where each sorted element came from.
        is_start: [N], 1 at the first sorted element of each group, else 0.
        starts: [groups], positions of these.
    """

    def __init__(self, b: Builder, values: Expr, count: Expr) -> None:
        ordered, self.order = b.ops(std.TopK, values, count, outputs=2, axis=0, largest=0, sorted=1)
        ordered.value.type = self.order.value.type = ir.TensorType(_INT64)
        # Without elements the last of the shifted ones is cut off by broadcasting.
        before_ = b.concat([b.ints(-1), ordered.slice(0, -1, axis=0)], axis=0)
        differs = ~ordered.equals(before_)
        self.is_start = differs.cast(_INT64)
        self.starts = b.op(std.NonZero, differs).squeeze(0)


def _parameter(builder: Builder, role: str, dtype: ir.DataType, shape: tuple[int, ...] | None) -> Expr:
    value = ir.Value(
        name=builder.names.fresh(f"{builder.scope}/{role}"),
        type=ir.TensorType(dtype),
        shape=None if shape is None else stated(shape),
    )
    return Expr(builder, value)
