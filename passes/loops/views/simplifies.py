"""The facet `simplifies`: what may replace an operator's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.rewriting import Results

# A rule gets the node's view, and what emits before the node; `None` where nothing simpler is known.
simplifies: std.Facet[Callable[[Any, Builder], Results | None]] = std.Facet("simplification")


def fits(value: ir.Value | None, op: std.Standard) -> ir.Value | None:
    """A value in the place of a node's result, where its shape is known to be the same."""
    return value if op.facts.same_shape(value, op.output) else None
