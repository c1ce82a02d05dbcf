"""Names for what passes add to a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from lstm_lower.graph.subgraphs import subgraphs_of


class Names:
    """Gives out names that are unique in a whole model, subgraphs included.

    ONNX forbids a subgraph to reuse a name of an outer scope, hence one authority for all scopes.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, model: ir.Model) -> Names:
        """Collects the names of all values and nodes of a model.

        ONNX lets subgraphs side by side use a name twice. There values and nodes get names of their own here, so that
        passes can move nodes from scope to scope.
        """
        names = cls()
        nodes: set[str] = set()
        for graph in [model.graph, *(function.graph for function in model.functions.values())]:
            values, own = _named(graph)
            names._used.update([value.name for value in values if value.name])
            nodes.update([node.name for node in own if node.name])
            names._used |= nodes
            for subgraph in _inside(own):
                names._claim(subgraph, nodes)
        return names

    def _claim(self, graph: ir.Graph, nodes: set[str]) -> None:
        values, own = _named(graph)
        for value in values:
            if value.name:
                value.name = self.fresh(value.name)
        for node in own:
            if node.name and node.name in nodes:
                node.name = self.fresh(node.name)
            if node.name:
                nodes.add(node.name)
                self._used.add(node.name)

    def fresh(self, hint: str) -> str:
        """A name not used so far, close to the hint."""
        name = hint
        while name in self._used or not name:
            self._next[hint] = self._next.get(hint, 0) + 1
            name = f"{hint}_{self._next[hint]}"
        self._used.add(name)
        return name


def _named(graph: ir.Graph) -> tuple[list[ir.Value], list[ir.Node]]:
    nodes = list(graph)
    entering = dict.fromkeys([*graph.inputs, *graph.initializers.values()])
    return [*entering, *[value for node in nodes for value in node.outputs]], nodes


def _inside(nodes: list[ir.Node]) -> Iterator[ir.Graph]:
    for node in nodes:
        for graph in subgraphs_of(node):
            yield graph
            yield from _inside(list(graph))
