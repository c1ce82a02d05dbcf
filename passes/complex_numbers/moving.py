"""Operators that lay out elements anew: each takes the two parts of an element along.

Views count axes from the front, where the axis behind all others changes none.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.dtypes import parts_of
from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.form import node_label
from lstm_lower.passes.complex_numbers.registry import Parts, by_parts
from lstm_lower.passes.formulas.sizes import wide

Results = Sequence[Expr]


def known(view: std.Standard, what: str, found: tuple[int, ...] | int | None) -> list[int]:
    """Axes as a list.

    Raises:
        UnsupportedOpError: they are known at run time only.
    """
    if found is None:
        text = requires(view.op_type, node_label(view.node), what, "axes known before the run", "others")
        raise UnsupportedOpError(text + ": its numbers are complex")
    return [found] if isinstance(found, int) else list(found)


def again(view: std.Standard, p: Parts, *operands: Expr | None, **changed: int | None) -> Results:
    """The same operator on parts; further operands as given."""
    values = [None if x is None else x.value for x in operands]
    made = p.builder.again(view.node, values, **changed)
    return [p.builder.wrap(value) for value in made.outputs]


def _behind(sizes: ir.Value, p: Parts, last: int) -> Expr:
    """A vector with one more entry."""
    return p.builder.concat([wide(p.builder.wrap(sizes)), p.builder.ints(last)], 0)


def _others(view: std.Standard, p: Parts, start: int = 1) -> list[Expr | None]:
    return [None if x is None else p.builder.wrap(x) for x in view.inputs[start:]]


@by_parts(std.Identity)
def _identity(view: std.Identity, p: Parts) -> Results:
    return again(view, p, p.of(view.data)) if view.stops else [p.of(view.data)]


@by_parts(std.Reshape)
def _reshape(view: std.Reshape, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.target, p, 2))


@by_parts(std.Expand)
def _expand(view: std.Expand, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.target, p, 2))


@by_parts(std.Tile)
def _tile(view: std.Tile, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.repeats, p, 1))


@by_parts(std.Transpose)
def _transpose(view: std.Transpose, p: Parts) -> Results:
    order = known(view, "perm", view.perm)
    return [p.of(view.data).transpose(*order, len(order))]


@by_parts(std.Squeeze)
def _squeeze(view: std.Squeeze, p: Parts) -> Results:
    axes = known(view, "axes", view.axes)
    return [p.of(view.data).squeeze(*axes) if axes else p.of(view.data)]


@by_parts(std.Unsqueeze)
def _unsqueeze(view: std.Unsqueeze, p: Parts) -> Results:
    return [p.of(view.data).unsqueeze(*known(view, "axes", view.axes))]


@by_parts(std.Slice)
def _slice(view: std.Slice, p: Parts) -> Results:
    starts, ends, _, *steps = [*_others(view, p), None, None][:4]
    return again(view, p, p.of(view.data), starts, ends, p.builder.ints(*known(view, "axes", view.axes)), *steps)


@by_parts(std.Gather)
def _gather(view: std.Gather, p: Parts) -> Results:
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, p.of(view.data), *_others(view, p), axis=axis)


@by_parts(std.GatherND, std.ReverseSequence)
def _leading(view: std.Moving, p: Parts) -> Results:
    """What counts axes from the front as it is."""
    return again(view, p, p.of(view.data), *_others(view, p))


@by_parts(std.GatherElements)
def _gather_elements(view: std.GatherElements, p: Parts) -> Results:
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, p.of(view.data), _twice(p.builder, view.indices), axis=axis)


def _twice(b: Builder, indices: ir.Value) -> Expr:
    """Indices of elements, for either part of each."""
    wrapped = b.wrap(indices)
    return b.op(std.Expand, wrapped.unsqueeze(-1), b.concat([wrapped.sizes(), b.ints(2)], 0))


@by_parts(std.Split)
def _split(view: std.Split, p: Parts) -> Results:
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, p.of(view.data), *_others(view, p), axis=axis)


@by_parts(std.Concat)
def _concat(view: std.Concat, p: Parts) -> Results:
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, *[p.of(part) for part in view.parts], axis=axis)


@by_parts(std.Pad)
def _pad(view: std.Pad, p: Parts) -> Results:
    value = view.facts.constant(view.value)
    if view.mode == "constant" and view.value is not None and (value is None or value.any()):
        text = requires(view.op_type, node_label(view.node), "the value", "0, as its numbers are complex", "another")
        raise UnsupportedOpError(text)
    b, rank = p.builder, view.rank()
    axes = known(view, "axes", view.axes if view.operand(3) is not None or rank is None else tuple(range(rank)))
    data, pads = p.of(view.data), wide(b.wrap(view.node.inputs[1]))  # type: ignore[arg-type]
    if b.opset >= 18:
        return again(view, p, data, pads, None, b.ints(*axes))
    none, half = b.ints(0), len(axes)
    return again(
        view, p, data, b.concat([pads.slice(0, half, axis=0), none, pads.slice(half, 2 * half, axis=0), none], 0)
    )


@by_parts(std.ScatterND)
def _scatter_nd(view: std.ScatterND, p: Parts) -> Results:
    _check_sum(view)
    return again(view, p, p.of(view.data), p.builder.wrap(view.indices), p.of(view.updates))


@by_parts(std.ScatterElements)
def _scatter_elements(view: std.ScatterElements, p: Parts) -> Results:
    _check_sum(view)
    (axis,) = known(view, "axis", view.axis)
    return again(view, p, p.of(view.data), _twice(p.builder, view.indices), p.of(view.updates), axis=axis)


def _check_sum(view: std.Scatter) -> None:
    if view.reduction not in ("none", "add"):
        what = "none or add, of complex numbers"
        text = requires(view.op_type, node_label(view.node), "reduction", what, view.reduction)
        raise UnsupportedOpError(text)


@by_parts(std.Where)
def _where(view: std.Where, p: Parts) -> Results:
    return [p.builder.op(std.Where, p.builder.wrap(view.condition).unsqueeze(-1), p.of(view.yes), p.of(view.no))]


@by_parts(std.Shape)
def _shape(view: std.Shape, p: Parts) -> Results:
    sizes = p.of(view.data).sizes().slice(0, -1, axis=0)
    if view.bounds == slice(0, None):
        return [sizes]
    return [sizes.slice(view.bounds.start, 2**31 - 1 if view.bounds.stop is None else view.bounds.stop, axis=0)]


@by_parts(std.Size)
def _size(view: std.Size, p: Parts) -> Results:
    return [p.builder.op(std.Size, p.of(view.data)) / 2]


@by_parts(std.ConstantOfShape)
def _constant_of_shape(view: std.ConstantOfShape, p: Parts) -> Results:
    assert view.fill is not None
    parts = parts_of(view.fill.numpy())[0]
    value = p.builder.constant(parts, ir.DataType.from_numpy(parts.dtype))
    return [p.builder.op(std.Expand, value, _behind(view.target, p, 2))]


@by_parts(std.Constant)
def _constant(view: std.Constant, p: Parts) -> Results:
    array = view.facts.constant(view.output)
    assert array is not None
    parts = parts_of(array)
    return [p.builder.constant(parts, ir.DataType.from_numpy(parts.dtype))]


@by_parts(std.PartsOf, std.OfParts)
def _parts(view: std.PartsOf | std.OfParts, p: Parts) -> Results:
    return [p.of(view.data)]
