"""Lowering of the op on bits."""

from __future__ import annotations

from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.bits import Bitcast
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(Bitcast, repeatable=True)
def bitcast(n: Node) -> dict[str, Expr]:
    """A Cast, which lets integers of as many bits wrap."""
    return {"output": n.moved("input").cast(n.call.attributes["type"])}
