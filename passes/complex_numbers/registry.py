"""The facet `by_parts`: how an operator on complex numbers is computed from their real and imaginary parts.

Complex numbers become real ones with a last axis of two, as ONNX's DFT has them. A rule takes an operator's view, with
operands still complex, and `Parts`, and returns what stands for each output: parts where that is complex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.complex_numbers import Number, each


class Parts:
    """The parts of the complex numbers of a graph, and where a rule emits.

    Attributes:
        builder: emits in front of the node.
    """

    def __init__(self, builder: Builder, found: dict[ir.Value, ir.Value]) -> None:
        self.builder = builder
        self._found = found

    def of(self, value: ir.Value) -> Expr:
        """Parts of complex numbers `[..., 2]`; of what is real a value as it is."""
        return self.builder.wrap(self._found.get(value, value))

    def each(self, value: ir.Value) -> Number:
        """The real and the imaginary part."""
        return each(self.of(value))


by_parts: std.Facet[Callable[[Any, Parts], Sequence[Expr]]] = std.Facet("computation by parts")
