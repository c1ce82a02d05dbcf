"""Definitions of TensorFlow's comparisons, tests and operations on truth values.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.errors import MisfitError
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.elementwise import Binary
from lstm_lower.ops.gradients import COMPLEX
from lstm_lower.ops.ordinary.kinds import EVERYTHING, Comparison, Test


class _Equality(Comparison, abstract=True):
    """Whether two numbers or truth values are the same, or differ."""

    class Types:
        T = (*EVERYTHING, *COMPLEX)

    class Attrs:
        incompatible_shape_error = attr(bool, True)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast, unless that they do not is an answer too."""
        if call.attributes["incompatible_shape_error"]:
            super().verify(call)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape that the operands broadcast to, or a scalar."""
        try:
            return super().output_infos(call)
        except MisfitError:
            return [TensorInfo(DType.BOOL, ())]


class Equal(_Equality):
    """x = y, element by element."""


class NotEqual(_Equality):
    """x != y, element by element."""


class Less(Comparison):
    """x < y, element by element."""


class LessEqual(Comparison):
    """x <= y, element by element."""


class Greater(Comparison):
    """x > y, element by element."""


class GreaterEqual(Comparison):
    """x >= y, element by element."""


class ApproximateEqual(OpDef):
    """True where x and y differ by less than the tolerance."""

    class Types:
        T = ("float32", "float64")

    class Inputs:
        x = operand("*S")
        y = operand("*S")

    class Outputs:
        z = operand("*S", "bool")

    class Attrs:
        tolerance = attr(float, 1e-5)


class _Logical(Binary, abstract=True):
    """An operation on two truth values."""

    class Types: ...

    class Inputs:
        x = operand(None, "bool")
        y = operand(None, "bool")

    class Outputs:
        z = operand(None, "bool")


class LogicalAnd(_Logical):
    """Logical AND of x and y."""


class LogicalOr(_Logical):
    """Logical OR of x and y."""


class LogicalNot(OpDef):
    """Logical NOT."""

    class Types: ...

    class Inputs:
        x = operand("*S", "bool")

    class Outputs:
        y = operand("*S", "bool")


class IsNan(Test):
    """True where an element is NaN."""


class IsInf(Test):
    """True where an element is infinite."""


class IsFinite(Test):
    """True where an element is neither infinite nor NaN."""
