"""Definitions of TensorFlow's elementwise ops around losses that tf2onnx lacks or gets wrong.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, broadcast_shapes
from lstm_lower.dtypes import DTYPES
from lstm_lower.opdef import Call, OpDef, TensorInfo, operand
from lstm_lower.ops.gradients import ANY, FLOATS, Function, Passing

NUMBERS = (*FLOATS, "int32", "int64")


class L2Loss(OpDef):
    """Half the sum of squares, sum(t * t) / 2."""

    class Types:
        T = FLOATS

    class Inputs:
        t = operand("*S")

    class Outputs:
        output = operand("")


class Log1p(Function):
    """log(1 + x), accurate also where x is close to 0."""


class Expm1(Function):
    """exp(x) - 1, accurate also where x is close to 0."""


class Inv(Function):
    """1 / x, under the name it has in older graphs."""


class Snapshot(Passing):
    """Its input: TensorFlow's own optimiser puts it where it found a constant factor of one."""


class Binary(OpDef, abstract=True):
    """A function of operands that broadcast."""

    class Types:
        T = FLOATS

    class Inputs:
        x = operand(None)
        y = operand(None)

    class Outputs:
        z = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        broadcast(call, *(declared.name for declared in cls.inputs))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape that the operands broadcast to."""
        (output,) = cls.outputs
        dtype = call.types.get(output.dtype) if output.dtype in cls.types else DTYPES[output.dtype]
        return [TensorInfo(dtype, broadcast(call, *(declared.name for declared in cls.inputs)))]


def broadcast(call: Call, *names: str) -> tuple[Dim, ...] | None:
    """The shape that operands broadcast to, `None` where a rank is open.

    Raises:
        InvalidModelError, InvalidInputError: sizes differ.
    """
    result: tuple[Dim, ...] = ()
    for name in names:
        shape = call.operands[name].shape
        if shape is None:
            return None
        merged = broadcast_shapes(result, shape)
        if merged is None:
            raise call.error(name, f"a shape that broadcasts with {list(result)} (as {names[0]})", list(shape))
        result = merged
    return result


class Xdivy(Binary):
    """x / y, and 0 where x is 0."""


class Xlogy(Binary):
    """x log(y), and 0 where x is 0."""


class Xlog1py(Binary):
    """x log(1 + y), and 0 where x is 0."""


class MulNoNan(Binary):
    """x y, and 0 where y is 0, even if x is infinite or NaN."""


class TruncateMod(Binary):
    """Remainder of the division that rounds towards 0: it has x's sign."""

    class Types:
        T = NUMBERS


class Mod(TruncateMod):
    """TruncateMod, under the name it has in older graphs."""


class FloorMod(Binary):
    """Remainder of the division that rounds down: it has y's sign."""

    class Types:
        T = NUMBERS


class FloorDiv(Binary):
    """Quotient, rounded down."""

    class Types:
        T = NUMBERS


class SelectV2(OpDef):
    """t where the condition holds, e elsewhere; the operands broadcast."""

    class Types:
        T = ANY

    class Inputs:
        condition = operand(None, "bool")
        t = operand(None)
        e = operand(None)

    class Outputs:
        output = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        cls.output_infos(call)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The shape that the operands broadcast to."""
        return [TensorInfo(call.types.get("T"), broadcast(call, "condition", "t", "e"))]


class Select(OpDef):
    """SelectV2 in older graphs: x and y have one shape; a condition that is a vector chooses rows."""

    class Types:
        T = ANY

    class Inputs:
        condition = operand(None, "bool")
        x = operand("*S")
        y = operand("*S")

    class Outputs:
        output = operand("*S")
