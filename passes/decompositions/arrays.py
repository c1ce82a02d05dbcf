"""Operators on arrays that targets lack, in those that every target has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rewriting import decomposes

INT64 = ir.DataType.INT64
# As many parts as onnxruntime's kernels for GPUs take as arguments; lists of more are copied to the device first.
PARTS = 32


@decomposes(std.Size)
def size(view: std.Size, b: Builder) -> Expr:
    """The product of all sizes; of a scalar, which has none, one."""
    if view.rank() == 0:
        return b.constant(1, INT64)
    return b.wrap(view.data).sizes().reduce(std.ReduceProd, 0, keepdims=False)


@decomposes(std.BitCast)
def same_bits(view: std.BitCast, b: Builder) -> Expr:
    """Bits of the dtype that they have already are the same numbers."""
    if view.dtype() != view.to:
        way = "what gradients flow through is written in arithmetic (Sign, Abs, Floor, Log)"
        raise view.unsupported("to, for the gradient,", f"the operand's dtype, {view.dtype()}", f"{view.to}; {way}")
    return b.op(std.Identity, b.wrap(view.data))


@decomposes(std.Bernoulli)
def bernoulli(view: std.Bernoulli, b: Builder) -> Expr:
    """Whether a number from 0 to 1 is less than the probability."""
    probability = b.wrap(view.data)
    dtype = view.attribute("dtype", None) or int(probability.dtype)
    if probability.dtype != ir.DataType.DOUBLE:
        probability = probability.cast(ir.DataType.FLOAT)
    seed = view.attribute("seed", None)
    numbers = b.op(std.RandomUniformLike, probability, **({} if seed is None else {"seed": seed}))
    return (numbers < probability).cast(ir.DataType(dtype))


@decomposes(std.Tile)
def tile(view: std.Tile, b: Builder) -> Expr | None:
    """Repetition along an axis: the array beside itself, as often as is known."""
    repeats = view.constant(1)
    if repeats is None or any(count < 1 for count in repeats):
        return None
    result = b.wrap(view.data)
    for axis, count in enumerate(repeats):
        result = result if count == 1 else b.concat([result] * int(count), axis)
    return b.op(std.Identity, result) if result.value is view.data else result


@decomposes(std.Concat)
def joined(view: std.Concat, b: Builder) -> list[Expr] | None:
    """Many parts, `PARTS` of them at a time."""
    parts, axis = [b.wrap(part) for part in view.parts], view.axis
    if len(parts) <= PARTS or axis is None:
        return None
    while len(parts) > 1:
        parts = [b.concat(parts[first : first + PARTS], axis) for first in range(0, len(parts), PARTS)]
    return parts


@decomposes(std.Split)
def divided(view: std.Split, b: Builder) -> list[Expr] | None:
    """Into many parts, by way of larger ones that are `PARTS` of them each."""
    sizes, axis = view.sizes, view.axis
    if sizes is None or axis is None or len(sizes) <= PARTS:
        return None
    groups = [sizes[first : first + PARTS] for first in range(0, len(sizes), PARTS)]
    whole = b.ops(std.Split, b.wrap(view.data), b.ints(*map(sum, groups)), outputs=len(groups), axis=axis)
    return [
        part
        for larger, group in zip(whole, groups, strict=True)
        for part in b.ops(std.Split, larger, b.ints(*group), outputs=len(group), axis=axis)
    ]


def _chained(step: Callable[[Expr, Expr], Expr], operands: Sequence[ir.Value | None], b: Builder) -> Expr:
    parts = [b.wrap(operand) for operand in operands if operand is not None]
    return b.op(std.Identity, parts[0]) if len(parts) == 1 else functools.reduce(step, parts)


@decomposes(std.Max)
def largest(view: std.Max, b: Builder) -> Expr:
    """Of several operands, two by two."""
    return _chained(Expr.maximum, view.inputs, b)


@decomposes(std.Min)
def smallest(view: std.Min, b: Builder) -> Expr:
    """Of several operands, two by two."""
    return _chained(Expr.minimum, view.inputs, b)


@decomposes(std.Sum)
def total(view: std.Sum, b: Builder) -> Expr:
    """Of several operands, two by two."""
    return _chained(Expr.__add__, view.inputs, b)


@decomposes(std.Mean)
def mean(view: std.Mean, b: Builder) -> Expr:
    """The sum over the number of operands."""
    return _chained(Expr.__add__, view.inputs, b) / len(view.inputs)


@decomposes(std.ScatterND)
def adding_scatter(view: std.ScatterND, b: Builder) -> Expr | None:
    """Rows added to those that numbers name: to each row, all that are meant for it, and zeros for the others.

    A product with a matrix of ones and zeros would take less memory, but spread what is not finite.
    """
    forms = view.shape(0), view.shape(1), view.shape(2)
    if view.attribute("reduction", "none") != "add" or None in forms:
        return None
    data, numbers, rows = b.wrap(view.data), b.wrap(view.indices), b.wrap(view.updates)
    assert numbers.shape is not None
    assert rows.shape is not None
    if len(numbers.shape) != 2 or numbers.shape[1] != 1:
        return None
    count = data.size(0)
    places = up_to(b, count)
    flat = numbers.cast(INT64).squeeze(1)
    flat = b.where(flat < 0, flat + count, flat)
    meant = places.unsqueeze(1).equals(flat.unsqueeze(0))
    mask = meant.unsqueeze(*range(2, 1 + len(rows.shape))) if len(rows.shape) > 1 else meant
    return data + b.where(mask, rows.unsqueeze(0), 0).sum(1)


@decomposes(std.Where)
def choice(view: std.Where, b: Builder) -> Expr:
    """Each element from where it stands in one of the two, laid one on the other.

    For runtimes that multiply both by zeros and ones and add them, which makes a number of none that is not finite.
    """
    yes, no = b.wrap(view.yes), b.wrap(view.no)
    zero = b.constant(0, INT64)
    places = (~b.wrap(view.condition)).cast(INT64)
    for part in (yes, no):
        places = places + b.op(std.Expand, zero, part.sizes())
    whole = places.sizes()
    both = b.concat([b.op(std.Expand, part, whole).unsqueeze(0) for part in (yes, no)], 0)
    return b.op(std.GatherElements, both, places.unsqueeze(0), axis=0).squeeze(0)


@decomposes(std.ArgMax, std.ArgMin)
def place(view: std.Arg, b: Builder) -> Expr | None:
    """Where the first of the sorted stands; equal ones stand in their order."""
    axis = view.attribute("axis", 0)
    if view.attribute("select_last_index", 0):
        return None
    _, found = b.ops(
        std.TopK, b.wrap(view.data), b.ints(1), outputs=2, axis=axis, largest=int(isinstance(view, std.ArgMax))
    )
    return found if view.keepdims else found.squeeze(axis)
