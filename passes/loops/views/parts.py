"""Parts: the values that a Split, or Slices side by side, cut a tensor into."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.infer import attribute, constant_of, shape_of


@dataclasses.dataclass(frozen=True)
class Parts:
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


def parts_of(value: ir.Value) -> list[Parts]:
    """The ways a value is cut into two or more parts of known sizes, in its own graph."""
    shape = shape_of(value)
    if shape is None:
        return []
    found: list[Parts] = []
    slices: dict[int, dict[int, tuple[int, ir.Value]]] = {}
    for node, index in value.uses():
        if index != 0 or node.domain != "" or node.graph is None:
            continue
        if node.op_type == "Split":
            axis = attribute(node, "axis", 0) % len(shape)
            sizes = [made[axis] if (made := shape_of(output)) is not None else None for output in node.outputs]
            known = tuple(size for size in sizes if isinstance(size, int))
            if len(known) == len(sizes) > 1:
                found.append(Parts(value, axis, tuple(node.outputs), known))
        elif node.op_type == "Slice":
            cut = slice_of(node)
            if cut is not None:
                slices.setdefault(cut[0], {})[cut[1]] = (cut[2], node.outputs[0])
    for axis, cuts in slices.items():
        found += _tiling(value, axis, cuts, shape[axis])
    return found


def slice_of(node: ir.Node) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice along one axis of known size with constant bounds and a step of 1."""
    shape = shape_of(node.inputs[0])
    starts, ends = constant_of(node.inputs[1]), constant_of(node.inputs[2])
    axes = constant_of(node.inputs[3]) if len(node.inputs) > 3 else np.zeros(1)
    given = node.inputs[4] if len(node.inputs) > 4 else None
    steps = constant_of(given) if given is not None else np.ones(1)
    if shape is None or starts is None or ends is None or axes is None or steps is None:
        return None
    if not starts.size == ends.size == axes.size == 1 or int(steps.reshape(-1)[0]) != 1:
        return None
    axis = int(axes.reshape(-1)[0]) % len(shape)
    size = shape[axis]
    if not isinstance(size, int):
        return None
    start, end, _ = slice(int(starts.reshape(-1)[0]), int(ends.reshape(-1)[0])).indices(size)
    return axis, start, end


def _tiling(whole: ir.Value, axis: int, cuts: dict[int, tuple[int, ir.Value]], size: object) -> list[Parts]:
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
    return [Parts(whole, axis, tuple(values), tuple(sizes))]


def position_in_whole(value: ir.Value) -> tuple[int, int]:
    """A key that puts parts of one tensor, also transposed ones, in their order there."""
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in ("Transpose", "Identity", "Unsqueeze", "Squeeze"):
        source = node.inputs[0]
        if source is None:
            break
        value, node = source, source.producer()
    if node is None or node.domain != "":
        return (0, 0)
    if node.op_type == "Split":
        return (1, list(node.outputs).index(value))
    if node.op_type == "Slice":
        cut = slice_of(node)
        return (1, cut[1]) if cut is not None else (0, 0)
    return (0, 0)


def readers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes of a value's own graph that read it directly; empty when anything else reads it."""
    nodes = list(dict.fromkeys(node for node, _ in value.uses()))
    own = value.producer()
    if value.is_graph_output() or own is None or any(node.graph is not own.graph for node in nodes):
        return []
    return [] if any(True for node in nodes for _ in subgraphs_of(node)) else nodes
