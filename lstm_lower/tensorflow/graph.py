"""GraphDefs at arm's length: names of tensors, the nodes by name, and which number an output has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lstm_lower.errors import InvalidModelError

NodeDef = Any
GraphDef = Any


def split_name(name: str) -> tuple[str, int | None]:
    """Node and output number of an input as a NodeDef spells it; the number of a control input `^node` is `None`.

    Raises:
        InvalidModelError: what follows the node is not a number.
    """
    if name.startswith("^"):
        return name[1:], None
    node, _, number = name.partition(":")
    try:
        return node, int(number or 0)
    except ValueError as error:
        raise InvalidModelError(f"an input requires the form node or node:number, got '{name:.80}'") from error


def tensor_name(name: str) -> str:
    """The full name, `node:0`, of an input as a NodeDef spells it."""
    node, number = split_name(name)
    return f"{node}:{number}"


def label(node: NodeDef) -> str:
    """A node for messages: `MatMul 'dense/MatMul'`."""
    return f"{node.op} '{node.name}'"


def nodes_by_name(nodes: Iterable[NodeDef]) -> dict[str, NodeDef]:
    """The nodes of a graph.

    Raises:
        InvalidModelError: two have one name, or an input names no node.
    """
    found: dict[str, NodeDef] = {}
    listed = list(nodes)
    for node in listed:
        if node.name in found:
            raise InvalidModelError(f"{label(node)}: its name must be its own, got one that is taken")
        found[node.name] = node
    for node in listed:
        for name in node.input:
            if split_name(name)[0] not in found:
                raise InvalidModelError(f"{label(node)}: its inputs require nodes of the graph, got '{name}'")
    return found
