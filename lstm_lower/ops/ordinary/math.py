"""Definitions of TensorFlow's functions of one operand, element by element.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, OpDef, all_dtypes, attr, operand
from lstm_lower.ops.gradients import COMPLEX, FLOATS, Function
from lstm_lower.ops.ordinary.kinds import EVERYTHING, INTEGERS, NUMBERS, SIGNED, Activation


class _Signed(Function, abstract=True):
    """A function of numbers that may be negative."""

    class Types:
        T = (*FLOATS, *SIGNED)


class Abs(_Signed):
    """The number without its sign."""


class Neg(_Signed):
    """-x."""

    class Types:
        T = (*FLOATS, *SIGNED, *COMPLEX)


class Sign(_Signed):
    """-1, 0 or 1."""


class Round(_Signed):
    """The nearest whole number; of two, the even one."""


class Square(Function):
    """x * x."""

    class Types:
        T = (*NUMBERS, *COMPLEX)


class Invert(Function):
    """All bits the other way round."""

    class Types:
        T = INTEGERS


class Sqrt(Function):
    """Square root."""


class Rsqrt(Function):
    """One over the square root."""


class _Whole(Function, abstract=True):
    """A function of complex numbers too."""

    class Types:
        T = (*FLOATS, *COMPLEX)


class Reciprocal(_Whole):
    """1 / x."""


class Exp(_Whole):
    """The exponential function."""


class Log(Function):
    """Natural logarithm."""


class Sin(Function):
    """Sine."""


class Cos(Function):
    """Cosine."""


class Tan(Function):
    """Tangent."""


class Asin(Function):
    """Inverse sine."""


class Acos(Function):
    """Inverse cosine."""


class Atan(Function):
    """Inverse tangent."""


class Sinh(Function):
    """Hyperbolic sine."""


class Cosh(Function):
    """Hyperbolic cosine."""


class Asinh(Function):
    """Inverse hyperbolic sine."""


class Acosh(Function):
    """Inverse hyperbolic cosine."""


class Atanh(Function):
    """Inverse hyperbolic tangent."""


class Sigmoid(Function):
    """The logistic function, 1 / (1 + exp(-x)), accurate also where it is close to 0."""


class Tanh(Function):
    """Hyperbolic tangent."""


class Erf(Function):
    """Error function."""


class Erfc(Function):
    """Complementary error function, 1 - erf(x), accurate also where it is close to 0."""


class Erfinv(Function):
    """The inverse of Erf: infinite at 1 and -1, NaN beyond."""

    class Types:
        T = FLOATS[2:]


class Ndtri(Erfinv):
    """The quantile of the normal distribution: infinite at 0 and 1, NaN beyond."""


class Lgamma(Function):
    """Logarithm of the magnitude of the gamma function."""


class Digamma(Function):
    """Derivative of Lgamma."""


class Floor(Function):
    """The next whole number below."""


class Ceil(Function):
    """The next whole number above."""


class Rint(Function):
    """The nearest whole number; of two, the even one."""


class Relu(Activation):
    """max(x, 0)."""

    class Types:
        T = NUMBERS


class Relu6(Activation):
    """min(max(x, 0), 6)."""

    class Types:
        T = NUMBERS


class Elu(Activation):
    """x where positive, exp(x) - 1 elsewhere."""


class Selu(Activation):
    """The scaled exponential linear unit."""


class LeakyRelu(Activation):
    """x where positive, alpha * x elsewhere."""

    class Attrs:
        alpha = attr(float, 0.2, rounds_to="T")


class Softplus(Activation):
    """log(exp(x) + 1), accurate also where it is close to 0."""


class Softsign(Activation):
    """x / (1 + abs(x))."""


class Cast(OpDef):
    """The operand in another dtype; floating-point numbers are truncated to integers.

    `Truncate` drops digits too where a floating-point number gets fewer of them.
    """

    class Types:
        SrcT = (*EVERYTHING, *COMPLEX)
        DstT = (*EVERYTHING, *COMPLEX)

    class Inputs:
        x = operand("*S", "SrcT")

    class Outputs:
        y = operand("*S", "DstT")

    class Attrs:
        DstT = attr(DType, choices=all_dtypes())
        Truncate = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the result's dtype to the attribute."""
        call.types["DstT"] = call.attributes["DstT"]
