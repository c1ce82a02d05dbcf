"""Definitions of TensorFlow's comparisons, tests and operations on truth values.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.elementwise import Binary
from lstm_lower.ops.raw import PAIRED, RawOp


class _Equality(Binary, abstract=True):
    """Whether two numbers or truth values are the same, or differ."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast, unless that they do not is an answer too."""
        if call.attributes["incompatible_shape_error"]:
            super().verify(call)


class Equal(_Equality):
    """x = y, element by element."""


class NotEqual(_Equality):
    """x != y, element by element."""


class Less(Binary):
    """x < y, element by element."""


class LessEqual(Binary):
    """x <= y, element by element."""


class Greater(Binary):
    """x > y, element by element."""


class GreaterEqual(Binary):
    """x >= y, element by element."""


class ApproximateEqual(RawOp, x="*S", y="*S", T=PAIRED):
    """True where x and y differ by less than the tolerance."""


class LogicalAnd(Binary):
    """Logical AND of x and y."""


class LogicalOr(Binary):
    """Logical OR of x and y."""


class LogicalNot(RawOp):
    """Logical NOT."""


class IsNan(RawOp):
    """True where an element is NaN."""


class IsInf(RawOp):
    """True where an element is infinite."""


class IsFinite(RawOp):
    """True where an element is neither infinite nor NaN."""
