"""Definitions of TensorFlow's arithmetic on two or more operands.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.elementwise import Binary, broadcast
from lstm_lower.ops.gradients import COMPLEX, FLOATS
from lstm_lower.ops.ordinary.kinds import INTEGERS, NUMBERS, SIGNED


class _Arithmetic(Binary, abstract=True):
    """A function of two numbers of any dtype."""

    class Types:
        T = NUMBERS


class _Field(Binary, abstract=True):
    """A function of two numbers of any dtype, complex ones too."""

    class Types:
        T = (*NUMBERS, *COMPLEX)


class Add(_Field):
    """x + y."""


class AddV2(_Field):
    """x + y."""


class Sub(_Field):
    """x - y."""


class Mul(_Field):
    """x y."""


class RealDiv(Binary):
    """x / y."""

    class Types:
        T = (*FLOATS, *COMPLEX)


class Div(_Field):
    """x / y; of integers rounded towards 0."""


class TruncateDiv(_Arithmetic):
    """x / y, rounded towards 0."""


class DivNoNan(Binary):
    """x / y, and 0 where y is 0."""

    class Types:
        T = (*FLOATS, *COMPLEX)


class Pow(Binary):
    """x to the power of y."""

    class Types:
        T = (*FLOATS, *SIGNED)


class Maximum(_Arithmetic):
    """The larger of x and y; NaN where one of them is NaN."""


class Minimum(_Arithmetic):
    """The smaller of x and y; NaN where one of them is NaN."""


class SquaredDifference(Binary):
    """(x - y)^2."""

    class Types:
        T = (*FLOATS, "int32", "int64", *COMPLEX)


class Atan2(Binary):
    """The angle of the point (x, y)."""

    class Inputs:
        y = operand(None)
        x = operand(None)


class _Bits(Binary, abstract=True):
    """A function of the bits of two integers."""

    class Types:
        T = INTEGERS


class BitwiseAnd(_Bits):
    """The bits that both have."""


class BitwiseOr(_Bits):
    """The bits that one of the two has."""


class BitwiseXor(_Bits):
    """The bits in which they differ."""


class LeftShift(_Bits):
    """x 2^y; y is taken to be at least 0 and less than the number of bits."""


class RightShift(_Bits):
    """x / 2^y, rounded down; y is taken to be at least 0 and less than the number of bits."""


class _Sum(OpDef, abstract=True):
    """A sum of tensors of one shape."""

    class Types:
        T = (*NUMBERS, *COMPLEX)

    class Inputs:
        inputs = operand(None, variadic=True, count="N")

    class Outputs:
        sum = operand(None)

    class Attrs:
        N = attr(int)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The operands' shape, of which each may tell a part."""
        merged: tuple[Dim, ...] | None = None
        for number, info in enumerate(call.lists["inputs"]):
            if info.shape is None:
                continue
            if not agree(merged, info.shape):
                raise call.error(f"inputs[{number}]", f"shape {list(merged or ())} (as those before)", list(info.shape))
            before = merged or info.shape
            merged = tuple(a if isinstance(a, int) else b for a, b in zip(before, info.shape, strict=True))
        return [TensorInfo(call.types.get("T"), merged)]

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is something to add, of one shape."""
        if not call.lists["inputs"]:
            raise call.error("inputs", "one tensor or more", "none")
        cls.output_infos(call)


class AddN(_Sum):
    """The sum of tensors."""


class AccumulateNV2(_Sum):
    """The sum of tensors; they have one shape, which is `shape`."""

    class Attrs(_Sum.Attrs):
        shape = attr(list[int], [])


class ClipByValue(OpDef):
    """The nearest number between the two bounds."""

    class Types:
        T = NUMBERS

    class Inputs:
        t = operand("*S")
        clip_value_min = operand(None)
        clip_value_max = operand(None)

    class Outputs:
        output = operand("*S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Bounds broadcast to the operand's shape."""
        for name in ("clip_value_min", "clip_value_max"):
            whole = broadcast(call, "t", name)
            if not agree(whole, call.operands["t"].shape):
                shape = list(call.operands["t"].shape or ())
                raise call.error(
                    name, f"a shape that broadcasts to {shape} (as t)", list(call.operands[name].shape or ())
                )
