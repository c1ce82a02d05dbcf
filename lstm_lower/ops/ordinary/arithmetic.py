"""Definitions of TensorFlow's arithmetic on two or more operands.

Signatures: TensorFlow's raw ops of the same names. Operands of the binary ones broadcast.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call, attr
from lstm_lower.ops.elementwise import Binary, broadcast
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, NUMBERS, RawOp


class Add(Binary, T=(*NUMBERS, *COMPLEX)):
    """x + y."""


class AddV2(Binary):
    """x + y."""


class Sub(Binary):
    """x - y."""


class Mul(Binary):
    """x y."""


class RealDiv(Binary, T=(*FLOATS, *COMPLEX)):
    """x / y."""


class Div(Binary):
    """x / y; of integers rounded towards 0."""


class TruncateDiv(Binary, T=NUMBERS):
    """x / y, rounded towards 0."""


class DivNoNan(Binary):
    """x / y, and 0 where y is 0."""


class Pow(Binary, T=(*COMPUTED, "int8", "int16")):
    """x to the power of y."""


class Maximum(Binary):
    """The larger of x and y; NaN where one of them is NaN."""


class Minimum(Binary):
    """The smaller of x and y; NaN where one of them is NaN."""


class SquaredDifference(Binary):
    """(x - y)^2."""


class Atan2(Binary):
    """The angle of the point (x, y)."""


class BitwiseAnd(Binary):
    """The bits that both have."""


class BitwiseOr(Binary):
    """The bits that one of the two has."""


class BitwiseXor(Binary):
    """The bits in which they differ."""


class LeftShift(Binary):
    """x 2^y; y is taken to be at least 0 and less than the number of bits."""


class RightShift(Binary):
    """x / 2^y, rounded down; y is taken to be at least 0 and less than the number of bits."""


def check_alike(call: Call, name: str) -> None:
    """The tensors of a list have one shape.

    Raises:
        InvalidModelError, InvalidInputError: they have not.
    """
    merged: tuple[Dim, ...] | None = None
    for number, info in enumerate(call.lists[name]):
        if info.shape is None:
            continue
        if not agree(merged, info.shape):
            raise call.error(f"{name}[{number}]", f"shape {list(merged or ())} (as those before)", list(info.shape))
        before = merged or info.shape
        merged = tuple(a if isinstance(a, int) else b for a, b in zip(before, info.shape, strict=True))


class _Sum(RawOp, abstract=True):
    """A sum of tensors of one shape."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is something to add, of one shape."""
        if not call.lists["inputs"]:
            raise call.error("inputs", "one tensor or more", "none")
        check_alike(call, "inputs")


class AddN(_Sum):
    """The sum of tensors."""


class AccumulateNV2(_Sum):
    """The sum of tensors; they have one shape, which is `shape`."""

    class Attrs:
        shape = attr(list[int], [])


class ClipByValue(RawOp, T=NUMBERS):
    """The nearest number between the two bounds."""

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
