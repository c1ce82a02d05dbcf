"""Lowering of the ops that read shapes or give arrays another one."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.graph.values import Dim, Entry
from lstm_lower.ops.ordinary.shapes import (
    EnsureShape,
    ExpandDims,
    PlaceholderWithDefault,
    Reshape,
    Shape,
    Size,
    Squeeze,
    UnravelIndex,
)
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import Size as Number
from lstm_lower.passes.formulas.sizes import divided, entries, remainder, wide
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(Shape, Size, repeatable=True)
def shape(n: Node) -> dict[str, Expr]:
    """Numbers where all are known."""
    b, x = n.builder, n.moved("input")
    known = [size for size in x.shape or () if isinstance(size, int)]
    op = std.Size if n.op is Size else std.Shape
    if x.shape is not None and len(known) == len(x.shape):
        total = 1
        for size in known:
            total *= size
        return {"output": b.constant(total if n.op is Size else known, n.out_type)}
    return {"output": b.op(op, x)}


@lowers(Reshape, repeatable=True)
def reshape(n: Node) -> dict[str, Expr]:
    """A Reshape; where one size alone is not a known number it is what is left over."""
    b, x, wanted = n.builder, n.moved("tensor"), n.shape.entries
    target = wide(n.shape)
    if wanted is None:
        return {"output": reshape_to(x, target)}
    sizes = [size for size in wanted if isinstance(size, int)]
    if 0 in sizes:
        # Nothing is left of any array, and a 0 means something else to older opsets.
        return {"output": b.fill(0, entries(target) or [], x.dtype)}
    if len(sizes) == len(wanted) or (len(sizes) == len(wanted) - 1 and -1 not in sizes):
        output = b.op(std.Reshape, x, b.ints(*[size if isinstance(size, int) else -1 for size in wanted]))
    else:
        output = reshape_to(x, target)
    said: list[Dim | None] = [None if size == -1 or isinstance(size, Entry) else size for size in wanted]
    return {"output": b.set_shape(output, said)}


@lowers(ExpandDims, repeatable=True)
def expand_dims(n: Node) -> dict[str, Expr]:
    """An Unsqueeze."""
    return {"output": n.moved("input").unsqueeze(int(n.fixed("axis").reshape(-1)[0]))}


@lowers(Squeeze, repeatable=True)
def squeeze(n: Node) -> dict[str, Expr]:
    """The named axes; those of size 1 where none is named, which the run finds out if sizes are open."""
    x, axes = n.moved("input"), n.op.axes(n.call)
    named = [*n.squeeze_dims, *n.call.attributes["axis"]]
    if axes is None and not named:
        return {"output": n.builder.op(std.Squeeze, x)}
    chosen = named if axes is None else axes
    return {"output": x.squeeze(*chosen) if chosen else x}


@lowers(EnsureShape, PlaceholderWithDefault, repeatable=True)
def passed(n: Node) -> dict[str, Expr]:
    """The input; what is said of its shape goes without a check at run time."""
    x, stated = n.moved("input"), n.op.stated(n.call)
    if stated is None:
        return {"output": x}
    shape = [size if isinstance(size, int) else own for own, size in zip(x.shape or stated, stated, strict=True)]
    return {"output": x if x.shape == (*shape,) else n.builder.set_shape(n.builder.op(std.Identity, x), shape)}


@lowers(UnravelIndex)
def unravel_index(n: Node) -> dict[str, Expr]:
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
    return {"output": concat(rows[::-1], 0)}
