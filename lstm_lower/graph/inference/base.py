"""The facet `infers`: types and shapes that follow from an operator's operands.

A rule tells a pair for each output, dtype (or type) and shape, with `None` for what does not follow. Operators without
a rule are left to onnx's own inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.values import Alternatives, Partial

Type = ir.TypeProtocol | ir.DataType | None
Inferred = list[tuple[Type, Partial | Alternatives | None]]

infers: std.Facet[Callable[[Any], Inferred]] = std.Facet("inference")
