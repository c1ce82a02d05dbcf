"""Lowering of the ops that turn, repeat and pad arrays."""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat
from lstm_lower.graph.values import Dim
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import (
    RawOp,
    count_axis,
    length_of,
    numbers,
    shape_of,
)
from lstm_lower.passes.formulas.complex_numbers import conjugate
from lstm_lower.passes.formulas.kernels import computed, movable
from lstm_lower.passes.formulas.rows import INT64, turned
from lstm_lower.passes.formulas.sizes import Size, at_least, entries, remainder, up_to, wide
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _one_each(call: Call, name: str, vector: str) -> None:
    """Verifies that a vector has an entry for each axis.

    Raises:
        InvalidModelError, InvalidInputError: it has more or fewer.
    """
    shape, count = shape_of(call, name), length_of(call, vector)
    if shape is not None and count is not None and len(shape) != count:
        raise call.error(vector, f"an entry for each of {name}'s {len(shape)} axes", f"{count}")


class Tile(RawOp, multiples="R"):
    """The input repeated along each axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """One number for each axis."""
        _one_each(call, "input", "multiples")


@lowers(Tile, repeatable=True)
def tile(n: Node, b: Builder) -> Expr:
    """A Tile, where anything is repeated."""
    x, factors = n.moved("input"), n.multiples.entries
    if x.shape == () or (factors is not None and all(factor == 1 for factor in factors)):
        return x
    return b.op(std.Tile, movable(x), wide(n.multiples))


def permuted(x: Expr, order: list[int]) -> Expr:
    """The axes in an order."""
    return x if order == sorted(order) else x.transpose(*order)


def _counted(axes: list[int]) -> list[int]:
    return [axis + len(axes) if axis < 0 else axis for axis in axes]


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


class ConjugateTranspose(Transpose):
    """Transpose, of complex numbers their conjugates."""


@lowers(Transpose, ConjugateTranspose, repeatable=True)
def transpose(n: Node, b: Builder) -> Expr:
    """A Transpose; where the order is only known at run time, each element by its place in memory."""
    order, x = n.constant("perm"), n.moved("x")
    x = conjugate(x) if n.op is ConjugateTranspose and is_complex(x.dtype) else x
    if order is None:
        return _permuted_at_run_time(n, b, movable(x))
    return permuted(x, [int(axis) % len(order) for axis in order])


def _permuted_at_run_time(n: Node, b: Builder, x: Expr) -> Expr:
    order = wide(n.perm)
    rank = (order.shape or (None,))[0]
    if not isinstance(rank, int):
        raise n.unsupported("perm", "a constant or a known number of axes", "neither")
    shape = x.sizes()
    sizes = shape.take(order)
    behind = [b.op(std.ReduceProd, shape.slice(axis + 1, END, axis=0), keepdims=1) for axis in range(rank)]
    strides = concat(behind, 0).take(order)
    places = b.constant(0, INT64)
    for axis in range(rank):
        size, stride = (x.take(axis) for x in (sizes, strides))
        steps = up_to(b, size) * stride
        places = places + steps.reshape(-1, *[1] * (rank - 1 - axis))
    return b.set_shape(x.reshape(-1).take(places), [None] * rank)


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


@lowers(Pad, PadV2, repeatable=True)
def pad(n: Node, b: Builder) -> Expr:
    """A Pad; axes without padding keep their size."""
    x = computed(n.moved("input"))
    if x.shape == ():
        return x
    paddings = wide(n.paddings)
    value = [computed(n.moved("constant_values"))] if n.op is PadV2 else []
    known = paddings.reshape(-1).entries
    if known is not None and all(isinstance(width, int) for width in known):
        widths = b.ints(*[width for width in (*known[::2], *known[1::2]) if isinstance(width, int)])
    else:
        widths = paddings.transpose(1, 0).reshape(-1)
    output = b.op(std.Pad, x, widths, *value)
    if known is not None and x.shape is not None:
        kept = [before == after == 0 for before, after in zip(known[::2], known[1::2], strict=True)]
        sizes: list[Dim | None] = [size if keep else None for size, keep in zip(x.shape, kept, strict=True)]
        output = b.set_shape(output, sizes)
    return output


class MirrorPad(Pad):
    """The input's own elements, mirrored, around it."""


@lowers(MirrorPad, repeatable=True)
def mirror_pad(n: Node, _: Builder) -> Expr:
    """Axis by axis: the elements at either end, turned round, before and after."""
    x = n.moved("input")
    rank = rank_of(n, "input", x)
    shift = 1 if n.mode == "REFLECT" else 0
    flat = n.paddings.reshape(-1)
    widths: list[Size] = entries(flat) or [flat.cast(INT64).slice(i, i + 1, axis=0) for i in range(2 * rank)]
    for axis in range(rank):
        before, after = widths[2 * axis : 2 * axis + 2]
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        size = x.size(axis)
        first = x.slice(shift, before + shift, axis=axis)
        last = x.slice(at_least(size - after - shift, 0), size - shift, axis=axis)
        x = concat([turned(first, [axis]), x, turned(last, [axis])], axis)
    return x


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


@lowers(ReverseV2, repeatable=True)
def reverse(n: Node, _: Builder) -> Expr:
    """A slice backwards along the axes."""
    return turned(n.moved("tensor"), [int(axis) for axis in n.fixed("axis")])


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


@lowers(ReverseSequence, repeatable=True)
def reverse_sequence(n: Node, b: Builder) -> Expr:
    """ONNX's, whose two axes must be the first ones."""
    x = movable(n.moved("input"))
    rank = rank_of(n, "input", x)
    time, batch = int(n.seq_dim) % rank, int(n.batch_dim) % rank
    order = [batch, time, *(axis for axis in range(rank) if axis not in (batch, time))]
    order = list(range(rank)) if {time, batch} == {0, 1} else order
    axes = {"time_axis": order.index(time), "batch_axis": order.index(batch)}
    turned_ = b.op(std.ReverseSequence, permuted(x, order), wide(n.seq_lengths), **axes)
    return permuted(turned_, [order.index(axis) for axis in range(rank)])


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


@lowers(Roll, repeatable=True)
def roll(n: Node, b: Builder) -> Expr:
    """The last elements along each axis before the first ones."""
    x = n.moved("input")
    shifts = entries(n.shift.reshape(-1))
    axes = [int(axis) for axis in n.fixed("axis").reshape(-1)]
    if shifts is None or len(shifts) != len(axes):
        raise n.unsupported("shift", "a known length", "an unknown one")
    for shift, axis in zip(shifts, axes, strict=True):
        size = x.size(axis)
        if size == 0 or shift == 0:
            continue
        cut = remainder(0 - shift, at_least(size, 1))
        x = concat([x.slice(cut, size, axis=axis), x.slice(0, cut, axis=axis)], axis)
    if n.moved("input").shape is not None:
        x = b.set_shape(x, n.moved("input").shape or ())
    return x
