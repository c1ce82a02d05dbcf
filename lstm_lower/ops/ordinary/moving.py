"""Definitions of TensorFlow's ops that turn, repeat and pad arrays.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import (
    RawOp,
    count_axis,
    length_of,
    numbers,
    shape_of,
)


class Tile(RawOp, multiples="R"):
    """The input repeated along each axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """One number for each axis."""
        _one_each(call, "input", "multiples")


def _one_each(call: Call, name: str, vector: str) -> None:
    """Verifies that a vector has an entry for each axis.

    Raises:
        InvalidModelError, InvalidInputError: it has more or fewer.
    """
    shape, count = shape_of(call, name), length_of(call, vector)
    if shape is not None and count is not None and len(shape) != count:
        raise call.error(vector, f"an entry for each of {name}'s {len(shape)} axes", f"{count}")


class Transpose(RawOp, perm="R"):
    """The axes in another order."""

    static_operands = ("perm",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Each axis once."""
        _one_each(call, "x", "perm")
        order, shape = numbers(call, "perm"), shape_of(call, "x")
        if order is not None and sorted(_counted(order)) != list(range(len(order))):
            raise call.error("perm", f"each axis from 0 to {len(order) - 1} once", f"{order}")
        if order is not None and shape is not None and len(shape) != len(order):
            raise call.error("perm", f"an entry for each of x's {len(shape)} axes", f"{order}")


def _counted(axes: list[int]) -> list[int]:
    return [axis + len(axes) if axis < 0 else axis for axis in axes]


class ConjugateTranspose(Transpose):
    """Transpose, of complex numbers their conjugates."""


class Pad(RawOp, paddings="R 2"):
    """Zeros around the input."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Two numbers for each axis."""
        shape, rank = shape_of(call, "input"), call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("paddings", f"a row for each of input's {len(shape)} axes", f"{rank} rows")
        if min(numbers(call, "paddings") or [0]) < 0:
            raise call.error("paddings", "numbers of 0 or more", f"{numbers(call, 'paddings')}")


class PadV2(Pad, constant_values=""):
    """A value around the input."""


class MirrorPad(Pad):
    """The input's own elements, mirrored, around it."""


class ReverseV2(RawOp, axis="N"):
    """Reverses axes."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Axes that the tensor has."""
        shape = shape_of(call, "tensor")
        for axis in numbers(call, "axis") or []:
            if shape is not None:
                count_axis(call, "axis", axis, len(shape))


class ReverseSequence(RawOp, seq_lengths="B"):
    """Reverses the first elements along an axis, as many as `seq_lengths` says for each entry of the batch."""

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


class Roll(RawOp):
    """Elements shifted along axes; those that leave at one end come back at the other."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Axes that the input has, and a shift for each."""
        shape, axes, shifts = shape_of(call, "input"), shape_of(call, "axis"), shape_of(call, "shift")
        if not agree(axes, shifts) or (axes is not None and len(axes) > 1):
            raise call.error("axis", f"a scalar or vector of shape {shifts} (as shift)", f"{axes}")
        for axis in numbers(call, "axis") or []:
            if shape is not None:
                count_axis(call, "axis", axis, len(shape))
