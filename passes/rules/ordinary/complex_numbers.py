"""Lowering of the ops between complex numbers and their parts."""

from __future__ import annotations

from collections.abc import Callable

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.complex_numbers import Angle, Complex, ComplexAbs, Conj, Imag, Real
from lstm_lower.passes.formulas.complex_numbers import Number, conjugate, each, joined, magnitude, of_parts, parts_of
from lstm_lower.passes.rules.ordinary.arithmetic import atan2
from lstm_lower.passes.rules.registry import Node, lowers

_PARTS: dict[object, Callable[[Number], Expr]] = {
    Real: lambda x: x[0],
    Imag: lambda x: x[1],
    Angle: lambda x: atan2(x[1], x[0]),
    ComplexAbs: magnitude,
}


@lowers(Complex, repeatable=True)
def complex_(n: Node) -> dict[str, Expr]:
    """Side by side, once they have one shape."""
    real, imaginary, b = n.real, n.imag, n.builder
    if real.shape is None or real.shape != imaginary.shape:
        real, imaginary = (b.op(std.Expand, x, y.sizes()) for x, y in ((real, imaginary), (imaginary, real)))
    return {"out": of_parts(joined(real, imaginary))}


@lowers(Real, Imag, Angle, ComplexAbs, repeatable=True)
def part(n: Node) -> dict[str, Expr]:
    """As its formula has it."""
    (given,), (made,) = n.op.inputs, n.op.outputs
    return {made.name: _PARTS[n.op](each(parts_of(n.operand(given.name))))}


@lowers(Conj, repeatable=True)
def conj(n: Node) -> dict[str, Expr]:
    """Times one and minus one."""
    return {"output": conjugate(n.input)}
