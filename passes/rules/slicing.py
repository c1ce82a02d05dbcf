"""Lowering of the ops that cut parts out of arrays."""

from __future__ import annotations

from lstm_lower.dims import MAX_RANK
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.graph.values import Dim, UnknownEntry
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, length_of, numbers, shape_of
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, entries, from_end, scalar, wide
from lstm_lower.passes.rules.registry import Node, lowers, rank_of
from lstm_lower.passes.rules.strided_slice import Axis, sliced_axes


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


@lowers(Slice, repeatable=True)
def slice_(n: Node, b: Builder) -> Expr:
    """Cuts the axes of which not all is wanted."""
    x = n.moved("input")
    given = [wide(n.begin), wide(n.moved("size"))]
    begins, sizes = (entries(vector) for vector in given)
    if begins is None or sizes is None:
        ends = b.where(given[1] < 0, END, given[0] + given[1])
        return b.op(std.Slice, x, given[0], ends)
    known: list[Dim | None] = list(given[1].entries or ())
    cuts: list[tuple[Size, Size, int]] = []
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        whole = None if x.shape is None else x.shape[axis]
        if isinstance(begin, int) and begin == 0 and known[axis] in (-1, whole):
            known[axis] = whole
            continue
        end: Size = END if known[axis] == -1 else _sum(begin, size)
        if isinstance(known[axis], UnknownEntry) and isinstance(size, Expr):
            end = b.where(size < 0, END, end)
        cuts.append((begin, end, axis))
        left = whole - begin if isinstance(whole, int) and isinstance(begin, int) else None
        known[axis] = left if known[axis] == -1 else None if isinstance(known[axis], UnknownEntry) else known[axis]
    return b.set_shape(_cut(x, cuts), known)


def _sum(first: Size, second: Size) -> Size:
    return second if isinstance(first, int) and first == 0 else first + second


def _cut(x: Expr, cuts: list[tuple[Size, Size, int]], strides: list[int] | None = None) -> Expr:
    """A Slice from a begin to an end along each of some axes."""
    b = x.builder
    if not cuts:
        return x
    begins, ends, axes = ([cut[part] for cut in cuts] for part in range(3))
    steps = [b.ints(*strides)] if strides is not None and set(strides) != {1} else []
    return b.op(std.Slice, x, b.sizes(begins), b.sizes(ends), b.sizes(axes), *steps)


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


@lowers(StridedSlice, repeatable=True)
def strided_slice(n: Node, b: Builder) -> Expr:
    """One Slice of all axes that keep more than one element, a Gather of each of the others, then the new axes."""
    x = n.moved("input")
    begins, ends = entries(wide(n.begin)), entries(wide(n.end))
    if begins is None or ends is None:
        raise n.unsupported("begin", "a known length", "an unknown one")
    strides = [int(stride) for stride in n.fixed("strides")]
    rank = rank_of(n, "input", x) if n.ellipsis_mask or x.shape is not None else len(begins)
    axes, added = sliced_axes(n, rank, begins, ends, strides)
    for position, axis in enumerate(axes):
        if axis.stride < 0 and axis.begin is not None:
            x, axes[position] = _backwards(x, position, axis)
    cuts, steps = [], []
    for position, axis in enumerate(axes):
        if not axis.index and not axis.whole:
            first, last = (0, END) if axis.stride > 0 else (-1, -END)
            begin, end = (bound if given is None else given for given, bound in ((axis.begin, first), (axis.end, last)))
            cuts.append((begin, end, position))
            steps.append(axis.stride)
    x = _cut(x, cuts, steps)
    for position, axis in reversed(list(enumerate(axes))):
        if axis.index and axis.begin is not None:
            x = x.take(scalar(b, axis.begin), axis=position)
    return x.unsqueeze(*added)


def _backwards(x: Expr, position: int, axis: Axis) -> tuple[Expr, Axis]:
    """Cuts behind the first element, so that the slice starts at the last one.

    A begin before the first element takes nothing, where ONNX takes the first.
    """
    begin, end, size = axis.begin, axis.end, x.size(position)
    assert begin is not None
    if isinstance(begin, int) and isinstance(size, int) and begin >= -size:
        return x, axis
    if isinstance(begin, int) and begin >= -1:
        return x, axis
    stop = at_least(from_end(begin, size) + 1, 0)
    x = _cut(x, [(0, stop, position)])
    if end is not None:
        left = at_most(stop, size)
        # Counted from behind, where "before the first" has a number of its own.
        end = at_most(at_least(from_end(end, size), -1), left - 1) - left
    return x, Axis(-1, end, axis.stride)
