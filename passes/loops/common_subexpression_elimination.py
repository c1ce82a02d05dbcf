"""Common subexpression elimination: equal nodes merge, and so do Scans that carry the same recurrence.

Equal nodes may be in one scope, or one in a body and the other outside.

Precondition: nodes in topological order. Two nodes are equal when operator, operands and attributes are; subgraphs are
compared with their own values numbered by position and captured ones by identity. Nodes with random results are never
equal.

Postcondition: no two equal nodes where the first is visible to the second, and what `merge` says of Scans. Takes time
linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.loops.loop_fusion import merge_outputs, merge_recurrences
from lstm_lower.passes.loops.views.dependence import is_pure
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass, OnGraphs
from lstm_lower.passes.loops.views.value_numbering import node_key
from lstm_lower.passes.model_pass import Context


class CommonSubexpressionElimination(OnGraphs, LoopPass):
    """Common subexpression elimination over all scopes."""

    tells = True

    def graph(self, graph: ir.Graph) -> bool:
        """Merges equal nodes of a graph and its subgraphs."""
        modified = False
        while True:
            fused: list[Loop] = []
            modified |= _merge(graph, self.context, [], fused)
            # What read two of the fused Scans may be equal now.
            if not fused:
                return modified
            self.facts.look_again()

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Nodes that have an equal one before them, in their graph or in those around it."""
        for node, twin in equal_nodes(model.graph):
            yield node, f"to be the only one of its kind, got '{node_label(twin)}', which is equal"


def equal_nodes(graph: ir.Graph, outer: Sequence[Mapping[Hashable, ir.Node]] = ()) -> Iterator[tuple[ir.Node, ir.Node]]:
    """The pure nodes of a graph and its subgraphs that have an equal one before them, in sight, with that one."""
    seen: dict[Hashable, ir.Node] = {}
    scopes = [*outer, seen]
    for node in graph:
        for subgraph in subgraphs_of(node):
            yield from equal_nodes(subgraph, scopes)
        if is_pure(node):
            key = node_key(node, {})
            twin = next((scope[key] for scope in scopes if key in scope), None)
            if twin is None:
                seen[key] = node
            elif not _only_makes_result(node):
                yield node, twin


def _merge(graph: ir.Graph, context: Context, outer: list[dict[Hashable, ir.Node]], fused: list[Loop]) -> bool:
    seen: dict[Hashable, ir.Node] = {}
    scopes = [*outer, seen]
    modified = False
    scans: list[ir.Node] = []
    merged: list[ir.Node] = []
    for node in graph:
        for subgraph in subgraphs_of(node):
            modified |= _merge(subgraph, context, scopes, fused)
        if not is_pure(node):
            continue
        key = node_key(node, {})
        twin = seen.get(key) if len(scopes) == 1 else next((scope[key] for scope in scopes if key in scope), None)
        if twin is None:
            seen[key] = node
            if std.Scan.matches(node):
                scans.append(node)
            continue
        if _only_makes_result(node):
            continue
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            replace(old, new, context.space)
        merged.append(node)
    detach(*merged)
    modified |= bool(merged)
    for loop in merge_recurrences(graph, scans, context):
        fused.append(loop)
        _merge(loop.body, context, outer, fused)
        merge_outputs(Loop(loop.node, context.space))
        modified = True
    return modified


def _only_makes_result(node: ir.Node) -> bool:
    """Whether a node is there only because a graph's output needs a maker of its own in that graph."""
    passes_on = std.Identity.matches(node) or std.Constant.matches(node)
    return passes_on and any(output.is_graph_output() for output in node.outputs)
