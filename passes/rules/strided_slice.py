"""Lowering of StridedSliceGrad: zeros with the gradient in the slice's place.

Symbols: R rank of a result, N entries of a slice specification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.sizes import Size, at_least, at_most, entries, from_end, up_to
from lstm_lower.passes.rules.registry import Node, lowers


@dataclasses.dataclass(frozen=True)
class Axis:
    """The slice along one axis of the forward operand.

    Attributes:
        begin: the first element read, as given; `None` from the start on.
        end: the first one that is not, as given; `None` to the end.
        stride: distance of the elements read.
        index: whether it is a single element, so that the axis is missing in dy.
        whole: whether all of the axis is read in order, so that dy has the right size already.
    """

    begin: Size | None = None
    end: Size | None = None
    stride: int = 1
    index: bool = False
    whole: bool = False


WHOLE = Axis(whole=True)


class StridedSliceGrad(RawOp, shape="R", begin="N", end="N", strides="N"):
    """Gradient of x[begin:end:strides]: zeros of x's shape with dy in the slice's place."""

    static_sizes = ("R", "N")
    static_operands = ("strides",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One ellipsis at most, and no stride of 0."""
        if call.attributes["ellipsis_mask"].bit_count() > 1:
            raise call.error("attribute ellipsis_mask", "one bit at most", bin(call.attributes["ellipsis_mask"]))
        strides = call.operands["strides"].value
        if strides is not None and (strides == 0).any():
            raise call.error("strides", "no stride of 0", strides.tolist())


@lowers(StridedSliceGrad)
def strided_slice_grad(n: Node, b: Builder) -> Expr:
    """Gives dy the forward operand's axes, then pads each sliced axis or, with a stride, spreads dy along it."""
    sizes, begins = entries(n.shape), entries(n.begin)
    if sizes is None:
        raise n.unsupported("shape", "a known length", "an unknown one")
    if begins is None:
        raise n.unsupported("begin", "a known length", "an unknown one")
    strides = [int(stride) for stride in n.fixed("strides")]
    axes, added = sliced_axes(n, len(sizes), begins, [None] * len(begins), strides)
    dy = computed(n.dy)
    gradient = dy.squeeze(*added)
    missing = [position for position, axis in enumerate(axes) if axis.index]
    gradient = gradient.unsqueeze(*missing)
    pads: list[Size] = [0] * (2 * len(sizes))
    for position, axis in enumerate(axes):
        if axis.whole:
            continue
        if axis.stride == 1:
            before, after = _margins(gradient, position, axis, sizes[position])
            pads[position], pads[position + len(sizes)] = before, after
        else:
            gradient = _spread(gradient, position, axis, sizes[position])
    if any(not isinstance(pad, int) or pad for pad in pads):
        gradient = b.op(std.Pad, gradient, b.sizes(pads))
    if gradient.value is not dy.value:
        gradient = b.set_shape(gradient, n.shape.entries or [None] * len(sizes))
    return gradient


def sliced_axes(
    n: Node, rank: int, begins: Sequence[Size], ends: Sequence[Size | None], strides: Sequence[int]
) -> tuple[list[Axis], list[int]]:
    """Spells the masks out.

    Returns:
        An entry for each axis of the slice's operand, and the axes of its result that it added.
    """
    count = len(begins)
    positions = range(count)
    real = [p for p in positions if not (n.ellipsis_mask | n.new_axis_mask) >> p & 1]
    after_ellipsis = False
    axes: list[Axis] = []
    added: list[int] = []
    place = 0
    for position in positions:
        bit = 1 << position
        if n.ellipsis_mask & bit:
            later = sum(1 for p in real if p > position)
            span = rank - len(axes) - later
            axes += [WHOLE] * span
            place += span
            after_ellipsis = True
        elif n.new_axis_mask & bit:
            added.append(place)
            place += 1
        elif n.shrink_axis_mask & bit:
            axes.append(Axis(begins[position], index=True))
        else:
            begin = None if n.begin_mask & bit else begins[position]
            end = None if n.end_mask & bit else ends[position]
            whole = begin is None and bool(n.end_mask & bit) and strides[position] == 1
            axes.append(Axis(begin, end, strides[position], whole=whole))
            place += 1
    if len(axes) > rank or (after_ellipsis and len(axes) != rank):
        raise n.unsupported("begin", f"entries for at most {rank} axes", f"{len(axes)}")
    return axes + [WHOLE] * (rank - len(axes)), added


def _margins(gradient: Expr, position: int, axis: Axis, size: Size) -> tuple[Size, Size]:
    """How many zeros stand before and after dy along an axis."""
    length: Size = 1 if axis.index else gradient.size(position)
    if axis.begin is None:
        return 0, size - length
    begin = from_end(axis.begin, size)
    if not axis.index:
        begin = at_most(at_least(begin, 0), size)
    return begin, size - begin - length


def _spread(gradient: Expr, position: int, axis: Axis, size: Size) -> Expr:
    """Puts element k of dy at begin + k * stride: each place of the result looks up its element, if it has one."""
    b = gradient.builder
    length = gradient.size(position)
    first: Size = 0 if axis.stride > 0 else size - 1
    if axis.begin is not None:
        begin = from_end(axis.begin, size)
        first = at_most(at_least(begin, 0), size) if axis.stride > 0 else at_most(at_least(begin, -1), size - 1)
    places = up_to(b, size)
    distance = (places - first) * (1 if axis.stride > 0 else -1)
    step = abs(axis.stride)
    element = b.op(std.Div, distance, distance.like(step))
    on_grid = (element * step).equals(distance)
    valid = on_grid & (distance >= 0) & (element < length)
    # The element past the last is a zero, for the places that have none.
    padded = concat([gradient, _zero_slice(gradient, position)], position)
    return padded.take(b.where(valid, element, length), axis=position)


def _zero_slice(x: Expr, axis: int) -> Expr:
    assert x.shape is not None
    b = x.builder
    return b.fill(0, [1 if position == axis else x.size(position) for position in range(len(x.shape))], x.dtype)
