"""Where nodes come from: which nodes of a source model each node of a changed one stands for.

Recorded only where `mark` was called, in `ir.Node.meta`, which no file holds. From then on the emitter lets every node
that comes into the graph stand for what the node stands for at which it is emitted, copies stand for what they are
copies of, and what takes a value's place stands for what made the value, too.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_graphs

# Numbers of source nodes, the one that a node was made for first.
Sources = tuple[int, ...]

_KEY = "lstm_lower.provenance"
_LINE = "lstm_lower.line"


def mark(model: ir.Model) -> list[ir.Node]:
    """Lets every node of a model stand for itself; returns the nodes, each at its number."""
    nodes = [node for graph in all_graphs(model) for node in graph]
    for number, node in enumerate(nodes):
        node.meta[_KEY] = (number,)
    return nodes


def sources(node: ir.Node | None) -> Sources:
    """The source nodes that a node stands for; none where nothing was marked, or where it stands for nothing."""
    # A node's `meta` is made when it is asked for: tens of thousands that hold nothing.
    if node is None or not node._metadata:
        return ()
    numbers: Sources = node.meta.get(_KEY, ())
    return numbers


def record(node: ir.Node, stands_for: Sources) -> None:
    """Lets a node that stands for nothing yet stand for source nodes."""
    if stands_for and not sources(node):
        node.meta[_KEY] = stands_for


def record_line(node: ir.Node, place: str | None) -> None:
    """Notes the line of somebody's program that a node was written for, as `file.py:12`."""
    node.meta[_LINE] = place


def line(node: ir.Node) -> str | None:
    """That line, where it is known."""
    place: str | None = node.meta.get(_LINE)
    return place


def inherit(node: ir.Node | None, original: ir.Node) -> None:
    """Lets a copy stand for what its original stands for."""
    if node is not None and (stands_for := sources(original)):
        node.meta[_KEY] = stands_for


def join(node: ir.Node | None, other: Sources) -> None:
    """Lets a node stand for further source nodes, too."""
    own = sources(node)
    if node is not None and other and not set(other) <= set(own):
        node.meta[_KEY] = tuple(dict.fromkeys((*own, *other)))
