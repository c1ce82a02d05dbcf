"""Definitions of TensorFlow's elementwise ops around losses that tf2onnx lacks or gets wrong.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, OpDef, TensorInfo, operand
from lstm_lower.ops.gradients import ANY, FLOATS

NUMBERS = (*FLOATS, "int32", "int64")


class L2Loss(OpDef):
    """Half the sum of squares, sum(t * t) / 2."""

    class Types:
        T = FLOATS

    class Inputs:
        t = operand("*S")

    class Outputs:
        output = operand("")


class _Function(OpDef, abstract=True):
    """A function of one operand."""

    class Types:
        T = FLOATS

    class Inputs:
        x = operand("*S")

    class Outputs:
        y = operand("*S")


class Log1p(_Function):
    """log(1 + x), accurate also where x is close to 0."""


class Expm1(_Function):
    """exp(x) - 1, accurate also where x is close to 0."""


class Inv(_Function):
    """1 / x, under the name it has in older graphs."""


class Snapshot(OpDef):
    """Its input: TensorFlow's own optimiser puts it where it found a constant factor of one."""

    class Types:
        T = ANY

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S")


class _Binary(OpDef, abstract=True):
    """A function of two operands that broadcast."""

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
        result_shape(call)

    @classmethod
    def output_infos(cls, call: Call, count: int) -> list[TensorInfo]:
        """The shape that the operands broadcast to."""
        return [TensorInfo(call.types.get("T"), result_shape(call))]


def result_shape(call: Call) -> tuple[Dim, ...] | None:
    """The shape that x and y broadcast to, `None` where a rank is open.

    Raises:
        InvalidModelError, InvalidInputError: sizes differ.
    """
    x, y = call.operands["x"].shape, call.operands["y"].shape
    if x is None or y is None:
        return None
    rank = max(len(x), len(y))
    pairs = zip((1,) * (rank - len(x)) + tuple(x), (1,) * (rank - len(y)) + tuple(y), strict=True)
    result: list[Dim] = []
    for first, second in pairs:
        if first == 1 or first == second:
            result.append(second)
        elif second == 1 or isinstance(first, int):
            if isinstance(second, int) and second != 1:
                raise call.error("y", f"a shape that broadcasts with {list(x)} (as x)", list(y))
            result.append(first)
        else:
            result.append(second if isinstance(second, int) else None)
    return tuple(result)


class Xdivy(_Binary):
    """x / y, and 0 where x is 0."""


class Xlogy(_Binary):
    """x log(y), and 0 where x is 0."""


class Xlog1py(_Binary):
    """x log(1 + y), and 0 where x is 0."""


class MulNoNan(_Binary):
    """x y, and 0 where y is 0, even if x is infinite or no number."""


class TruncateMod(_Binary):
    """Remainder of the division that rounds towards 0: it has x's sign."""

    class Types:
        T = NUMBERS


class Mod(TruncateMod):
    """TruncateMod, under the name it has in older graphs."""


class FloorMod(_Binary):
    """Remainder of the division that rounds down: it has y's sign."""

    class Types:
        T = NUMBERS


class FloorDiv(_Binary):
    """Quotient, rounded down."""

    class Types:
        T = NUMBERS
