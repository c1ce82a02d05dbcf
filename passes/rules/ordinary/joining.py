"""Lowering of the ops that join and divide arrays."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.graph.values import Entry
from lstm_lower.ops.ordinary.joining import Concat, ConcatV2, DynamicPartition, Pack, Split, SplitV, Unpack
from lstm_lower.passes.formulas.indices import from_front, within
from lstm_lower.passes.formulas.rows import flatten_rows
from lstm_lower.passes.formulas.sizes import Size, entries, wide
from lstm_lower.passes.rules.indexing import rank_of
from lstm_lower.passes.rules.registry import Node, lowers


def _axis(n: Node, operand: str) -> int:
    return int(n.fixed(operand).reshape(-1)[0])


@lowers(ConcatV2, Concat, repeatable=True)
def concat_(n: Node) -> dict[str, Expr]:
    """A Concat."""
    return {"output": concat(n.all_moved("values"), _axis(n, n.op.along))}


@lowers(Pack, repeatable=True)
def pack(n: Node) -> dict[str, Expr]:
    """A new axis for each, along which they are joined."""
    axis = int(n.axis)
    return {"output": concat([value.unsqueeze(axis) for value in n.all_moved("values")], axis)}


@lowers(Split, repeatable=True)
def split(n: Node) -> dict[str, list[Expr]]:
    """Equal parts."""
    x, count = n.moved("value"), int(n.num_split)
    return {"output": [x] if count == 1 else x.split(count, axis=_axis(n, "axis"))}


@lowers(SplitV, repeatable=True)
def split_v(n: Node) -> dict[str, list[Expr]]:
    """Parts of the given sizes; what is left over is known at run time, where it is."""
    b, x, axis = n.builder, n.moved("value"), _axis(n, "axis")
    given = wide(n.size_splits)
    sizes = entries(given)
    known = given.entries or ()
    if sizes is None or any(isinstance(size, Entry) for size in known):
        whole = x.size(axis)
        rest = whole - given.maximum(0).sum(0, keepdims=True)
        vector = b.where(given < 0, rest, given)
    else:
        if -1 in known:
            others: Size = 0
            for size in sizes:
                others = others if isinstance(size, int) and size == -1 else size + others
            sizes[known.index(-1)] = x.size(axis) - others
        vector = b.sizes(sizes)
    return {"output": b.ops(std.Split, x, vector, outputs=int(n.num_split), axis=axis)}


@lowers(Unpack, repeatable=True)
def unpack(n: Node) -> dict[str, list[Expr]]:
    """A Gather for each."""
    x = n.moved("value")
    numbers = range(int(n.num))
    return {"output": [x.take(i, axis=int(n.axis)) for i in numbers]}


@lowers(DynamicPartition, repeatable=True)
def dynamic_partition(n: Node) -> dict[str, list[Expr]]:
    """The rows at the places where each number stands."""
    b = n.builder
    rank = rank_of(n, "partitions", n.partitions)
    rows = flatten_rows(n.moved("data"), rank)
    groups = n.partitions if rank == 1 else n.partitions.reshape(-1)
    groups = within(from_front(groups), int(n.num_partitions))
    found = []
    for number in range(int(n.num_partitions)):
        places = b.op(std.NonZero, groups.equals(number)).reshape(-1)
        found.append(rows.take(places))
    return {"outputs": found}
