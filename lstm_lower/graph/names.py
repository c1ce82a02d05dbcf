"""Names for what passes add to a model."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_graphs


class Names:
    """Gives out names that are unique in a whole model, subgraphs included.

    A node moves from scope to scope, and a name that is its own everywhere fits everywhere.
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, model: ir.Model) -> Names:
        """Collects the names of all values and nodes of a model."""
        names = cls()
        for graph in all_graphs(model):
            names._used.update(value.name for value in (*graph.inputs, *graph.initializers.values()) if value.name)
            for node in graph:
                if node.name:
                    names._used.add(node.name)
                names._used.update([value.name for value in node.outputs if value.name])
        return names

    def fresh(self, hint: str) -> str:
        """A name not used so far, close to the hint."""
        name = hint
        while name in self._used or not name:
            self._next[hint] = self._next.get(hint, 0) + 1
            name = f"{hint}_{self._next[hint]}"
        self._used.add(name)
        return name

    def part(self, node: str, index: int, count: int) -> str:
        """A name for one of a node's outputs: that of the node, if it is the only one."""
        return node if count == 1 else self.fresh(f"{node}:{index}")

    def another(self, name: str | None) -> str | None:
        """The name of a copy; what has no name gets none."""
        return self.fresh(name) if name else name
