"""Definitions of TensorFlow's comparisons, tests and operations on truth values.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.errors import MisfitError
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.elementwise import Binary
from lstm_lower.ops.ordinary.kinds import EVERYTHING, Comparison, Test


class _Equality(Comparison, abstract=True):
    """Whether two numbers or truth values are the same, or differ."""

    class Types:
        T = EVERYTHING

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
    """Whether x = y."""


class NotEqual(_Equality):
    """Whether x and y differ."""


class Less(Comparison):
    """Whether x < y."""


class LessEqual(Comparison):
    """Whether x <= y."""


class Greater(Comparison):
    """Whether x > y."""


class GreaterEqual(Comparison):
    """Whether x >= y."""


class ApproximateEqual(OpDef):
    """Whether x and y are less than the tolerance apart."""

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
    """Whether both hold."""


class LogicalOr(_Logical):
    """Whether one of the two holds."""


class LogicalNot(OpDef):
    """Whether it does not hold."""

    class Types: ...

    class Inputs:
        x = operand("*S", "bool")

    class Outputs:
        y = operand("*S", "bool")


class IsNan(Test):
    """Whether it is no number."""


class IsInf(Test):
    """Whether it is infinite."""


class IsFinite(Test):
    """Whether it is neither infinite nor no number."""
