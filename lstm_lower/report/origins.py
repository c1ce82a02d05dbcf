"""Colours of a report: which parts of the source are told apart, and which of its nodes belongs to which."""

from __future__ import annotations

import collections
import dataclasses

from lstm_lower import opdef
from lstm_lower.passes.history import NodeState, Step

# More hues than these cannot be told apart.
HUES = 8


@dataclasses.dataclass(frozen=True)
class Origins:
    """The parts of a source.

    Attributes:
        parts: labels of the parts, each with the colour of its place.
        part_of: number of a source node -> the place of its part; nodes that are not in it belong to none.
    """

    parts: list[str]
    part_of: dict[int, int]


def origins(first: Step) -> Origins:
    """Divides the source: each node that is lowered and each loop is a part, with what is in it.

    Where these are more than there are hues, those of one operator are a part; the rarest ones are left out.

    Args:
        first: the source, the first step of a history.
    """
    nodes = {node.number: node for node in first.nodes}
    graphs = {graph.number: graph for graph in first.graphs}
    holding = {graph.owner for graph in first.graphs if graph.owner is not None}
    heads: dict[int, NodeState] = {}
    for node in first.nodes:
        head = None
        outer: NodeState | None = node
        while outer is not None:
            # The outermost loop around a node is what it is a part of.
            head = outer if outer.number in holding or opdef.definition(outer.domain, outer.op) is not None else head
            owner = graphs[outer.graph].owner
            outer = None if owner is None else nodes[owner]
        if head is not None:
            heads[node.number] = head
    units = list(dict.fromkeys(heads.values()))
    if len(units) <= HUES:
        places = {head: place for place, head in enumerate(units)}
        return Origins([f"{head.op} {head.name}" for head in units], {n: places[head] for n, head in heads.items()})
    counts = collections.Counter(head.op for head in units)
    kinds = {op: place for place, (op, _) in enumerate(counts.most_common(HUES))}
    labels = [f"{op} ({counts[op]})" for op in kinds]
    return Origins(labels, {n: kinds[head.op] for n, head in heads.items() if head.op in kinds})
