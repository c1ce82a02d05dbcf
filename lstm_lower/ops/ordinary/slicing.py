"""Definitions of TensorFlow's ops that cut parts out of arrays.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.dims import MAX_RANK, Dim
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, length_of, numbers, shape_of


class Slice(RawOp, begin="R", size="R"):
    """`size` elements from `begin` on; a size of -1 means up to the end."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """An entry for each axis, and no part outside."""
        shape, rank = shape_of(call, "input"), call.sizes.get("R")
        if shape is not None and isinstance(rank, int) and len(shape) != rank:
            raise call.error("begin", f"an entry for each of input's {len(shape)} axes", f"{rank}")
        begins, sizes = numbers(call, "begin"), numbers(call, "size")
        for axis, (begin, size, whole) in enumerate(zip(begins or (), sizes or (), shape or (), strict=False)):
            if begin < 0 or size < -1 or (isinstance(whole, int) and begin + max(size, 0) > whole):
                raise call.error("size", f"a part of axis {axis} of size {whole}", f"{size} elements from {begin} on")


class StridedSlice(RawOp, begin="N", end="N", strides="N"):
    """input[begin:end:strides] as Python writes it; each bit of a mask speaks of one entry.

    `begin_mask` and `end_mask`: from the start, to the end. `ellipsis_mask`: all axes that no other entry speaks of.
    `new_axis_mask`: an axis of size 1. `shrink_axis_mask`: the one element at `begin`, without its axis.
    """

    static_sizes = ("N",)
    static_operands = ("strides",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One ellipsis at most, no stride of 0, and no more entries than axes."""
        if call.attributes["ellipsis_mask"].bit_count() > 1:
            raise call.error("attribute ellipsis_mask", "one bit at most", bin(call.attributes["ellipsis_mask"]))
        strides, shape = numbers(call, "strides"), shape_of(call, "input")
        if strides is not None and 0 in strides:
            raise call.error("strides", "no stride of 0", f"{strides}")
        masks = call.attributes["ellipsis_mask"] | call.attributes["new_axis_mask"]
        entries = length_of(call, "begin") or 0
        count = entries - sum(masks >> entry & 1 for entry in range(min(entries, MAX_RANK)))
        if shape is not None and count > len(shape):
            raise call.error("begin", f"entries for at most {len(shape)} axes", f"{count}")


def _bounds(call: Call, name: str, count: int) -> list[int | str | None]:
    """Where a slice begins or ends along each axis: a number, `open` at the axis' own end, `None` if not known."""
    found: Sequence[int | str | None] = numbers(call, name) or [None] * count
    masked = call.attributes[f"{name}_mask"]
    return ["open" if masked >> entry & 1 else bound for entry, bound in enumerate(found)]


def _left(size: Dim, begin: int | str | None, end: int | str | None, stride: int | None) -> Dim:
    """How many elements a slice takes of an axis."""
    first, last = (None if bound == "open" else bound for bound in (begin, end))
    if isinstance(size, int) and stride and begin is not None and end is not None:
        return len(range(*slice(first, last, stride).indices(size)))
    return size if begin in ("open", 0) and end == "open" and stride == 1 else None
