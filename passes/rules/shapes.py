"""Lowering of the ops that read shapes or give arrays another one.

Symbols: R rank of a result.
"""

from __future__ import annotations

import math

from lstm_lower.dims import agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.graph.values import Dim, UnknownEntry
from lstm_lower.opdef import Call, attr
from lstm_lower.ops.raw import RawOp, count_axis, number, numbers, shape_of
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import Size as Number
from lstm_lower.passes.formulas.sizes import divided, entries, remainder, wide
from lstm_lower.passes.rules.registry import Node, lowers


class Shape(RawOp):
    """The sizes of all axes."""


class Size(RawOp):
    """The number of elements."""


@lowers(Shape, Size, repeatable=True)
def shape(n: Node, b: Builder) -> Expr:
    """Numbers where all are known."""
    x = n.moved("input")
    known = [size for size in x.shape or () if isinstance(size, int)]
    op = std.Size if n.op is Size else std.Shape
    if x.shape is not None and len(known) == len(x.shape):
        total = 1
        for size in known:
            total *= size
        return b.constant(total if n.op is Size else known, n.out_type)
    return b.op(op, x)


class Reshape(RawOp, shape="R"):
    """The elements in another shape; a size of -1 is inferred."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """As many elements as before."""
        sizes, shape = numbers(call, "shape"), shape_of(call, "tensor")
        if sizes is None:
            return
        if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
            raise call.error("shape", "sizes of 0 or more, and -1 once at most", f"{sizes}")
        known = [size for size in shape or () if isinstance(size, int)]
        if shape is not None and len(known) == len(shape):
            count, rest = math.prod(known), math.prod(size for size in sizes if size != -1)
            if count != rest if -1 not in sizes else rest and count % rest:
                raise call.error("shape", f"sizes of {count} elements (as tensor)", f"{sizes}")


@lowers(Reshape, repeatable=True)
def reshape(n: Node, b: Builder) -> Expr:
    """A Reshape; where one size alone is not a known number it is what is left over."""
    x, wanted = n.moved("tensor"), n.shape.entries
    target = wide(n.shape)
    if wanted is None:
        return reshape_to(x, target)
    sizes = [size for size in wanted if isinstance(size, int)]
    if 0 in sizes:
        # Nothing is left of any array, and a 0 means something else to older opsets.
        return b.fill(0, entries(target) or [], x.dtype)
    if len(sizes) == len(wanted) or (len(sizes) == len(wanted) - 1 and -1 not in sizes):
        output = b.op(std.Reshape, x, b.ints(*[size if isinstance(size, int) else -1 for size in wanted]))
    else:
        output = reshape_to(x, target)
    said: list[Dim | None] = [None if size == -1 or isinstance(size, UnknownEntry) else size for size in wanted]
    return b.set_shape(output, said)


class ExpandDims(RawOp):
    """An axis of size 1 more."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is one of the result's."""
        shape, axis = shape_of(call, "input"), number(call, "axis")
        if shape is not None and axis is not None:
            count_axis(call, "axis", axis, len(shape) + 1)


@lowers(ExpandDims, repeatable=True)
def expand_dims(n: Node, _: Builder) -> Expr:
    """An Unsqueeze."""
    return n.moved("input").unsqueeze(int(n.fixed("axis").reshape(-1)[0]))


class Squeeze(RawOp):
    """Removes axes of size 1: the named ones, or all of them if none is named."""

    class Attrs:
        squeeze_dims = attr(list[int], [])
        axis = attr(list[int], [])

    @classmethod
    def axes(cls, call: Call) -> tuple[int, ...] | None:
        """The axes that go; `None` where that is not known."""
        shape = shape_of(call, "input")
        given = [*call.attributes["squeeze_dims"], *call.attributes["axis"]]
        if shape is None:
            return tuple(given) if given and min(given) >= 0 else None
        if not given:
            known = all(isinstance(size, int) for size in shape)
            return tuple(axis for axis, size in enumerate(shape) if size == 1) if known else None
        return tuple(sorted({count_axis(call, "attribute squeeze_dims", axis, len(shape)) for axis in given}))

    @classmethod
    def verify(cls, call: Call) -> None:
        """The named axes have size 1."""
        axes, shape = cls.axes(call), shape_of(call, "input")
        if axes is not None and shape is not None and any(isinstance(shape[a], int) and shape[a] != 1 for a in axes):
            raise call.error("input", f"size 1 at axes {list(axes)}", list(shape))


@lowers(Squeeze, repeatable=True)
def squeeze(n: Node, b: Builder) -> Expr:
    """The named axes; those of size 1 where none is named, which the run finds out if sizes are open."""
    x, axes = n.moved("input"), n.op.axes(n.call)
    named = [*n.squeeze_dims, *n.call.attributes["axis"]]
    if axes is None and not named:
        return b.op(std.Squeeze, x)
    chosen = named if axes is None else axes
    return x.squeeze(*chosen)


class _Stated(RawOp, abstract=True):
    """Passes its input, of whose shape something is said."""

    class Attrs:
        unknown_rank = attr(bool, False)

    @classmethod
    def stated(cls, call: Call) -> tuple[int | None, ...] | None:
        """The shape that is said, -1 being an open size."""
        if call.attributes["unknown_rank"]:
            return None
        return tuple(size if size >= 0 else None for size in call.attributes["shape"])


class EnsureShape(_Stated):
    """Its input, which must have a shape."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The input may have it."""
        shape, stated = shape_of(call, "input"), cls.stated(call)
        if not agree(shape, stated):
            raise call.error("input", f"shape {list(stated or ())}, as attribute shape says", list(shape or ()))


class PlaceholderWithDefault(_Stated):
    """Its input, the default of a graph input that is not fed."""


@lowers(EnsureShape, PlaceholderWithDefault, repeatable=True)
def passed(n: Node, b: Builder) -> Expr:
    """The input; what is said of its shape goes without a check at run time."""
    x, stated = n.moved("input"), n.op.stated(n.call)
    if stated is None:
        return x
    shape = [size if isinstance(size, int) else own for own, size in zip(x.shape or stated, stated, strict=True)]
    return x if x.shape == (*shape,) else b.set_shape(b.op(std.Identity, x), shape)


class UnravelIndex(RawOp, dims="R"):
    """Flat indices as an index per axis; one row for each axis."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The indices are one, or a vector of them."""
        shape = shape_of(call, "indices")
        if shape is not None and len(shape) > 1:
            raise call.error("indices", "rank 0 or 1", f"rank {len(shape)}")


@lowers(UnravelIndex)
def unravel_index(n: Node, _: Builder) -> Expr:
    """Divided by the number of elements behind each axis; what is left of a division by its size."""
    sizes: list[Number] | None = entries(n.dims)
    if sizes is None or not sizes:
        raise n.unsupported("dims", "a known number of axes, at least one", "an unknown one" if sizes is None else "0")
    indices, rows = wide(n.indices), []
    step: Number = 1
    for size in reversed([size if isinstance(size, int) else size.reshape() for size in sizes]):
        place = remainder(divided(indices, step), size)
        assert isinstance(place, Expr)
        rows.append(place.unsqueeze(0))
        step = size * step
    return concat(rows[::-1], 0)
