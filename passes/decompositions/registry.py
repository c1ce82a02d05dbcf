"""The registry of decompositions: an operator of ONNX as a formula of simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Builder, Expr

# From a node's view and a builder that emits right before it to the node's outputs, in order; an output that the node
# does not have may be `None`, and all of them together where the formula does not serve the node's form. Rules are
# written for every opset from 13 on, in the forms of the builder's.
Decomposition = Callable[[Any, Builder], Sequence[Expr | None] | None]

decomposes: std.Facet[Decomposition] = std.Facet("decomposition")
