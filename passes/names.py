"""Names for what passes add to a model."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir


class Names:
    """Gives out names that are unique in a whole model, subgraphs included.

    ONNX forbids a subgraph to reuse a name of an outer scope, hence one authority for all scopes.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, model: ir.Model) -> Names:
        """Collects the names of all values and nodes of a model."""
        used: set[str] = set()
        for graph in [model.graph, *(function.graph for function in model.functions.values())]:
            _collect(graph, used)
            for subgraph in graph.subgraphs():
                _collect(subgraph, used)
        return cls(used)

    def fresh(self, hint: str) -> str:
        """A name not used so far, close to the hint."""
        name = hint
        while name in self._used or not name:
            self._next[hint] = self._next.get(hint, 0) + 1
            name = f"{hint}_{self._next[hint]}"
        self._used.add(name)
        return name


def _collect(graph: ir.Graph, used: set[str]) -> None:
    used.update(value.name for value in graph.inputs if value.name)
    used.update(graph.initializers)
    for node in graph:
        if node.name:
            used.add(node.name)
        used.update(value.name for value in node.outputs if value.name)
