"""The registry of decompositions: an operator of ONNX as a formula of simpler ones."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.passes.rewriting import Rule

# An output that the node does not have may be `None`. Rules are written for every opset from 13 on, in the forms of the
# builder's.
decomposes: std.Facet[Rule] = std.Facet("decomposition")
