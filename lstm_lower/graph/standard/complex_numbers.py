"""Operators between complex numbers and their parts, which ONNX lacks: no finished model has any."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Operand, Standard

_DOMAIN = "lstm_lower.complex"


class PartsOf(Standard, domain=_DOMAIN):
    """The real and the imaginary parts of complex numbers, along a last axis of two."""

    data = Operand(0)


class OfParts(Standard, domain=_DOMAIN):
    """The complex numbers of parts along a last axis of two."""

    data = Operand(0)
