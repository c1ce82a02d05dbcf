"""Results that a loop writes into a tensor place by place, as the pieces that they are joined of.

A trace has a whole new tensor for each place that is written (`select_scatter`). Of a tensor all of whose places along
an axis are written, or all but a few, only the pieces matter, and so they do where a place is read again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from lstm_lower.torch.aten.sizes import Alike, formula

aten = torch.ops.aten

# What slices without an end have as one.
_END = 1 << 62
# Places that may keep what was there before, and places of which some have to be written one by one.
_KEPT, _LEAST = 2, 3


@dataclasses.dataclass(frozen=True)
class _Written:
    """A tensor with other contents at some places along an axis."""

    before: Node
    axis: int
    pieces: Mapping[int, Node]


def join_pieces(program: torch.export.ExportedProgram, alike: Alike | None) -> None:
    """Joins what is written place by place; in a program without changes in place; see `simple`."""
    for part in program.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _join_in(part.graph, alike)
            part.recompile()


def _join_in(graph: Graph, alike: Alike | None) -> None:
    written: dict[Node, _Written] = {}
    for node in list(graph.nodes):
        same = _same(node)
        if same is not None:
            node.replace_all_uses_with(same)
            continue
        if node.target is aten.select_scatter.default:
            _note(node, written, alike)
        elif node.target is aten.select.int:
            _read(graph, node, written, alike)
    # What has been written -> what it is joined as.
    joined: dict[Node, Node] = {}
    for node, each in written.items():
        size = _size(node, each.axis, alike)
        # What is written as a piece of another tensor is whole.
        is_last = any(user not in written or written[user].before is not each.before for user in node.users)
        if is_last and len(each.pieces) >= max(_LEAST, size - _KEPT):
            pieces = {place: joined.get(piece, piece) for place, piece in each.pieces.items()}
            joined[node] = _join(graph, node, dataclasses.replace(each, pieces=pieces), size)
    for node in reversed(written):
        if not node.users:
            graph.erase_node(node)


def _same(node: Node) -> Node | None:
    """What a node only hands on, if it is such a one."""
    args: Any = node.args
    first, last = (args[-2:] if len(args) > 3 else (0, 0)) if node.op == "call_function" else (0, 0)
    whole = first == 0 and isinstance(last, int) and last >= _END
    if node.target is aten.slice.Tensor and len(args) == 4 and whole:
        return args[0]
    if node.target is aten.slice_scatter.default and len(args) == 5 and whole:
        return args[1]
    if node.target is aten.copy.default and _like(args[0]) == _like(args[1]):
        return args[1]
    return None


def _like(node: Node) -> Any:
    """Dtype and sizes."""
    value = node.meta["val"]
    return value.dtype, [getattr(getattr(size, "node", None), "expr", size) for size in value.shape]


def _size(node: Node, axis: int, alike: Alike | None) -> Any:
    return formula(node.meta["val"].shape[axis], alike)


def _note(node: Node, written: dict[Node, _Written], alike: Alike | None) -> None:
    """Notes what is written."""
    x, source, axis, place = node.args
    if not (isinstance(x, Node) and isinstance(source, Node) and isinstance(axis, int) and isinstance(place, int)):
        return
    axis %= node.meta["val"].dim()
    size = _size(node, axis, alike)
    if not size.is_Integer or source.meta["val"].dtype != node.meta["val"].dtype:
        return
    before = written.get(x)
    if before is None or before.axis != axis:
        before = _Written(x, axis, {})
    written[node] = _Written(before.before, axis, {**before.pieces, place % int(size): source})


def _read(graph: Graph, node: Node, written: Mapping[Node, _Written], alike: Alike | None) -> None:
    """Reads the piece that was written, or what was there before."""
    x, axis, place = node.args
    each = written.get(x) if isinstance(x, Node) else None
    if each is None or not isinstance(axis, int) or not isinstance(place, int):
        return
    if axis % node.args[0].meta["val"].dim() != each.axis:  # type: ignore[union-attr]
        return
    place %= int(_size(x, each.axis, alike))  # type: ignore[arg-type]
    if place in each.pieces:
        node.replace_all_uses_with(each.pieces[place])
    else:
        node.args = (each.before, axis, place)


def _join(graph: Graph, node: Node, each: _Written, size: int) -> Node:
    pieces = []
    with graph.inserting_after(node):
        joined = graph.call_function(aten.stack.default, ([], each.axis))
    joined.meta = dict(node.meta)
    with graph.inserting_before(joined):
        for place in range(size):
            if place in each.pieces:
                pieces.append(each.pieces[place])
                continue
            kept = graph.call_function(aten.select.int, (each.before, each.axis, place))
            kept.meta = dict(node.meta)
            kept.meta["val"] = each.before.meta["val"].select(each.axis, place)
            pieces.append(kept)
    node.replace_all_uses_with(joined, delete_user_cb=lambda user: user is not joined)
    joined.args = (pieces, each.axis)
    return joined
