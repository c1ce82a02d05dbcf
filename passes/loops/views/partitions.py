"""Partitions: the values that a Split, or Slices side by side, cut a tensor into."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of


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
