"""Definitions of TensorFlow's ops between complex numbers and their parts.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.dtypes import PARTS, dtype_name
from lstm_lower.opdef import Call
from lstm_lower.ops.elementwise import broadcast
from lstm_lower.ops.raw import RawOp

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


class Complex(_Paired):
    """The complex numbers of real and imaginary parts, which broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """They broadcast."""
        super().verify(call)
        broadcast(call, "real", "imag")


class Real(_Paired):
    """The real part."""


class Imag(_Paired):
    """The imaginary part."""


class Angle(_Paired):
    """The angle of the point whose coordinates the two parts are."""


class ComplexAbs(_Paired):
    """The distance from 0."""


class Conj(RawOp):
    """The same real part, and the imaginary part with the other sign."""
