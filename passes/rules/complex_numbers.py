"""Lowering of the ops between complex numbers and their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from lstm_lower.dtypes import PARTS, dtype_name
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, broadcast
from lstm_lower.passes.formulas.complex_numbers import Number, conjugate, each, joined, magnitude, of_parts, parts_of
from lstm_lower.passes.rules.arithmetic import atan2
from lstm_lower.passes.rules.registry import Node, lowers

_OTHER = {**PARTS, **{part: whole for whole, part in PARTS.items()}}


def bind_other(call: Call, given: str, wanted: str) -> None:
    """Binds a dtype to the attribute of its name, which is that of the parts of another, or of the whole.

    Raises:
        InvalidModelError, InvalidInputError: it is another.
    """
    known, asked = call.types.get(given), call.attributes[wanted]
    if known is not None and asked != _OTHER[known]:
        what = f"{dtype_name(_OTHER[known])} (as {given} is {dtype_name(known)})"
        raise call.error(f"attribute {wanted}", what, dtype_name(asked))


class _Paired(RawOp, abstract=True):
    """Takes or makes complex numbers."""

    wanted: ClassVar[str] = "Tout"

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the result's dtype to the attribute."""
        bind_other(call, "T", cls.wanted)


class Real(_Paired):
    """The real part."""


class Imag(_Paired):
    """The imaginary part."""


class Angle(_Paired):
    """The angle of the point whose coordinates the two parts are."""


class ComplexAbs(_Paired):
    """The distance from 0."""


_PARTS: dict[object, Callable[[Number], Expr]] = {
    Real: lambda x: x[0],
    Imag: lambda x: x[1],
    Angle: lambda x: atan2(x[1], x[0]),
    ComplexAbs: magnitude,
}


class Complex(_Paired):
    """The complex numbers of real and imaginary parts, which broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """They broadcast."""
        super().verify(call)
        broadcast(call, "real", "imag")


@lowers(Complex, repeatable=True)
def complex_(n: Node, b: Builder) -> Expr:
    """Side by side, once they have one shape."""
    real, imaginary = n.real, n.imag
    if real.shape is None or real.shape != imaginary.shape:
        real, imaginary = (b.op(std.Expand, x, y.sizes()) for x, y in ((real, imaginary), (imaginary, real)))
    return of_parts(joined(real, imaginary))


@lowers(Real, Imag, Angle, ComplexAbs, repeatable=True)
def part(n: Node, _: Builder) -> Expr:
    """As its formula has it."""
    (given,) = n.op.inputs
    return _PARTS[n.op](each(parts_of(n.operand(given.name))))


class Conj(RawOp):
    """The same real part, and the imaginary part with the other sign."""


@lowers(Conj, repeatable=True)
def conj(n: Node, _: Builder) -> Expr:
    """Times one and minus one."""
    return conjugate(n.input)
