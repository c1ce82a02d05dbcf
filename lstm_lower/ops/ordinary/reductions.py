"""Definitions of TensorFlow's reductions, and of what it accumulates along an axis.

Signatures: TensorFlow's raw ops of the same names. Axes may be negative; an empty list names none.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import COMPLEX
from lstm_lower.ops.indexing import INDEX
from lstm_lower.ops.ordinary.kinds import EVERYTHING, NUMBERS


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


class _Reduction(OpDef, abstract=True):
    """Reduces axes."""

    class Types:
        T = NUMBERS
        Tidx = INDEX

    class Inputs:
        input = operand(None)
        axis = operand(None, "Tidx")

    class Outputs:
        output = operand(None)

    class Attrs:
        keep_dims = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axes are the input's."""
        axes_of(call, "axis", "input")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape without the axes, or with size 1 there."""
        (output,) = cls.outputs
        dtype = call.types.get("T") if output.dtype == "T" else DType.BOOL
        return [TensorInfo(dtype, cls._shape(call))]

    @classmethod
    def _shape(cls, call: Call) -> tuple[Dim, ...] | None:
        shape, axes, keep = call.operands["input"].shape, axes_of(call, "axis", "input"), call.attributes["keep_dims"]
        if shape is None:
            return None
        if axes is not None:
            reduced = {axis % max(len(shape), 1) for axis in axes}
            return tuple(1 if axis in reduced else dim for axis, dim in enumerate(shape) if keep or axis not in reduced)
        count = call.operands["axis"].shape
        if keep or count == ():
            return (None,) * (len(shape) - (not keep))
        known = count is not None and isinstance(count[0], int) and count[0] <= len(shape)
        return (None,) * (len(shape) - int(count[0])) if known and count is not None else None  # type: ignore[arg-type]


class _Linear(_Reduction, abstract=True):
    """Reduces axes, of complex numbers too."""

    class Types:
        T = (*NUMBERS, *COMPLEX)
        Tidx = INDEX


class Sum(_Linear):
    """The sum over axes."""


class Mean(_Linear):
    """The mean over axes; of integers rounded towards 0."""


class Prod(_Reduction):
    """The product over axes."""


class Max(_Reduction):
    """The maximum over axes; NaN where an element is NaN."""


class Min(_Reduction):
    """The minimum over axes; NaN where an element is NaN."""


class _Quantifier(_Reduction, abstract=True):
    """Reduces truth values."""

    class Types:
        Tidx = INDEX

    class Inputs:
        input = operand(None, "bool")
        axis = operand(None, "Tidx")

    class Outputs:
        output = operand(None, "bool")


class All(_Quantifier):
    """Logical AND over axes."""


class Any(_Quantifier):
    """Logical OR over axes."""


class _Position(OpDef, abstract=True):
    """The index of an extreme element along an axis; of equal ones the first. NaN is passed over."""

    static_operands = ("dimension",)

    class Types:
        T = EVERYTHING
        Tidx = ("int16", *INDEX)
        output_type = ("int16", "uint16", *INDEX)

    class Inputs:
        input = operand(None)
        dimension = operand("", "Tidx")

    class Outputs:
        output = operand(None, "output_type")

    class Attrs:
        output_type = attr(DType, DType.INT64, choices=(DType.INT16, DType.UINT16, DType.INT32, DType.INT64))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the result's dtype to the attribute; the axis is the input's."""
        call.types["output_type"] = call.attributes["output_type"]
        axes_of(call, "dimension", "input")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The input's shape without the axis."""
        shape, axes = call.operands["input"].shape, axes_of(call, "dimension", "input")
        dims: tuple[Dim, ...] | None = None
        if shape:
            dims = (None,) * (len(shape) - 1)
            if axes is not None:
                dims = tuple(dim for axis, dim in enumerate(shape) if axis != axes[0] % len(shape))
        return [TensorInfo(call.types["output_type"], dims)]


class ArgMax(_Position):
    """The index of the largest element along an axis."""


class ArgMin(_Position):
    """The index of the smallest element along an axis."""

    class Types:
        T = EVERYTHING
        Tidx = INDEX
        output_type = INDEX

    class Attrs:
        output_type = attr(DType, DType.INT64, choices=(DType.INT32, DType.INT64))


class _Cumulative(OpDef, abstract=True):
    """Accumulates along an axis."""

    class Types:
        T = NUMBERS
        Tidx = INDEX

    class Inputs:
        x = operand("*S")
        axis = operand("", "Tidx")

    class Outputs:
        out = operand("*S")

    class Attrs:
        exclusive = attr(bool, False)
        reverse = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is the operand's."""
        axes_of(call, "axis", "x")


class Cumsum(_Cumulative):
    """The cumulative sum along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""

    class Types:
        T = (*NUMBERS, *COMPLEX)
        Tidx = INDEX


class Cumprod(_Cumulative):
    """The cumulative product along an axis; `exclusive` omits the element itself, `reverse` starts at the end."""

    static_operands = ("axis",)
