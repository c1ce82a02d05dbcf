"""Definitions of TensorFlow's functions of one operand, element by element.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, PAIRED, RawOp


class Abs(RawOp):
    """The number without its sign."""


class Neg(RawOp):
    """-x."""


class Sign(RawOp, T=(*COMPUTED, "int8", "int16")):
    """-1, 0 or 1."""


class Round(RawOp, T=(*COMPUTED, "int8", "int16")):
    """The nearest whole number; of two, the even one."""


class Square(RawOp):
    """x * x."""


class Invert(RawOp):
    """All bits the other way round."""


class Sqrt(RawOp, T=FLOATS):
    """Square root."""


class Rsqrt(RawOp, T=FLOATS):
    """One over the square root."""


class Reciprocal(RawOp, T=(*FLOATS, *COMPLEX)):
    """1 / x."""


class Exp(RawOp):
    """The exponential function."""


class Log(RawOp, T=FLOATS):
    """Natural logarithm."""


class Sin(RawOp, T=FLOATS):
    """Sine."""


class Cos(RawOp, T=FLOATS):
    """Cosine."""


class Tan(RawOp, T=FLOATS):
    """Tangent."""


class Asin(RawOp, T=FLOATS):
    """Inverse sine."""


class Acos(RawOp, T=FLOATS):
    """Inverse cosine."""


class Atan(RawOp, T=FLOATS):
    """Inverse tangent."""


class Sinh(RawOp, T=FLOATS):
    """Hyperbolic sine."""


class Cosh(RawOp, T=FLOATS):
    """Hyperbolic cosine."""


class Asinh(RawOp, T=FLOATS):
    """Inverse hyperbolic sine."""


class Acosh(RawOp, T=FLOATS):
    """Inverse hyperbolic cosine."""


class Atanh(RawOp, T=FLOATS):
    """Inverse hyperbolic tangent."""


class Sigmoid(RawOp, T=FLOATS):
    """The logistic function, 1 / (1 + exp(-x)), accurate also where it is close to 0."""


class Tanh(RawOp, T=FLOATS):
    """Hyperbolic tangent."""


class Erf(RawOp):
    """Error function."""


class Erfc(RawOp):
    """Complementary error function, 1 - erf(x), accurate also where it is close to 0."""


class Erfinv(RawOp, T=PAIRED):
    """The inverse of Erf: infinite at 1 and -1, NaN beyond."""


class Ndtri(RawOp, T=PAIRED):
    """The quantile of the normal distribution: infinite at 0 and 1, NaN beyond."""


class Lgamma(RawOp):
    """Logarithm of the magnitude of the gamma function."""


class Digamma(RawOp):
    """Derivative of Lgamma."""


class Floor(RawOp):
    """The next whole number below."""


class Ceil(RawOp):
    """The next whole number above."""


class Rint(RawOp):
    """The nearest whole number; of two, the even one."""


class Relu(RawOp):
    """max(x, 0)."""


class Relu6(RawOp):
    """min(max(x, 0), 6)."""


class Elu(RawOp):
    """x where positive, exp(x) - 1 elsewhere."""


class Selu(RawOp):
    """The scaled exponential linear unit."""


class LeakyRelu(RawOp):
    """x where positive, alpha * x elsewhere."""

    rounded = ("alpha",)


class Softplus(RawOp):
    """log(exp(x) + 1), accurate also where it is close to 0."""


class Softsign(RawOp):
    """x / (1 + abs(x))."""


class Cast(RawOp):
    """The operand in another dtype; floating-point numbers are truncated to integers.

    `Truncate` drops digits too where a floating-point number gets fewer of them.
    """
