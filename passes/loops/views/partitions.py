"""Partitions: the values that a Split, or Slices side by side, cut a tensor into, and what a sequence is joined from.

A part of a sequence is cut from what it is laid together from along its first axis, without making the whole. The
states before each step, `concat(first, after)[:-1]`, are the usual case: two copies of a whole sequence, to move it by
one step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import lone_reader
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of

# Every block cuts its part out of each of them.
MOST_SEGMENTS = 4
# Nodes looked through, one behind the other.
MOST_NODES = 8


@dataclasses.dataclass(frozen=True)
class Partition:
    """A tensor cut up completely.

    Attributes:
        whole: the tensor.
        axis: the axis that is cut, not negative.
        values: the parts in order.
        sizes: their sizes along the axis.
    """

    whole: ir.Value
    axis: int
    values: tuple[ir.Value, ...]
    sizes: tuple[int, ...]


def partitions_of(facts: Facts, value: ir.Value) -> list[Partition]:
    """The ways a value is cut into two or more parts of known sizes, in its own graph."""
    shape = facts.shape(value)
    if shape is None:
        return []
    found: list[Partition] = []
    slices: dict[int, dict[int, tuple[int, ir.Value]]] = {}
    for node, index in value.uses():
        view = facts.view(node)
        if index != 0 or node.graph is None:
            continue
        if isinstance(view, std.Split):
            axis, sizes = view.axis, view.sizes
            if axis is not None and sizes is not None and len(sizes) > 1:
                found.append(Partition(value, axis, tuple(node.outputs), sizes))
        elif isinstance(view, std.Slice):
            cut = range_of(view)
            if cut is not None:
                slices.setdefault(cut[0], {})[cut[1]] = (cut[2], view.output)
    for axis, cuts in slices.items():
        found += _tiling(value, axis, cuts, shape[axis])
    return found


def range_of(cut: std.Slice) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice along one axis of known size with constant bounds and a step of 1."""
    shape, axes, starts, ends = cut.shape(), cut.axes, cut.constant(1), cut.constant(2)
    if shape is None or axes is None or starts is None or ends is None or len(axes) != 1 or cut.steps != (1,):
        return None
    size = shape[axes[0]]
    if not isinstance(size, int):
        return None
    start, end, _ = slice(int(starts.item()), int(ends.item())).indices(size)
    return axes[0], start, end


def _tiling(whole: ir.Value, axis: int, cuts: dict[int, tuple[int, ir.Value]], size: object) -> list[Partition]:
    values: list[ir.Value] = []
    sizes: list[int] = []
    at = 0
    while at in cuts:
        end, value = cuts[at]
        if end <= at:
            return []
        values.append(value)
        sizes.append(end - at)
        at = end
    graphs = {id(node.graph) for value in values if (node := value.producer()) is not None}
    if at != size or len(values) < 2 or len(values) < len(cuts) or len(graphs) > 1:
        return []
    return [Partition(whole, axis, tuple(values), tuple(sizes))]


def position_in_whole(facts: Facts, value: ir.Value) -> tuple[int, int]:
    """A key that puts parts of one tensor, also transposed ones, in their order there."""
    view = facts.maker(value)
    while isinstance(view, std.Transpose | std.Identity | std.Unsqueeze | std.Squeeze):
        value = view.data
        view = facts.maker(value)
    if isinstance(view, std.Split):
        return (1, list(view.node.outputs).index(value))
    cut = range_of(view) if isinstance(view, std.Slice) else None
    return (0, 0) if cut is None else (1, cut[1])


def readers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes of a value's own graph that read it directly; empty when anything else reads it."""
    nodes = list(dict.fromkeys(node for node, _ in value.uses()))
    own = value.producer()
    if value.is_graph_output() or own is None or any(node.graph is not own.graph for node in nodes):
        return []
    return [] if any(True for node in nodes for _ in subgraphs_of(node)) else nodes


@dataclasses.dataclass(frozen=True)
class Segment:
    """Elements that stand side by side in a value as they do in the sequence.

    Attributes:
        source: the value.
        start: where the first of them stands along the value's first axis.
        count: how many there are.
    """

    source: ir.Value
    start: int
    count: int


def segments_of(facts: Facts, sequence: ir.Value) -> list[Segment]:
    """What a sequence, time on axis 0, is joined from and cut out of.

    Returns:
        The segments in order; none where nothing would be saved: where making the sequence copies it less than twice,
        where more than the one reader needs it, or where sizes are not known.
    """
    found = _resolved(facts, sequence, MOST_NODES)
    if found is None or not 1 < len(found) <= MOST_SEGMENTS or not _is_copied_twice(facts, sequence):
        return []
    return found


def cut(e: Builder, segments: Sequence[Segment], start: ir.Value, end: ir.Value) -> ir.Value:
    """Elements `start` to `end` (exclusive) of a sequence.

    Args:
        e: emits.
        segments: what the sequence consists of.
        start: int64 [1], not negative.
        end: int64 [1], not below `start` and not beyond the sequence's end.
    """
    parts, place = [], 0
    for segment in segments:
        first, last = e.ints(segment.start), e.ints(segment.start + segment.count)
        shift = e.ints(segment.start - place)
        # Clipped below, so that a bound before the segment is not taken for one from the value's end.
        bounds = [e.op(std.Max, e.op(std.Add, bound, shift), first) for bound in (start, end)]
        parts.append(e.slice(segment.source, bounds[0], e.op(std.Min, bounds[1], last), 0))
        place += segment.count
    return e.concat(parts, 0)


def _is_copied_twice(facts: Facts, sequence: ir.Value) -> bool:
    """Whether the sequence is cut out of what is joined, or joined from what is cut out."""
    view = facts.maker(sequence)
    inner, outer = (std.Concat, std.Slice) if isinstance(view, std.Slice) else (std.Slice, std.Concat)
    return isinstance(view, outer) and any(isinstance(facts.maker(value), inner) for value in view.node.inputs)


def _resolved(facts: Facts, value: ir.Value, depth: int) -> list[Segment] | None:
    """The segments of a value that one node alone reads; `None` where its size is not known."""
    view = facts.maker(value)
    alone = lone_reader(value) is not None and depth > 0
    if alone and isinstance(view, std.Concat) and view.axis == 0:
        parts = [_resolved(facts, part, depth - 1) for part in view.parts]
        known = [part for part in parts if part is not None]
        return [segment for part in known for segment in part] if len(known) == len(parts) else None
    if alone and isinstance(view, std.Slice) and (found := range_of(view)) is not None and found[0] == 0:
        whole = _resolved(facts, view.data, depth - 1)
        return None if whole is None else _between(whole, *found[1:])
    shape = facts.shape(value)
    size = None if not shape else shape[0]
    return [Segment(value, 0, size)] if isinstance(size, int) else None


def _between(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """The segments of elements `start` to `end` (exclusive)."""
    found, place = [], 0
    for segment in segments:
        first, last = max(start - place, 0), min(end - place, segment.count)
        if first < last:
            found.append(Segment(segment.source, segment.start + first, last - first))
        place += segment.count
    return found
