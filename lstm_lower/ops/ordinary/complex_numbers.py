"""Definitions of TensorFlow's ops between complex numbers and their parts.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.dtypes import PARTS, dtype_name
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.elementwise import broadcast
from lstm_lower.ops.gradients import COMPLEX
from lstm_lower.ops.ordinary.kinds import PAIRED

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
    call.types[wanted] = asked


class _Paired(OpDef, abstract=True):
    """Takes or makes complex numbers."""

    wanted: ClassVar[str] = "Tout"

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the result's dtype to the attribute."""
        bind_other(call, "T", cls.wanted)


class Complex(_Paired):
    """The complex numbers of real and imaginary parts, which broadcast."""

    class Types:
        T = PAIRED
        Tout = COMPLEX

    class Inputs:
        real = operand(None)
        imag = operand(None)

    class Outputs:
        out = operand(None, "Tout")

    class Attrs:
        Tout = attr(DType, DType.COMPLEX64, choices=(DType.COMPLEX64, DType.COMPLEX128))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape that the operands broadcast to."""
        return [TensorInfo(call.types["Tout"], broadcast(call, "real", "imag"))]


class _Part(_Paired, abstract=True):
    """A real number of each complex one."""

    class Types:
        T = COMPLEX
        Tout = PAIRED

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S", "Tout")

    class Attrs:
        Tout = attr(DType, DType.FLOAT, choices=(DType.FLOAT, DType.DOUBLE))


class Real(_Part):
    """The real part."""


class Imag(_Part):
    """The imaginary part."""


class Angle(_Part):
    """The angle of the point whose coordinates the two parts are."""


class ComplexAbs(_Part):
    """The distance from 0."""

    class Inputs:
        x = operand("*S")

    class Outputs:
        y = operand("*S", "Tout")


class Conj(OpDef):
    """The same real part, and the imaginary part with the other sign."""

    class Types:
        T = COMPLEX

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S")
