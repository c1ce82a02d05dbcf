"""Definitions of TensorFlow's ops that turn, repeat and pad arrays.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import Dim, agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    Kept,
    Reshaped,
    count_axis,
    length_of,
    numbers,
    result,
    said,
    shape_of,
    times,
)


class Tile(Reshaped):
    """The input repeated along each axis."""

    class Types:
        T = ALL
        Tmultiples = INDEX

    class Inputs:
        input = operand(None)
        multiples = operand("R", "Tmultiples")

    @classmethod
    def verify(cls, call: Call) -> None:
        """One number for each axis."""
        _one_each(call, "input", "multiples")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Each size times its number."""
        shape, factors = shape_of(call, "input"), said(call, "multiples")
        if shape is None or factors is None:
            return result(call, factors and (None,) * len(factors))
        return result(call, [times(size, factor) for size, factor in zip(shape, factors, strict=False)])


def _one_each(call: Call, name: str, vector: str) -> None:
    """Verifies that a vector has an entry for each axis.

    Raises:
        InvalidModelError, InvalidInputError: it has more or fewer.
    """
    shape, count = shape_of(call, name), length_of(call, vector)
    if shape is not None and count is not None and len(shape) != count:
        raise call.error(vector, f"an entry for each of {name}'s {len(shape)} axes", f"{count}")


class Transpose(OpDef):
    """The axes in another order."""

    static_operands = ("perm",)

    class Types:
        T = ALL
        Tperm = INDEX

    class Inputs:
        x = operand(None)
        perm = operand("R", "Tperm")

    class Outputs:
        y = operand(None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Each axis once."""
        _one_each(call, "x", "perm")
        order, shape = numbers(call, "perm"), shape_of(call, "x")
        if order is not None and sorted(_counted(order)) != list(range(len(order))):
            raise call.error("perm", f"each axis from 0 to {len(order) - 1} once", f"{order}")
        if order is not None and shape is not None and len(shape) != len(order):
            raise call.error("perm", f"an entry for each of x's {len(shape)} axes", f"{order}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The sizes in the new order."""
        shape, order = shape_of(call, "x"), numbers(call, "perm")
        if shape is None or order is None:
            return result(call, None if shape is None else (None,) * len(shape))
        return result(call, [shape[axis] for axis in order])


def _counted(axes: list[int]) -> list[int]:
    return [axis + len(axes) if axis < 0 else axis for axis in axes]


class ConjugateTranspose(Transpose):
    """Transpose, of complex numbers their conjugates."""


class Pad(Reshaped):
    """Zeros around the input."""

    class Types:
        T = ALL
        Tpaddings = INDEX

    class Inputs:
        input = operand(None)
        paddings = operand("R 2", "Tpaddings")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Two numbers for each axis."""
        shape, rank = shape_of(call, "input"), call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("paddings", f"a row for each of input's {len(shape)} axes", f"{rank} rows")
        if min(numbers(call, "paddings") or [0]) < 0:
            raise call.error("paddings", "numbers of 0 or more", f"{numbers(call, 'paddings')}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Each size with what stands before and after."""
        shape, widths = shape_of(call, "input"), numbers(call, "paddings")
        if shape is None or widths is None:
            return result(call, None if shape is None else (None,) * len(shape))
        sums = [before + after for before, after in zip(widths[::2], widths[1::2], strict=False)]
        sizes: list[Dim] = []
        for size, more in zip(shape, sums, strict=False):
            sizes.append(size + more if isinstance(size, int) else None if more else size)
        return result(call, sizes)


class PadV2(Pad):
    """A value around the input."""

    class Inputs(Pad.Inputs):
        constant_values = operand("")


class MirrorPad(Pad):
    """The input's own elements, mirrored, around it."""

    class Attrs:
        mode = attr(str, choices=("REFLECT", "SYMMETRIC"))


class ReverseV2(OpDef):
    """Reverses axes."""

    static_operands = ("axis",)

    class Types:
        T = ALL
        Tidx = INDEX

    class Inputs:
        tensor = operand("*S")
        axis = operand("N", "Tidx")

    class Outputs:
        output = operand("*S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Axes that the tensor has."""
        shape = shape_of(call, "tensor")
        for axis in numbers(call, "axis") or []:
            if shape is not None:
                count_axis(call, "axis", axis, len(shape))


class ReverseSequence(Kept):
    """Reverses the first elements along an axis, as many as `seq_lengths` says for each entry of the batch."""

    class Types:
        T = ALL
        Tlen = INDEX

    class Inputs:
        input = operand("*S")
        seq_lengths = operand("B", "Tlen")

    class Attrs:
        seq_dim = attr(int)
        batch_dim = attr(int, 0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Two different axes, of which the batch's has a length for each entry."""
        shape, batch = shape_of(call, "input"), call.sizes.get("B")
        if shape is None:
            return
        sequence, entry = (
            count_axis(call, f"attribute {name}", call.attributes[name], len(shape))
            for name in ("seq_dim", "batch_dim")
        )
        if sequence == entry:
            raise call.error("attribute seq_dim", f"another axis than batch_dim {entry}", f"{sequence}")
        if not agree((shape[entry],), (batch,)):
            raise call.error("seq_lengths", f"{shape[entry]} lengths (as axis {entry} of input)", f"{batch}")


class Roll(Kept):
    """Elements shifted along axes; those that leave at one end come back at the other."""

    static_operands = ("axis",)

    class Types:
        T = ALL
        Tshift = INDEX
        Taxis = INDEX

    class Inputs:
        input = operand("*S")
        shift = operand(None, "Tshift")
        axis = operand(None, "Taxis")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Axes that the input has, and a shift for each."""
        shape, axes, shifts = shape_of(call, "input"), shape_of(call, "axis"), shape_of(call, "shift")
        if not agree(axes, shifts) or (axes is not None and len(axes) > 1):
            raise call.error("axis", f"a scalar or vector of shape {shifts} (as shift)", f"{axes}")
        for axis in numbers(call, "axis") or []:
            if shape is not None:
                count_axis(call, "axis", axis, len(shape))
