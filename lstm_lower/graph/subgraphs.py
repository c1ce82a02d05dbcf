"""The graphs among a node's attributes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def subgraphs_of(node: ir.Node) -> Sequence[ir.Graph]:
    """The graphs among a node's attributes."""
    # Asked of every node by every pass, and most nodes have no attributes at all.
    if not node.attributes:
        return ()
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            found += attribute.as_graphs()
    return found
