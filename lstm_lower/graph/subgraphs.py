"""The graphs among a node's attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def subgraphs_of(node: ir.Node) -> Sequence[ir.Graph]:
    """The graphs among a node's attributes."""
    # Asked of every node by every pass, and most nodes have no attributes at all. Of the mapping that holds them only
    # the dict within it is quick to ask; and an attribute's type, as an enumeration's members, is looked up only once.
    attributes = node.attributes.data
    if not attributes:
        return ()
    graphs: list[ir.Graph] = []
    for attribute in attributes.values():
        kind = attribute.type
        if kind == _GRAPH and not attribute.is_ref():
            graphs.append(attribute.as_graph())
        elif kind == _GRAPHS and not attribute.is_ref():
            graphs += attribute.as_graphs()
    return graphs


def all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Every node of a graph and of the graphs within it; a node comes before those within it, at any depth."""
    open_graphs = [iter(graph)]
    while open_graphs:
        for node in open_graphs[-1]:
            yield node
            if inner := subgraphs_of(node):
                open_graphs += [iter(subgraph) for subgraph in reversed(inner)]
                break
        else:
            open_graphs.pop()


def with_inner(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and all those within its nodes; outer ones first."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        inner = [subgraph for node in graph for subgraph in subgraphs_of(node)]
        waiting += reversed(inner)


def all_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Every graph of a model: the main one, the functions', and those within their nodes; outer ones first."""
    for root in [model.graph, *(function.graph for function in model.functions.values())]:
        yield from with_inner(root)
