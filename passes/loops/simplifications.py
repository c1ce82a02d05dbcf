"""Simplifications: zeros and ones vanish, signs cancel, chains of moves shorten, nothing is repeated twice.

A rule gets the node's view, and a builder before the node; it says nothing where nothing simpler is known. Elementwise
operators repeat their operands themselves; no node needs to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder
from lstm_lower.graph.values import Array, Dim, UnknownEntry, broadcast
from lstm_lower.passes.decompositions.arrays import total
from lstm_lower.passes.loops.loop_reversal import turned_round
from lstm_lower.passes.loops.views.pads import is_padded, joined_pads
from lstm_lower.passes.patterns import AnyValue, Pattern, Side, applied
from lstm_lower.passes.rewriting import simplifies


def fits(value: ir.Value | None, op: std.Standard) -> ir.Value | None:
    """A value in the place of a node's result, where its shape is known to be the same."""
    return value if op.facts.same_shape(value, op.output) else None


_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})


X, Z = AnyValue("x"), AnyValue("z")
_negated, _smaller, _larger = applied(std.Neg), applied(std.Min), applied(std.Max)


def _has_sign(view: std.Standard, _: object) -> bool:
    """Numbers without one have no Neg."""
    dtype = view.dtype()
    return dtype is not None and dtype.is_signed()


def _is_finite(view: std.Standard, bound: Mapping[Side, ir.Value]) -> bool:
    return view.facts.finite(bound[X])


def _of_integers(view: std.Standard, _: object) -> bool:
    return view.dtype() in _INTEGERS


PATTERNS = (
    Pattern(0 + X, X, "o = Constant <value = float {0.0}> () y = Add(x, o)"),
    Pattern(X - 0, X, "o = Constant <value = float[2,1] {0.0, 0.0}> () y = Sub(x, o)"),
    Pattern(0 - X, -X, "o = Constant <value = float {0.0}> () y = Sub(o, x)", _has_sign),
    Pattern(1 * X, X, "o = Constant <value = float {1.0}> () y = Mul(o, x)"),
    Pattern(-1 * X, -X, "o = Constant <value = float {-1.0}> () y = Mul(x, o)"),
    Pattern(0 * X, 0, "o = Constant <value = int64[2] {0, 0}> () y = Mul(k, o)", _is_finite),
    Pattern(X / 1, X, "o = Constant <value = float {1.0}> () y = Div(x, o)"),
    Pattern(_negated(-X), X, "n = Neg(x) y = Neg(n)"),
    Pattern(_smaller(X, X), X, "s = Shape(x) y = Min(s, s)", _of_integers),
    Pattern(_larger(X, X), X, "s = Shape(x) y = Max(s, s)", _of_integers),
    Pattern(_smaller(X, _larger(X, Z)), X, "i, j = Split(k) m = Max(j, i) y = Min(i, m)", _of_integers),
    Pattern(_larger(X, _smaller(X, Z)), X, "i, j = Split(k) m = Min(i, j) y = Max(m, i)", _of_integers),
    Pattern(_smaller(X, _smaller(X, Z)), _smaller(X, Z), "i, j = Split(k) m = Min(i, j) y = Min(j, m)", _of_integers),
    Pattern(_larger(X, _larger(X, Z)), _larger(X, Z), "i, j = Split(k) m = Max(i, j) y = Max(m, i)", _of_integers),
)

simplifies(std.Sum)(total)


@simplifies(std.Add)
def _add(op: std.Add, e: Builder) -> ir.Value | None:
    return joined_pads(e, op.node) if is_padded(op) else None


@simplifies(std.Where)
def _where(op: std.Where, _: Builder) -> ir.Value | None:
    condition = op.constant(0)
    if condition is None or condition.size == 0 or not (condition == condition.reshape(-1)[0]).all():
        return None
    return fits(op.yes if condition.reshape(-1)[0] else op.no, op)


@simplifies(std.ReduceSum, std.ReduceMean, std.ReduceMax, std.ReduceMin, std.ReduceProd)
def _reduce(op: std.Reduction, e: Builder) -> ir.Value | None:
    """A reduction over axes of size 1; of int64 onnxruntime makes doubles all the same, which are rounded."""
    shape, axes = op.shape(), op.axes
    if shape is None or axes is None or not axes or any(shape[axis] != 1 for axis in axes):
        return None
    if op.dtype() == ir.DataType.INT64 and not isinstance(op, std.ReduceMax | std.ReduceMin):
        return None
    return op.data if op.keepdims else e.squeeze(op.data, *sorted(axes))


# PRelu repeats its slope only.
_REPEATING_LITTLE = std.PRelu | std.Identity


def narrowed(op: std.Elementwise, e: Builder) -> ir.Value | None:
    """An operator on what one of its operands repeats, in the place of the operator on that operand.

    Where the other operands have the result's shape anyway, nothing is repeated; where all are repeated alike, or are
    scalars, the result is repeated instead of the operand. Zeros and ones made to a shape count as repeated scalars.
    """
    if isinstance(op, _REPEATING_LITTLE):
        return None
    facts, shape = op.facts, op.facts.shape(op.output)
    # What else a function of one operand reads are options.
    operands = op.inputs[:1] if isinstance(op, std.Unary) else op.inputs
    for wide in operands:
        maker = facts.maker(wide)
        if isinstance(maker, std.Expand):
            narrow = facts.shape(maker.data)
        elif isinstance(maker, std.ConstantOfShape) and facts.rank(wide):
            narrow = ()
        else:
            continue
        reached = broadcast(*(narrow if x is wide else facts.shape(x) for x in operands))
        if reached is None or narrow == facts.shape(wide):
            continue
        if reached == shape:
            return _again(op, wide, maker, e)
        if isinstance(maker, std.Expand) and reached == narrow and facts.same_shape(wide, op.output):
            result = _again(op, wide, maker, e)
            return None if result is None else e.op(std.Expand, result, maker.target)
    return None


def _again(
    op: std.Elementwise, wide: ir.Value | None, maker: std.Expand | std.ConstantOfShape, e: Builder
) -> ir.Value | None:
    """The operator on what is repeated."""
    if isinstance(maker, std.Expand):
        narrow: ir.Value | None = maker.data
    else:
        number, dtype = op.facts.uniform(wide), op.facts.dtype(wide)
        narrow = None if number is None or dtype is None else e.constant(number, dtype).value
    if narrow is None:
        return None
    return e.again(op.node, [narrow if x is wide else x for x in op.node.inputs]).outputs[0]


@simplifies(std.Identity)
def _identity(op: std.Identity, _: Builder) -> ir.Value | None:
    if op.stops:
        return None
    # A graph's output needs a maker of its own there. What has one may be the output itself, without a copy.
    made = op.data.producer() is not None and op.data.graph is op.node.graph and not op.data.is_graph_output()
    return op.data if made or not op.output.is_graph_output() else None


@simplifies(std.Cast)
def _cast(op: std.Cast, _: Builder) -> ir.Value | None:
    return op.data if op.dtype() == op.to else None


@simplifies(std.Transpose)
def _transpose(op: std.Transpose, e: Builder) -> ir.Value | None:
    perm = op.perm
    if perm is None:
        return None
    if list(perm) == sorted(perm):
        return op.data
    inner = op.facts.maker(op.data)
    if isinstance(inner, std.Unsqueeze):
        return _unsqueezed_in_order(inner, e, perm)
    if not isinstance(inner, std.Transpose) or inner.perm is None:
        return None
    return e.op(std.Transpose, inner.data, perm=[inner.perm[axis] for axis in perm])


def _unsqueezed_in_order(inner: std.Unsqueeze, e: Builder, perm: tuple[int, ...]) -> ir.Value | None:
    """A Transpose that only moves axes which an Unsqueeze put in: they are put in where they belong instead."""
    added = inner.axes
    if added is None:
        return None
    rest = [axis for axis in perm if axis not in added]
    if rest != sorted(rest):
        return None
    return e.unsqueeze(inner.data, *(place for place, axis in enumerate(perm) if axis in added))


@simplifies(std.Reshape)
def _reshape(op: std.Reshape, _: Builder) -> ir.Value | None:
    """A chain that keeps the elements in their order and ends in the shape that it began with.

    One that is asked for a shape that is not known may be refused it, and that be what it is for.
    """
    wanted = op.facts.entries(op.target)
    if wanted is None or any(isinstance(entry, UnknownEntry) for entry in wanted):
        return None
    value: ir.Value | None = op.data
    while value is not None:
        if (same := fits(value, op)) is not None:
            return same
        maker = op.facts.maker(value)
        value = maker.inputs[0] if maker is not None and _keeps_order(maker) else None
    return None


def _keeps_order(op: std.Standard) -> bool:
    """Whether elements stay in their order in memory."""
    match op:
        case std.Reshape() | std.Flatten() | std.Squeeze() | std.Unsqueeze():
            return True
        case std.Transpose(perm=tuple() as perm):
            # Axes of size 1 may go anywhere.
            shape = op.shape()
            wide = [axis for axis in perm if shape is None or shape[axis] != 1]
            return wide == sorted(wide)
    return False


@simplifies(std.Concat)
def _concat(op: std.Concat, e: Builder) -> ir.Value | None:
    if len(op.inputs) == 1:
        return op.inputs[0]
    axis = op.axis
    shapes = map(op.facts.shape, op.inputs)
    empty = [] if axis is None else [shape is not None and shape[axis] == 0 for shape in shapes]
    if any(empty):
        some = [x for x, nothing in zip(op.inputs, empty, strict=True) if not nothing] or [op.inputs[0]]
        return e.op(std.Concat, *some, axis=axis)
    # The parts of one Split, all in order.
    split = op.facts.maker(op.inputs[0])
    if not isinstance(split, std.Split) or tuple(split.node.outputs) != op.inputs:
        return None
    return split.data if split.axis is not None and split.axis == op.axis else None


@simplifies(std.Squeeze, std.Unsqueeze)
def _undone(op: std.Squeeze | std.Unsqueeze, _: Builder) -> ir.Value | None:
    """A Squeeze of an Unsqueeze along the same axes, and the other way round."""
    inner = op.facts.maker(op.data)
    opposite = std.Unsqueeze if isinstance(op, std.Squeeze) else std.Squeeze
    if not isinstance(inner, opposite) or op.axes is None or op.axes != inner.axes:
        return None
    return fits(inner.data, op)


@simplifies(std.Tile)
def _tile(op: std.Tile, e: Builder) -> ir.Value | None:
    """Repetitions of one element."""
    shape, repeats = op.shape(), op.facts.shape(op.repeats)
    if not shape or repeats != (len(shape),) or any(dim != 1 for dim in shape):
        return None
    return e.op(std.Expand, op.data, op.repeats)


@simplifies(std.Expand)
def _expand(op: std.Expand, _: Builder) -> ir.Value | None:
    """An Expand that adds nothing: every size it asks for is 1 or there already, whatever the other sizes are."""
    shape, target = op.shape(), op.facts.entries(op.target)
    if shape is not None and target is not None and len(target) <= len(shape):
        pairs = zip(target, shape[len(shape) - len(target) :], strict=True)
        if all(wanted in (1, dim) for wanted, dim in pairs):
            return op.data
    return fits(op.data, op)


@simplifies(std.Slice)
def _slice(op: std.Slice, e: Builder) -> ir.Value | None:
    """A Slice that takes everything; a Slice of a transposed value, cut before it is transposed."""
    upright = _turned_back(op, e)
    if upright is not None:
        return upright
    inner, given, axes = op.facts.maker(op.data), op.constant(3), op.axes
    if isinstance(inner, std.Transpose) and inner.perm is not None and given is not None and axes is not None:
        moved = e.constant([inner.perm[axis] for axis in axes], ir.DataType.from_numpy(given.dtype))
        cut = e.op(std.Slice, inner.data, op.starts, op.ends, moved, *op.inputs[4:])
        return e.op(std.Transpose, cut, perm=list(inner.perm))
    starts, ends = op.constant(1), op.constant(2)
    if op.steps is None or any(step != 1 for step in op.steps):
        return None if ends is None or op.steps is None else _to_the_beginning(op, ends, op.steps, e)
    whole = starts is not None and ends is not None and bool((starts == 0).all() and (ends == END).all())
    return op.data if whole else fits(op.data, op)


def _to_the_beginning(op: std.Slice, ends: Array, steps: tuple[int, ...], e: Builder) -> ir.Value | None:
    """A Slice that walks backwards and ends at a largest integer, which onnxruntime takes for the beginning.

    It infers no element for it all the same, and so declares the wrong size for whatever a body makes of the result.
    """
    disputed = np.isin(ends, (np.iinfo(np.int32).max, END)) & (np.asarray(steps) < 0)
    if not disputed.any():
        return None
    least = e.constant(np.where(disputed, -ends, ends), ir.DataType.from_numpy(ends.dtype))
    return e.op(std.Slice, op.data, op.starts, least, *op.inputs[3:])


@simplifies(std.Gather)
def _gather(op: std.Gather, e: Builder) -> ir.Value | None:
    """All elements of an axis in their order; the only element of an axis that was just put in."""
    shape, axis = op.shape(), op.axis
    put_in, place = op.facts.maker(op.data), op.constant(1)
    only = place is not None and place.ndim == 0 and int(place) in (0, -1)
    if isinstance(put_in, std.Unsqueeze) and put_in.axes == (axis,) and only:
        return fits(put_in.data, op)
    if shape is not None and axis is not None and _counts(op.facts, op.indices, shape[axis]):
        return op.data
    return _turned_back(op, e)


def _counts(facts: std.Knowledge, value: ir.Value | None, size: Dim) -> bool:
    """Whether a vector holds 0, 1, 2 and so on, as many as there are in a size."""
    array, maker = facts.constant(value), facts.maker(value)
    if array is not None:
        return array.shape == (size,) and bool((array == np.arange(len(array))).all())
    while isinstance(maker, std.Cast) and maker.to in (ir.DataType.INT32, ir.DataType.INT64):
        maker = facts.maker(maker.data)
    if not isinstance(maker, std.Range) or facts.shape(maker.output) != (size,):
        return False
    return facts.uniform(maker.start) == 0 and facts.uniform(maker.delta) == 1


def _turned_back(op: std.Slice | std.Gather, _: Builder) -> ir.Value | None:
    """What is turned round twice."""
    once = turned_round(op.facts, op.node)
    twice = turned_round(op.facts, once[0].producer()) if once is not None else None
    return twice[0] if once is not None and twice is not None and once[1] == twice[1] else None


@simplifies(std.Pad)
def _pad(op: std.Pad, e: Builder) -> ir.Value | None:
    """A Pad along int32 axes, which onnx's inference bears with until it finds them to be constant."""
    axes = op.constant(3)
    if axes is None or axes.dtype == np.int64:
        return None
    return e.again(op.node, [*op.node.inputs[:3], e.ints(*axes.tolist())]).outputs[0]


@simplifies(std.ScatterND, std.ScatterElements)
def _scatter(op: std.Scatter, e: Builder) -> ir.Value | None:
    """Elements put at all places of an axis in order, or at the only one there is, or added to zeros there."""
    shape, places = op.shape(), op.constant(1)
    if not shape or (op.reduction != "none" and (op.reduction != "add" or op.facts.uniform(op.data) != 0.0)):
        return None
    axis = op.axis if isinstance(op, std.ScatterElements) else 0
    if axis is not None and _counts_along(op, axis, shape[axis]) and op.facts.same_shape(op.updates, op.output):
        return op.updates
    if not isinstance(op, std.ScatterND) or shape[0] != 1 or places is None or places.shape not in ((1,), (1, 1)):
        return None
    if int(places.reshape(())) not in (0, -1):
        return None
    return e.unsqueeze(op.updates, 0) if places.ndim == 1 else op.updates


def _counts_along(op: std.Scatter, axis: int, size: Dim) -> bool:
    """Whether indices are the places of an axis in order, and the same along all other axes."""
    facts, repeated = op.facts, op.facts.maker(op.indices)
    places = repeated.data if isinstance(repeated, std.Expand) else op.indices
    array, rank = facts.constant(places), facts.rank(places)
    if rank is None or rank != facts.rank(op.indices) or rank <= axis:
        return False
    if array is not None:
        counted = np.arange(array.shape[axis]).reshape(-1, *[1] * (rank - axis - 1))
        return array.shape[axis] == size and bool((array == counted).all())
    if rank > 1:
        spread = facts.maker(places)
        if not isinstance(spread, std.Unsqueeze) or {*(spread.axes or ()), axis} != {*range(rank)}:
            return False
        places = spread.data
    return _counts(facts, places, size)
