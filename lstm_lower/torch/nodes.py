"""The domain of the nodes that our operators in PyTorch become, and what turns them into ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr, Workspace, replace

DOMAIN = "lstm_lower.torch"

# Whether `from_torch` goes by translations of ours (`aten`), for all of a process; the default while not all goes so is
# PyTorch's exporter.
ATEN = os.environ.get("LSTM_LOWER_ATEN") == "1"


class Traced:
    """A node of the domain under translation.

    Attributes:
        b: emits right before it.
        operands: expressions; `None` for one that is left out.
    """

    def __init__(self, node: ir.Node, space: Workspace) -> None:
        self.b = Builder.before(node, space)
        self.operands = [None if value is None else self.b.wrap(value) for value in node.inputs]
        self._attributes = node.attributes

    def operand(self, index: int) -> Expr:
        """An operand that is never left out."""
        found = self.operands[index]
        assert found is not None
        return found

    def attribute(self, name: str) -> Any:
        """An attribute's value."""
        return self._attributes[name].value


Formula = Callable[[Traced], Sequence[Expr | None]]


def translate(model: ir.Model, formulas: dict[str, Formula]) -> None:
    """Replaces every node of the domain, in order, by its formula."""
    space = Workspace.of(model)
    for node in list(model.graph.all_nodes()):
        if node.domain != DOMAIN:
            continue
        results = formulas[node.op_type](Traced(node, space))
        for old, new in zip(node.outputs, results, strict=True):
            if new is not None:
                replace(old, new.value, space)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
    model.graph.opset_imports.pop(DOMAIN, None)
