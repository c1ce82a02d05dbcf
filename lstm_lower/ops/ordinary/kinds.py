"""What TensorFlow's ordinary ops have in common: dtypes, and how many operands."""

from __future__ import annotations

from lstm_lower.opdef import OpDef, operand
from lstm_lower.ops.elementwise import Binary
from lstm_lower.ops.gradients import COMPLEX, FLOATS, Passing

SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)
EVERYTHING = (*NUMBERS, "bool")
# The dtypes of parts of complex numbers.
PAIRED = ("float32", "float64")


class Test(OpDef, abstract=True):
    """A truth value of each number."""

    class Types:
        T = FLOATS

    class Inputs:
        x = operand("*S")

    class Outputs:
        y = operand("*S", "bool")


class Comparison(Binary, abstract=True):
    """A truth value of two numbers; the operands broadcast."""

    class Types:
        T = NUMBERS

    class Outputs:
        z = operand(None, "bool")


class Activation(OpDef, abstract=True):
    """A function of one operand, in a network's words."""

    class Types:
        T = FLOATS

    class Inputs:
        features = operand("*S")

    class Outputs:
        activations = operand("*S")


class HandingOn(Passing, abstract=True):
    """What hands its input on, whatever its dtype."""

    class Types:
        T = (*EVERYTHING, *COMPLEX)
