"""Definitions of TensorFlow's elementwise ops around losses that tf2onnx lacks or gets wrong.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, broadcast_shapes
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, FLOATS, RawOp


class L2Loss(RawOp):
    """Half the sum of squares, sum(t * t) / 2."""


class Log1p(RawOp, T=FLOATS):
    """log(1 + x), accurate also where x is close to 0."""


class Expm1(RawOp, T=FLOATS):
    """exp(x) - 1, accurate also where x is close to 0."""


class Inv(RawOp, T=FLOATS):
    """1 / x, under the name it has in older graphs."""


class Snapshot(RawOp):
    """Its input: TensorFlow's own optimiser puts it where it found a constant factor of one."""


class Binary(RawOp, abstract=True):
    """A function of operands that broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        broadcast(call, *(declared.name for declared in cls.inputs))


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


class Xdivy(Binary, T=FLOATS):
    """x / y, and 0 where x is 0."""


class Xlogy(Binary, T=FLOATS):
    """x log(y), and 0 where x is 0."""


class Xlog1py(Binary, T=FLOATS):
    """x log(1 + y), and 0 where x is 0."""


class MulNoNan(Binary, T=FLOATS):
    """x y, and 0 where y is 0, even if x is infinite or NaN."""


class TruncateMod(Binary):
    """Remainder of the division that rounds towards 0: it has x's sign."""


class Mod(TruncateMod):
    """TruncateMod, under the name it has in older graphs."""


class FloorMod(Binary, T=COMPUTED):
    """Remainder of the division that rounds down: it has y's sign."""


class FloorDiv(Binary, T=COMPUTED):
    """Quotient, rounded down."""


class SelectV2(RawOp):
    """t where the condition holds, e elsewhere; the operands broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        broadcast(call, "condition", "t", "e")


class Select(RawOp, x="*S", y="*S"):
    """SelectV2 in older graphs: x and y have one shape; a condition that is a vector chooses rows."""
