"""Lowering of the ops on ragged arrays.

Symbols: N rows, V values. Splits are the places where rows begin,
and behind them where the last one ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import INDEX, PAIRED, RawOp, shape_of
from lstm_lower.passes.formulas.kernels import computed, movable
from lstm_lower.passes.formulas.rows import INT64, flatten_rows, tail_of
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.rules.filling import expanded, full
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _owners(splits: Expr) -> Expr:
    """The row of each value: how many of the rows behind the first begin at it or before."""
    b = splits.builder
    ends = splits.slice(1, 2**62, axis=0)
    total = b.set_shape(splits.slice(-1, 2**62, axis=0), [1])
    # One more place, for rows that begin where the last value ends.
    marks = full(total + 1, 0, INT64)
    ones = full(ends.sizes(), 1, INT64)
    began = b.op(std.CumSum, _added(marks, ends, ones), b.constant(0, INT64))
    return began.slice(0, total, axis=0)


def _added(zeros: Expr, places: Expr, values: Expr) -> Expr:
    return zeros.builder.op(std.ScatterND, zeros, places.unsqueeze(1), values, reduction="add")


def _begun(splits: Expr) -> Expr:
    return splits.slice(0, -1, axis=0)


def _places(starts: Expr, owners: Expr) -> Expr:
    """How far each value stands behind the beginning of its row."""
    b = owners.builder
    return up_to(b, owners.sizes()) - starts.take(owners)


def _splits_of(lengths: Expr) -> Expr:
    b = lengths.builder
    return concat([b.ints(0), b.op(std.CumSum, lengths, b.constant(0, INT64))], 0)


def _splits_by(owners: Expr, rows: Expr) -> Expr:
    """Splits from the row of each value."""
    ones = full(owners.sizes(), 1, INT64)
    return _splits_of(_added(full(rows, 0, INT64), owners, ones))


def _coordinates(levels: Sequence[Expr], owners: Sequence[Expr | None]) -> list[Expr]:
    """The place of each value along the outermost axis and along that of each level of splits."""
    found = list[Expr]()
    for splits, known in zip(levels, owners, strict=True):
        row = _owners(splits) if known is None else known
        found = [place.take(row) for place in found] or [row]
        found.append(_places(_begun(splits), row))
    return found


def _longest(splits: Expr) -> Expr:
    """The length of the longest row, 0 where there is none."""
    b = splits.builder
    lengths = splits.slice(1, 2**62, axis=0) - _begun(splits)
    return b.op(std.ReduceMax, concat([b.ints(0), lengths], 0), keepdims=1)


def _count(splits: Expr) -> Expr:
    return splits.sizes() - 1


# How a partition tells rows apart; the first may tell only how many rows there are.
PARTITIONS = ("FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS")


class RaggedTensorToTensor(RawOp):
    """A ragged array as a dense one, with `default_value` behind the ends of rows.

    Sizes of `shape` that are -1 are those of the longest row; what does not fit into others is cut off.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """A name for each partition, of which only the first may be a number of rows."""
        types = call.attributes["row_partition_types"]
        if len(types) != len(call.lists["row_partition_tensors"]):
            raise call.error("attribute row_partition_types", "a name for each of row_partition_tensors", types)
        wrong = [name for name in types if name not in PARTITIONS]
        if wrong or not types or PARTITIONS[0] in types[1:] or types == [PARTITIONS[0]]:
            raise call.error("attribute row_partition_types", f"names of {', '.join(PARTITIONS)}", types)


@lowers(RaggedTensorToTensor, repeatable=True)
def ragged_tensor_to_tensor(n: Node, b: Builder) -> Expr:
    """Values written at their places into an array of the default that holds all of them, cut to what is asked for."""
    values = movable(n.moved("values"))
    rank, levels, owners, rows = rank_of(n, "values", values), list[Expr](), list["Expr | None"](), None
    for kind, given in zip(n.row_partition_types, n.variadic("row_partition_tensors"), strict=True):
        partition = wide(given)
        if kind == PARTITIONS[0]:
            rows = partition.reshape(1)
            continue
        if kind == PARTITIONS[1]:
            # Of an inner level there are as many rows as the level around it has values.
            many = rows if not levels else levels[-1].slice(-1, 2**62, axis=0)
            if many is None:
                raise n.unsupported(
                    "row_partition_types", f"{PARTITIONS[0]} before {kind}", list(n.row_partition_types)
                )
            levels.append(_splits_by(partition, many))
        else:
            levels.append(partition)
        owners.append(partition if kind == PARTITIONS[1] else None)
    natural = [_count(levels[0]), *map(_longest, levels)]
    sizes = _asked(n, b, natural)
    room = [found if size is None else size.maximum(found) for size, found in zip(sizes, natural, strict=True)]
    inner = tail_of(values, 1)
    base = expanded(movable(n.moved("default_value")), concat([*room, inner], 0) if rank > 1 else concat(room, 0))
    places = concat([place.unsqueeze(1) for place in _coordinates(levels, owners)], 1)
    made = b.op(std.ScatterND, base, places, values)
    for axis, size in enumerate(sizes):
        made = made if size is None else made.slice(0, size, axis=axis)
    return made


def _asked(n: Node, b: Builder, natural: Sequence[Expr]) -> list[Expr | None]:
    """The sizes of the ragged axes that are asked for, `None` where any will do."""
    known, shape = n.constant("shape"), wide(n.shape)
    if rank_of(n, "shape", shape) == 0:
        return [None] * len(natural)
    if known is not None:
        sizes = [int(size) for size in known[: len(natural)]]
        return [None if size < 0 else b.ints(size) for size in sizes]
    asked = [shape.slice(axis, axis + 1, axis=0) for axis in range(len(natural))]
    return [b.where(size < 0, found, size) for size, found in zip(asked, natural, strict=True)]


class RaggedRange(RawOp, T=(*PAIRED, *INDEX)):
    """Rows of numbers: from `starts` up to below `limits`, by steps of `deltas`, of which each may be one for all."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Scalars and vectors."""
        for name in ("starts", "limits", "deltas"):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > 1:
                raise call.error(name, "rank 1 at most", f"rank {len(shape)}")


@lowers(RaggedRange, repeatable=True)
def ragged_range(n: Node, b: Builder) -> list[Expr]:
    """The number of each value within its row, times the step, behind the start."""
    operands = [computed(n.operand(name)) for name in ("starts", "limits", "deltas")]
    ranks = [rank_of(n, name, x) for name, x in zip(("starts", "limits", "deltas"), operands, strict=True)]
    rows = [x.sizes() for x, rank in zip(operands, ranks, strict=True) if rank]
    start, limit, step = (expanded(x, rows[0] if rows else b.ints(1)) for x in operands)
    kind = start.dtype
    if kind.is_floating_point():
        lengths = b.op(std.Ceil, ((limit - start) / step).abs()).cast(INT64)
    else:
        lengths = (((limit - start).abs() + step.abs()).cast(INT64) - 1) / step.abs().cast(INT64)
    forward = b.op(std.Sign, limit - start).equals(b.op(std.Sign, step))
    splits = _splits_of(b.where(forward, lengths, 0))
    owners = _owners(splits)
    first, by = (x.take(owners) for x in (start, step))
    return [splits, first + by * _places(_begun(splits), owners).cast(kind)]


class RaggedGather(RawOp, indices="N"):
    """The rows of a ragged array that a vector of indices names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A partition or more, and as many of the result: a vector of indices adds none."""
        count, wanted = len(call.lists["params_nested_splits"]), call.attributes["OUTPUT_RAGGED_RANK"]
        if not count:
            raise call.error("params_nested_splits", "one tensor or more", "none")
        if wanted != count:
            raise call.error("attribute OUTPUT_RAGGED_RANK", f"{count}, the number of params_nested_splits", wanted)


@lowers(RaggedGather, repeatable=True)
def ragged_gather(n: Node, _: Builder) -> list[Expr]:
    """From each level to the next: the rows that are asked for, one behind another."""
    wanted, made = wide(n.indices), []
    for given in n.variadic("params_nested_splits"):
        splits = wide(given)
        start, end = (splits.take(wanted + behind) for behind in (0, 1))
        made.append(_splits_of(end - start))
        owners = _owners(made[-1])
        wanted = _places(_begun(made[-1]), owners) + start.take(owners)
    kind = n.variadic("params_nested_splits")[0].dtype
    values = n.moved("params_dense_values").take(wanted)
    return [*(splits.cast(kind) for splits in made), values]


class RaggedTensorToSparse(RawOp):
    """A ragged array as a sparse one, with an element for each of its numbers."""


@lowers(RaggedTensorToSparse, repeatable=True)
def ragged_tensor_to_sparse(n: Node, b: Builder) -> list[Expr]:
    """The place of each value, and within values that are arrays that of each number."""
    values = n.moved("rt_dense_values")
    rank, levels = rank_of(n, "rt_dense_values", values), [wide(splits) for splits in n.variadic("rt_nested_splits")]
    places = _coordinates(levels, [None] * len(levels))
    inner = tail_of(values, 1)
    if rank > 1:
        sizes = [inner.slice(axis, axis + 1, axis=0) for axis in range(rank - 1)]
        grid = concat([places[0].sizes(), inner], 0)
        places = [expanded(place.unsqueeze(*range(1, rank)), grid) for place in places]
        for axis, size in enumerate(sizes, start=1):
            along = up_to(b, size)
            behind = rank - 1 - axis
            places.append(expanded(along.unsqueeze(*range(1, behind + 1)), grid))
        places = [place.reshape(-1) for place in places]
    shape = concat([_count(levels[0]), *map(_longest, levels), *([inner] if rank > 1 else [])], 0)
    indices = concat([place.unsqueeze(1) for place in places], 1)
    return [
        indices,
        flatten_rows(values, rank),
        shape,
    ]
