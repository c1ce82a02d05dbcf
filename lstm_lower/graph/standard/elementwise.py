"""Operators that treat every element alike."""

from __future__ import annotations

from typing import TypeGuard

import onnx_ir as ir

from lstm_lower.graph.standard.view import Attribute, Operand, Optional, Standard, text


class Elementwise(Standard, abstract=True):
    """Computes each element from those at the same place of its operands, which are broadcast."""


class Arithmetic(Elementwise, abstract=True):
    """A result of the operands' dtype."""


class Add(Arithmetic):
    commutative = True


class Sub(Arithmetic): ...


class Mul(Arithmetic):
    commutative = True
    linear = (0, 1)


class Div(Arithmetic):
    linear = (0,)


class Pow(Arithmetic): ...


class Mod(Arithmetic):
    fmod = Attribute("fmod", 0)


class Min(Arithmetic):
    commutative = True


class Max(Arithmetic):
    commutative = True


class Sum(Arithmetic):
    commutative = True


class Mean(Arithmetic):
    commutative = True


class PRelu(Arithmetic): ...


class BitwiseAnd(Arithmetic):
    commutative = True


class BitwiseOr(Arithmetic):
    commutative = True


class BitwiseXor(Arithmetic):
    commutative = True


class BitShift(Arithmetic): ...


class Logical(Elementwise, abstract=True):
    """A result of truth values."""


class And(Logical):
    commutative = True


class Or(Logical):
    commutative = True


class Xor(Logical):
    commutative = True


class Equal(Logical):
    commutative = True


class Less(Logical): ...


class Greater(Logical): ...


class LessOrEqual(Logical): ...


class GreaterOrEqual(Logical): ...


class Where(Elementwise):
    condition = Operand(0)
    yes = Operand(1)
    no = Operand(2)


class Unary(Elementwise, abstract=True):
    """Computes each element from that of its first operand alone; further operands say how."""

    data = Operand(0)


# Mark, in the metadata of an Identity, of one through which no gradient flows: a detached value.
STOPPED = "lstm_lower.stop_gradient"


class Identity(Unary):
    linear = (0,)

    @classmethod
    def hands_on(cls, node: ir.Node | None) -> TypeGuard[ir.Node]:
        """Whether a node is one through which gradients flow."""
        return cls.matches(node) and STOPPED not in node.metadata_props

    @property
    def stops(self) -> bool:
        """Whether no gradient flows through it."""
        return STOPPED in self.node.metadata_props


class Neg(Unary):
    linear = (0,)


class Cast(Unary):
    @property
    def to(self) -> ir.DataType:
        """The dtype of the result."""
        return ir.DataType(self.attribute("to", 1))


class CastLike(Unary): ...


class BitCast(Standard):
    """The same bits, read as another dtype."""

    data = Operand(0)

    @property
    def to(self) -> ir.DataType:
        """The dtype of the result."""
        return ir.DataType(self.attribute("to", 1))


# Mark, in the metadata of a Clip, of one whose bounds are not among what its operand has a gradient at.
OPEN = "lstm_lower.open_bounds"


class Clip(Unary):
    low = Optional(1)
    high = Optional(2)

    @property
    def is_open(self) -> bool:
        """Whether elements at a bound have no gradient, as beyond it."""
        return OPEN in self.node.metadata_props


class Test(Unary, abstract=True):
    """A truth value of each element."""


class Not(Test): ...


class IsNaN(Test): ...


class IsInf(Test): ...


class Abs(Unary): ...


class Acos(Unary): ...


class Acosh(Unary): ...


class Asin(Unary): ...


class Asinh(Unary): ...


class Atan(Unary): ...


class Atanh(Unary): ...


class BitwiseNot(Unary): ...


class Ceil(Unary): ...


class Celu(Unary):
    alpha = Attribute("alpha", 1.0)


class Cos(Unary): ...


class Cosh(Unary): ...


class Elu(Unary):
    alpha = Attribute("alpha", 1.0)


class Erf(Unary): ...


class Exp(Unary): ...


class Floor(Unary): ...


class Gelu(Unary):
    @property
    def approximate(self) -> str:
        """`none` or `tanh`."""
        return text(self.attribute("approximate", "none"))


class HardSigmoid(Unary):
    alpha = Attribute("alpha", 0.2)


class HardSwish(Unary): ...


class LeakyRelu(Unary):
    alpha = Attribute("alpha", 0.01)


class Log(Unary): ...


class Mish(Unary): ...


class Reciprocal(Unary): ...


class Relu(Unary): ...


class Round(Unary): ...


class Selu(Unary):
    """The defaults are the nearest numbers of float32."""

    alpha = Attribute("alpha", 1.67326319217681884765625)
    gamma = Attribute("gamma", 1.05070102214813232421875)


class Shrink(Unary):
    lambd = Attribute("lambd", 0.5)


class Sigmoid(Unary): ...


class Sign(Unary): ...


class Sin(Unary): ...


class Sinh(Unary): ...


class Softplus(Unary): ...


class Softsign(Unary): ...


class Sqrt(Unary): ...


class Swish(Unary):
    alpha = Attribute("alpha", 1.0)


class Tan(Unary): ...


class Tanh(Unary): ...


class ThresholdedRelu(Unary):
    alpha = Attribute("alpha", 1.0)
