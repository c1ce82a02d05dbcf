"""Shapes, layout and order of arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.passes.formulas.rows import turned
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.registry import AtenCall, Size, translates

aten = torch.ops.aten

# A place in a slice: a number, or an int64 vector of one entry.
Bound = int | Expr

# Dtypes for which onnxruntime has triangles.
_TRIANGULAR = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64)


def rank_of(x: Expr) -> int:
    """The number of axes."""
    assert x.shape is not None
    return len(x.shape)


def counted(x: Expr, dim: int) -> int:
    """An axis, counted from the front."""
    return dim % max(1, rank_of(x))


def vector_of(size: Size) -> Bound:
    """A size as slices and splits take it."""
    return size if isinstance(size, int) else size.cast(ir.DataType.INT64).reshape(1)


def with_axes(x: Expr) -> Expr:
    """A tensor without axes as one of one element, others as they are."""
    return x if rank_of(x) else x.unsqueeze(0)


def broadcast_to(n: AtenCall, x: Expr, sizes: Sequence[Size]) -> Expr:
    """Repeated to a shape; nothing is emitted for one that is known to be its own."""
    if x.shape is not None and list(x.shape) == list(sizes):
        return x
    return n.b.op(std.Expand, x, n.vector(sizes))


def common_shape(*shapes: Sequence[Any]) -> Sequence[Any]:
    """PyTorch's sizes that tensors of these have together."""
    joined: Callable[..., Sequence[Any]] = torch.broadcast_shapes
    return joined(*shapes)


def sizes_of(x: Expr) -> list[Size]:
    """The sizes of all axes, open ones as scalars."""
    shape = x.shape or ()
    return [size if isinstance(size, int) else x.sizes().take(axis) for axis, size in enumerate(shape)]


def move_axes(x: Expr, sources: Sequence[int], targets: Sequence[int]) -> Expr:
    """Moves axes to other places; the others keep their order."""
    rank = rank_of(x)
    sources, targets = ([axis % rank for axis in axes] for axes in (sources, targets))
    rest = iter(axis for axis in range(rank) if axis not in sources)
    return x.transpose(*(sources[targets.index(axis)] if axis in targets else next(rest) for axis in range(rank)))


@translates(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
)
def _view(n: AtenCall, x: Expr, *_: Any) -> Expr:
    return n.reshape(x, n.shape)


@translates(aten.expand.default, aten.expand_copy.default, aten.expand_as.default)
def _expand(n: AtenCall, x: Expr, like: Any, *, implicit: bool = False) -> Expr:
    return broadcast_to(n, x, n.shape)


@translates(aten.permute.default, aten.permute_copy.default)
def _permute(n: AtenCall, x: Expr, dims: Sequence[int]) -> Expr:
    return n.b.transpose(x, [counted(x, dim) for dim in dims])


@translates(aten.transpose.int, aten.transpose_copy.int)
def _transpose(n: AtenCall, x: Expr, dim0: int, dim1: int) -> Expr:
    order = list(range(rank_of(x)))
    if order:
        first, second = counted(x, dim0), counted(x, dim1)
        order[first], order[second] = second, first
    return n.b.transpose(x, order)


@translates(aten.t.default, aten.t_copy.default, aten.numpy_T.default)
def _reversed_axes(n: AtenCall, x: Expr) -> Expr:
    return n.b.transpose(x, [*reversed(range(rank_of(x)))])


@translates(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.squeeze_copy.default)
def _squeeze(n: AtenCall, x: Expr, dim: int | Sequence[int] | None = None) -> Expr:
    """Without the axes of one element that the trace leaves out."""
    sizes = n.fake(0).shape
    named = range(len(sizes)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {counted(x, axis) for axis in named} if sizes else set()
    return x.squeeze(*(axis for axis in sorted(axes) if sizes[axis] == 1))


@translates(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def _unsqueeze(n: AtenCall, x: Expr, dim: int) -> Expr:
    return x.unsqueeze(dim % (rank_of(x) + 1))


@translates(aten.cat.default, aten.concatenate.default)
def _cat(n: AtenCall, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    # A vector of nothing may stand beside tensors of any rank.
    parts = [x for x in tensors if rank_of(x) == len(n.results[0].shape)]
    return n.b.concat([x.cast(n.dtype) for x in parts], counted(parts[0], dim))


@translates(aten.stack.default)
def _stack(n: AtenCall, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    axis = dim % len(n.results[0].shape)
    return n.b.concat([x.cast(n.dtype).unsqueeze(axis) for x in tensors], axis)


@translates(
    aten.split.Tensor,
    aten.split_copy.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split.sizes,
    aten.chunk.default,
    aten.unsafe_chunk.default,
    aten.unsafe_split.Tensor,
    aten.tensor_split.sections,
    aten.tensor_split.indices,
)
def _split(n: AtenCall, x: Expr, how: Any, dim: int = 0) -> list[Expr]:
    axis = counted(x, dim)
    sizes = [part[axis] for part in n.shapes]
    if len(sizes) > 1 and all(isinstance(size, int) for size in sizes[:-1]) and not isinstance(sizes[-1], int):
        # Of an open size the last piece is what is left; each by itself may be of a loop's step.
        starts = [*itertools.accumulate(sizes[:-1], initial=0)]
        return [n.b.slice(x, start, end, axis) for start, end in itertools.pairwise([*starts, END])]
    return [x] if len(sizes) == 1 else n.b.ops(std.Split, x, n.vector(sizes), outputs=len(sizes), axis=axis)


@translates(aten.unbind.int, aten.unbind_copy.int)
def _unbind(n: AtenCall, x: Expr, dim: int = 0) -> list[Expr]:
    axis = counted(x, dim)
    return [x.take(place, axis=axis) for place in range(len(n.results))]


@translates(aten.select.int, aten.select_copy.int)
def _select(n: AtenCall, x: Expr, dim: int, index: Size) -> Expr:
    return x.take(index, axis=counted(x, dim))


@translates(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(
    n: AtenCall, x: Expr, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Expr:
    first, last = vector_of(start or 0), vector_of(END if end is None else end)
    whole = isinstance(last, int) and last >= END
    return x if first == 0 and whole and step == 1 else n.b.slice(x, first, last, counted(x, dim), step)


@translates(aten.narrow.default, aten.narrow_copy.default)
def _narrow(n: AtenCall, x: Expr, dim: int, start: Size, length: Size) -> Expr:
    axis = counted(x, dim)
    first = vector_of(start)
    if isinstance(first, int) and first < 0:
        first = x.size(axis) + first
    return n.b.slice(x, first, first + vector_of(length), axis)


@translates(aten.slice_scatter.default)
def _slice_scatter(
    n: AtenCall, x: Expr, src: Expr, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Expr:
    axis, b = counted(x, dim), n.b
    src = src.cast(x.dtype)
    size = b.sizes([x.size(axis)])
    first = b.sizes([vector_of(start or 0)])
    first = b.where(first < 0, (first + size).maximum(0), first.minimum(size)) if start else first
    if start is None and end is None and step == 1:
        return src
    if step == 1:
        behind = b.slice(x, first + src.size(axis), END, axis)
        return b.concat([b.slice(x, 0, first, axis), src, behind], axis) if start else b.concat([src, behind], axis)
    places = up_to(b, src.size(axis))
    return _written(x, axis, places * step + first, src)


def _written(x: Expr, axis: int, places: Expr, src: Expr) -> Expr:
    """Elements along an axis replaced by others: each is looked up in both, one behind the other."""
    b, size = x.builder, x.size(axis)
    source = b.op(std.ScatterElements, up_to(b, size), places, up_to(b, src.size(axis)) + b.sizes([size]), axis=0)
    return b.concat([x, src], axis).take(source, axis=axis)


@translates(aten.select_scatter.default)
def _select_scatter(n: AtenCall, x: Expr, src: Expr, dim: int, index: Size) -> Expr:
    axis, b = counted(x, dim), n.b
    place = vector_of(index)
    if not isinstance(place, int) or place < 0:
        size = b.sizes([x.size(axis)])
        place = b.sizes([place])
        place = b.where(place < 0, place + size, place)
    parts = [b.slice(x, 0, place, axis), src.cast(x.dtype).unsqueeze(axis), b.slice(x, place + 1, END, axis)]
    return b.concat(parts[1:] if place == 0 else parts, axis)


def _padded(n: AtenCall, x: Expr, pad: Sequence[Size], mode: str, value: Any = None) -> Expr:
    """What stands around the last axes, of which the last one's widths are first; widths below zero cut."""
    rank, b = rank_of(x), n.b
    widths: list[Size] = [0] * (2 * rank)
    for place in range(len(pad) // 2):
        widths[rank - 1 - place], widths[2 * rank - 1 - place] = pad[2 * place : 2 * place + 2]
    if not any(isinstance(width, Expr) or width for width in widths):
        return x
    options: dict[str, Any] = {} if mode == "constant" else {"mode": mode}
    fill = [n.scalar(value, x.dtype)] if value else []
    return b.op(std.Pad, x, n.vector(widths), *fill, **options)


@translates(aten.constant_pad_nd.default)
def _constant_pad(n: AtenCall, x: Expr, pad: Sequence[Size], value: Any = 0) -> Expr:
    return _padded(n, x, pad, "constant", value)


@translates(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def _reflection_pad(n: AtenCall, x: Expr, padding: Sequence[Size]) -> Expr:
    return _edged(n, x, padding, "reflect")


@translates(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def _replication_pad(n: AtenCall, x: Expr, padding: Sequence[Size]) -> Expr:
    return _edged(n, x, padding, "edge")


def _edged(n: AtenCall, x: Expr, pad: Sequence[Size], mode: str) -> Expr:
    """Around what is cut already."""
    cut = [at_most_zero(width) for width in pad]
    return _padded(n, _padded(n, x, cut, "constant"), [_at_least_zero(width) for width in pad], mode)


def at_most_zero(width: Size) -> Size:
    """A width where it cuts; open ones add in what PyTorch traces."""
    return min(width, 0) if isinstance(width, int) else 0


def _at_least_zero(width: Size) -> Size:
    return max(width, 0) if isinstance(width, int) else width


@translates(aten._pad_circular.default)
def _circular_pad(n: AtenCall, x: Expr, pad: Sequence[Size]) -> Expr:
    """Axis by axis: the end before the start, the start behind the end."""
    b, rank = n.b, rank_of(x)
    for place in range(len(pad) // 2):
        axis = rank - 1 - place
        before, after = pad[2 * place : 2 * place + 2]
        x = _padded(n, x, [*[0] * 2 * place, at_most_zero(before), at_most_zero(after)], "constant")
        size = b.sizes([x.size(axis)])
        parts = [x]
        if isinstance(before, Expr) or before > 0:
            parts.insert(0, b.slice(x, size - vector_of(before), END, axis))
        if isinstance(after, Expr) or after > 0:
            parts.append(b.slice(x, 0, vector_of(after), axis))
        x = b.concat(parts, axis)
    return x


@translates(aten.pad.default)
def _pad(n: AtenCall, x: Expr, pad: Sequence[Size], mode: str = "constant", value: Any = None) -> Expr:
    if mode == "constant":
        return _padded(n, x, pad, "constant", value)
    if mode == "circular":
        return _circular_pad(n, x, pad)
    return _edged(n, x, pad, {"reflect": "reflect", "replicate": "edge"}[mode])


@translates(aten.roll.default)
def _roll(n: AtenCall, x: Expr, shifts: Any, dims: Sequence[int] = ()) -> Expr:
    steps = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    if not dims:
        return n.reshape(_rolled(with_axes(x).reshape(-1), steps[0], 0), n.shape)
    return functools.reduce(lambda y, pair: _rolled(y, pair[0], counted(y, pair[1])), zip(steps, dims, strict=True), x)


def _rolled(x: Expr, shift: Size, axis: int) -> Expr:
    """The last elements before the others."""
    b, size = x.builder, x.size(axis)
    first: Bound
    if isinstance(shift, int) and isinstance(size, int):
        first = -shift % max(size, 1)
        if not first:
            return x
    else:
        first = b.op(std.Mod, -b.sizes([vector_of(shift)]), b.sizes([size]).maximum(1))
    return b.concat([b.slice(x, first, END, axis), b.slice(x, 0, first, axis)], axis)


@translates(aten.flip.default)
def _flip(n: AtenCall, x: Expr, dims: Sequence[int]) -> Expr:
    return turned(x, [counted(x, dim) for dim in dims])


def _triangle(*, upper: bool) -> Callable[..., Expr]:
    def triangle(n: AtenCall, x: Expr, diagonal: Size = 0) -> Expr:
        b, offset = n.b, n.scalar(diagonal, ir.DataType.INT64)
        if x.dtype in _TRIANGULAR:
            moved = () if isinstance(diagonal, int) and diagonal == 0 else (offset,)
            return b.op(std.Trilu, x, *moved, upper=int(upper))
        rows, columns = up_to(b, x.size(-2)).unsqueeze(1), up_to(b, x.size(-1))
        kept = columns - rows >= offset if upper else columns - rows <= offset
        if x.dtype == ir.DataType.BOOL:
            return x & kept
        return b.where(kept, x, n.scalar(0, x.dtype))

    return triangle


translates(aten.tril.default)(_triangle(upper=False))
translates(aten.triu.default)(_triangle(upper=True))


@translates(aten.diagonal.default, aten.diagonal_copy.default)
def _diagonal(n: AtenCall, x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    """Elements of rows that lie one behind the other, at equal distances."""
    matrix = move_axes(x, (dim1, dim2), (-2, -1))
    *batch, rows, columns = sizes_of(matrix)
    width = vector_of(columns)
    start = width * -offset if offset < 0 else offset
    places = up_to(n.b, vector_of(n.shape[-1])) * (width + 1) + start
    return n.reshape(matrix, [*batch, n.count([rows, columns])]).take(places, axis=len(batch))


@translates(aten.diagonal_scatter.default)
def _diagonal_scatter(n: AtenCall, x: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    matrix = move_axes(x, (dim1, dim2), (-2, -1))
    rows, columns = (up_to(n.b, matrix.size(axis)) for axis in (-2, -1))
    there = (columns - offset).equals(rows.unsqueeze(1))
    last = n.b.sizes([src.size(-1)]) - 1
    places = (rows + min(0, offset)).maximum(0).minimum(last)
    spread = src.cast(x.dtype).take(places, axis=rank_of(src) - 1).unsqueeze(rank_of(src))
    return move_axes(n.b.where(there, spread, matrix), (-2, -1), (dim1, dim2))


@translates(aten.diag_embed.default)
def _diag_embed(n: AtenCall, x: Expr, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Expr:
    """Each element in a row of its own, where row and column say."""
    b = n.b
    around = (0, offset) if offset >= 0 else (-offset, 0)
    x = _padded(n, x, around, "constant")
    numbers = up_to(b, x.size(-1))
    there = (numbers - offset).equals(numbers.unsqueeze(1))
    return move_axes(b.where(there, x.unsqueeze(rank_of(x)), n.scalar(0, x.dtype)), (-2, -1), (dim1, dim2))


def _strided(n: AtenCall, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None) -> Expr:
    """Numbers of elements in memory, of a view's shape."""
    b = n.b
    numbers = b.constant(0) if offset is None else n.scalar(offset, ir.DataType.INT64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        along = up_to(b, vector_of(size)) * n.scalar(stride, ir.DataType.INT64)
        numbers = numbers + along.unsqueeze(*range(1, len(sizes) - axis))
    return numbers


def _in_memory(n: AtenCall, x: Expr) -> Expr:
    """The elements as they lie in memory."""
    if not n.fake(0).is_contiguous():
        raise n.refuse("a tensor whose elements lie in order", "call contiguous() before as_strided")
    return with_axes(x).reshape(-1)


@translates(aten.as_strided.default, aten.as_strided_copy.default)
def _as_strided(
    n: AtenCall, x: Expr, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Expr:
    return _in_memory(n, x).take(_strided(n, size, stride, storage_offset))


@translates(aten.as_strided_scatter.default)
def _as_strided_scatter(
    n: AtenCall, x: Expr, src: Expr, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Expr:
    places = with_axes(_strided(n, size, stride, storage_offset)).reshape(-1)
    values = with_axes(src.cast(x.dtype)).reshape(-1)
    return n.reshape(n.b.op(std.ScatterElements, _in_memory(n, x), places, values, axis=0), n.shape)


@translates(aten.unfold.default, aten.unfold_copy.default)
def _unfold(n: AtenCall, x: Expr, dimension: int, size: int, step: int) -> Expr:
    """Windows along an axis, whose elements stand along a new last one."""
    x, axis = with_axes(x), counted(x, dimension)
    places = up_to(n.b, vector_of(n.shape[axis])).unsqueeze(1) * step + up_to(n.b, vector_of(size))
    return move_axes(x.take(places, axis=axis), [axis + 1], [-1])


@translates(aten.repeat.default, aten.tile.default)
def _repeat(n: AtenCall, x: Expr, repeats: Sequence[Size]) -> Expr:
    missing = max(0, len(n.results[0].shape) - rank_of(x))
    repeats = [*[1] * (len(n.results[0].shape) - len(repeats)), *repeats]
    return n.b.op(std.Tile, x.unsqueeze(*range(missing)), n.vector(repeats))


@translates(aten.repeat_interleave.Tensor)
def _places_repeated(n: AtenCall, repeats: Expr, output_size: Size | None = None) -> Expr:
    """Each place as often as is said: how many of them have ended before."""
    b = n.b
    ends = b.op(std.CumSum, repeats.cast(ir.DataType.INT64), b.constant(0))
    count = vector_of(output_size) if output_size is not None else repeats.cast(ir.DataType.INT64).sum(0, keepdims=True)
    return (ends <= up_to(b, count).unsqueeze(1)).cast(ir.DataType.INT64).sum(1)


@translates(aten.meshgrid.indexing, aten.meshgrid.default)
def _meshgrid(n: AtenCall, tensors: Sequence[Expr], indexing: str = "ij") -> list[Expr]:
    rank = len(tensors)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    return [
        broadcast_to(n, x.reshape(*[-1 if order[place] == axis else 1 for axis in range(rank)]), n.shape)
        for place, x in enumerate(tensors)
    ]


def triangle_places(b: Builder, rows: Size, columns: Size, offset: int, *, upper: bool) -> Expr:
    """Rows and columns [2, N] of the elements on one side of a diagonal, row by row."""
    row, column = up_to(b, vector_of(rows)).unsqueeze(1), up_to(b, vector_of(columns))
    apart = column - row
    return b.op(std.NonZero, apart >= offset if upper else apart <= offset)
