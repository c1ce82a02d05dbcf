"""Definitions of TensorFlow's reductions, and of what it accumulates along an axis.

Signatures: TensorFlow's raw ops of the same names. Axes may be negative; an empty list names none.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, RawOp


def axes_of(call: Call, name: str, of: str) -> tuple[int, ...] | None:
    """The axes that an operand names, as they are written; `None` where they are known at run time only.

    Raises:
        InvalidModelError, InvalidInputError: one is not an axis of the other operand, or is named twice.
    """
    operand, shape = call.operands[name], call.operands[of].shape
    if operand.shape is not None and len(operand.shape) > 1:
        raise call.error(name, "a scalar or a vector", f"shape {list(operand.shape)}")
    if operand.value is None:
        return () if operand.shape == (0,) else None
    axes = tuple(int(axis) for axis in operand.value.reshape(-1))
    if shape is None:
        return axes
    rank = len(shape)
    if any(not -rank <= axis < rank for axis in axes):
        raise call.error(name, f"axes from {-rank} to {rank - 1} (of {of})", list(axes))
    if len({axis % rank for axis in axes}) < len(axes):
        raise call.error(name, "each axis once", list(axes))
    return axes


class _Reduction(RawOp, abstract=True):
    """Reduces axes."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axes are the input's."""
        axes_of(call, "axis", "input")


class Sum(_Reduction):
    """The sum over axes."""


class Mean(_Reduction):
    """The mean over axes; of integers rounded towards 0."""


class Prod(_Reduction, T=NUMBERS):
    """The product over axes."""


class Max(_Reduction):
    """The maximum over axes; NaN where an element is NaN."""


class Min(_Reduction):
    """The minimum over axes; NaN where an element is NaN."""


class All(_Reduction):
    """Logical AND over axes."""


class Any(_Reduction):
    """Logical OR over axes."""


class _Position(RawOp, abstract=True, dimension=""):
    """The index of an extreme element along an axis; of equal ones the first. NaN is passed over."""

    static_operands = ("dimension",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is the input's."""
        axes_of(call, "dimension", "input")


class ArgMax(_Position):
    """The index of the largest element along an axis."""


class ArgMin(_Position):
    """The index of the smallest element along an axis."""


class _Cumulative(RawOp, abstract=True, axis=""):
    """Accumulates along an axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is the operand's."""
        axes_of(call, "axis", "x")


class Cumsum(_Cumulative):
    """The cumulative sum along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""


class Cumprod(_Cumulative, T=NUMBERS):
    """The cumulative product along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""

    static_operands = ("axis",)
