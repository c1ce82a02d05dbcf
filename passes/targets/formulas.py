"""Operators written otherwise for a target that computes them in fewer digits, or wrongly at the edges."""

from __future__ import annotations

import functools
import math
import operator

import onnx_ir as ir

from lstm_lower.dtypes import is_floating, is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.indices import within
from lstm_lower.passes.formulas.kernels import computed, widened
from lstm_lower.passes.formulas.rows import flatten_rows, reshape_to, row_numbers

HALF, FLOAT, DOUBLE, INT64 = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64
BOOL = ir.DataType.BOOL
_CASTING = std.Cast | std.CastLike
# Integers that onnxruntime's Where does not take.
_UNCHOSEN = (ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.UINT64)


def ordered_scatter(scatter: std.ScatterND, b: Builder) -> list[Expr]:
    """Rows, numbered over the axes that `indices` speaks of, combined along one axis by ScatterElements."""
    data, indices, updates = b.wrap(scatter.data), b.wrap(scatter.indices), b.wrap(scatter.updates)
    assert data.shape is not None
    assert indices.shape is not None
    rank, depth = len(data.shape), indices.shape[-1]
    assert isinstance(depth, int)
    leading = len(indices.shape) - 1
    table = flatten_rows(data, depth)
    number = _row_numbers(data, indices, depth)
    rows = flatten_rows(updates, leading) if leading else updates.unsqueeze(0)
    tail = rank - depth
    number = number.unsqueeze(*range(1, 1 + tail))
    where = b.op(std.Expand, number, rows.sizes())
    # onnxruntime combines no halves; float32 holds all of them and rounds once.
    table, rows = widened(table), widened(rows)
    total = b.op(std.ScatterElements, table, where, rows, axis=0, reduction=scatter.reduction).cast(data.dtype)
    result = reshape_to(total, data.sizes()) if depth > 1 else total
    return [b.set_shape(result, data.shape)]


def _row_numbers(data: Expr, indices: Expr, depth: int) -> Expr:
    """The number of the row that each entry of `indices` names, as a vector; a negative place counts from the end.

    A place beyond the end of an axis, which ScatterND refuses, would be in another row: it is looked up first.
    """
    indices = indices.cast(INT64)
    if depth == 1:
        return indices.reshape(-1)
    places, sizes = [], [data.size(axis) for axis in range(depth)]
    for axis, size in enumerate(sizes):
        places.append(within(indices.take(axis, axis=-1).reshape(-1), size))
    return row_numbers(places, sizes)


def is_of_nothing(view: std.ReduceMean) -> bool:
    """Whether there are surely no elements in what a mean of floats is of."""
    return 0 in _reduced_sizes(view)


def may_be_of_nothing(view: std.ReduceMean) -> bool:
    """Whether there may be none."""
    return not all(isinstance(size, int) and size for size in _reduced_sizes(view))


def _reduced_sizes(view: std.ReduceMean) -> list[Dim]:
    """The sizes of the axes that a mean of floats is taken over, as far as all is known."""
    shape, axes, dtype = view.shape(), view.axes, view.dtype()
    if shape is None or axes is None or not is_floating(dtype):
        return []
    return [shape[axis] for axis in axes]


def mean_by_count(view: std.ReduceMean, b: Builder) -> list[Expr]:
    """The sum over the number of elements: NaN where there are none."""
    x, axes = b.wrap(view.data), view.axes
    assert axes is not None
    wide = widened(x)
    total = wide.sum(axes, keepdims=bool(view.keepdims))
    count = functools.reduce(operator.mul, [x.size(axis) for axis in axes], b.ints(1))
    return [(total / count.reshape().cast(wide.dtype)).cast(x.dtype)]


def is_of_computed_matrix(view: std.MatMul) -> bool:
    """Whether a product is one of a matrix of floats that a node makes and a vector."""
    if view.rank(1) != 1:
        return False
    made, dtype = view.facts.maker(view.a), view.dtype()
    computed = made is not None and not isinstance(made, std.Constant) and view.rank(0) != 1
    return computed and not is_integer(dtype)


def product_of_matrices(view: std.MatMul, b: Builder) -> list[Expr]:
    """The product with a matrix of one column; of a transposed matrix, the vector times the matrix."""
    made, x, vector = view.facts.maker(view.a), b.wrap(view.a), b.wrap(view.b)
    perm = made.perm if isinstance(made, std.Transpose) else None
    if isinstance(made, std.Transpose) and perm and perm == (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2):
        return [vector @ b.wrap(made.data)]
    return [(x @ vector.unsqueeze(1)).squeeze(-1)]


def is_of_moved_halves(view: std.MatMul) -> bool:
    """Whether a product is one of halves of which a Transpose moves other axes than the last two."""
    # One operand may come from a function, of whose results nothing is known.
    halves = HALF in map(view.facts.dtype, view.node.inputs)
    return halves and any(_moves_batch(view.facts.maker(value)) for value in view.inputs)


def moved_after(view: std.MatMul, b: Builder) -> list[Expr]:
    """The product transposed, where a matrix stands behind it; else in float32, as on CPUs anyway."""
    moved = view.facts.maker(view.a)
    perm = moved.perm if isinstance(moved, std.Transpose) else None
    if isinstance(moved, std.Transpose) and perm and view.rank(1) == 2 and perm[-1] == len(perm) - 1:
        return [(b.wrap(moved.data) @ b.wrap(view.b)).transpose(*perm)]
    a, c = (b.wrap(value).cast(FLOAT) for value in (view.a, view.b))
    return [(a @ c).cast(HALF)]


def is_of_cast_transposes(view: std.MatMul) -> bool:
    """Whether a Cast stands between a Transpose of other axes than the last two and a product."""
    return any(_cast_after_move(value, view.facts) is not None for value in view.node.inputs)


def cast_first(view: std.MatMul, b: Builder) -> list[Expr]:
    """The product of what is cast, and then transposed."""
    operands = []
    for value in (view.a, view.b):
        moved, dtype = _cast_after_move(value, view.facts), view.facts.dtype(value)
        if moved is None or dtype is None:
            operands.append(b.wrap(value))
        else:
            operands.append(b.wrap(moved.data).cast(dtype).transpose(*(moved.perm or ())))
    return [operands[0] @ operands[1]]


def _cast_after_move(value: ir.Value | None, facts: std.Knowledge) -> std.Transpose | None:
    cast = facts.maker(value)
    moved = facts.maker(cast.inputs[0]) if isinstance(cast, _CASTING) else None
    if not isinstance(moved, std.Transpose) or not _moves_batch(moved):
        return None
    return None if facts.dtype(value) is None else moved


def _moves_batch(op: std.Standard | None) -> bool:
    """Whether a node transposes other axes than the last two."""
    return isinstance(op, std.Transpose) and op.perm is not None and op.perm[:-2] != tuple(range(len(op.perm) - 2))


def is_inverse(view: std.Div) -> bool:
    """Whether it is one over integers, or over floats of fewer axes than the one has, of which a Mul is made."""
    one = view.operand(0)
    if not any(std.Mul.matches(node) for node, _ in view.output.uses()):
        return False
    dtype, axes, rank = view.dtype(), view.rank(0), view.rank(1)
    if view.facts.uniform(one) != 1.0 or view.facts.elements(one) != 1 or axes is None or rank is None:
        return False
    return is_integer(dtype) or (is_floating(dtype) and axes > rank)


def inverse(view: std.Div, b: Builder) -> list[Expr]:
    """1 / x as a Reciprocal; of integers x where that is 1 or -1, and zero elsewhere."""
    one, x = (b.wrap(value) for value in view.node.inputs if value is not None)
    missing = (view.rank(0) or 0) - (view.rank(1) or 0)
    wide = x.unsqueeze(*range(missing))
    if is_floating(x.dtype):
        return [b.op(std.Reciprocal, wide)]
    return [b.where(wide.abs().equals(one), wide, one - one)]


def is_without_kernel(view: std.Where) -> bool:
    """Whether it chooses among bools, or integers that the kernel does not take."""
    return view.dtype(1) in (BOOL, *_UNCHOSEN)


def choice(view: std.Where, b: Builder) -> list[Expr]:
    """The same by logic, or of wider integers."""
    condition, yes, no = (b.wrap(value) for value in (view.condition, view.yes, view.no))
    if yes.dtype == BOOL:
        return [condition & yes | b.op(std.Not, condition) & no]
    return [b.op(std.Where, condition, computed(yes), computed(no)).cast(yes.dtype)]


def in_float64(view: std.Unary, b: Builder) -> list[Expr]:
    """The operator in float64, which a target leaves to the processor."""
    x = b.wrap(view.data)
    return [b.op(type(view), x.cast(DOUBLE)).cast(x.dtype)]


def largest_in_float64(view: std.MaxPool, b: Builder) -> list[Expr]:
    """The same of windows: the largest numbers, and where they stand."""
    x = b.wrap(view.data)
    attributes = {name: attribute.value for name, attribute in view.node.attributes.items()}
    values, places = b.ops(std.MaxPool, x.cast(DOUBLE), outputs=2, **attributes)
    return [values.cast(x.dtype), places]


def tangent(view: std.Tan, b: Builder) -> list[Expr]:
    """The sine over the cosine, in float64; onnxruntime has no Tan in it."""
    x = b.wrap(view.data)
    wide = x.cast(DOUBLE)
    return [(b.op(std.Sin, wide) / b.op(std.Cos, wide)).cast(x.dtype)]


def arc_cosine(view: std.Acos, b: Builder) -> list[Expr]:
    """The rest that the arc sine leaves of a right angle."""
    return [math.pi / 2 - b.op(std.Asin, b.wrap(view.data))]


def power(view: std.Pow, b: Builder) -> list[Expr]:
    """A power with an exponent of another type, for which the processor alone has a kernel.

    An int64 from which the exponent was cast, such as the number of a step, serves where there is one: a runtime may
    have no float64.
    """
    base, exponent = view.node.inputs
    made = b.facts.maker(exponent)
    origin = made.data if isinstance(made, std.Cast) and b.facts.dtype(made.data) is INT64 else None
    assert base is not None
    assert exponent is not None
    wide = b.wrap(exponent).cast(DOUBLE) if origin is None else b.wrap(origin)
    return [b.wrap(base) ** wide]


def logarithm(view: std.Log, b: Builder) -> list[Expr]:
    """That of numbers above zero; of zero it is minus infinity, of all else no number."""
    x = b.wrap(view.data)
    above = x > 0.0
    edge = b.where(x.equals(0.0), x.like(-math.inf), math.nan)
    return [b.where(above, b.where(above, x, 1.0).log(), edge)]


def is_above_zero(view: std.Log) -> bool:
    """Whether the operand is what `logarithm` makes of one, or a constant of such numbers."""
    known = view.constant(0)
    if known is not None:
        return bool((known > 0).all())
    made = view.facts.maker(view.data)
    if not isinstance(made, std.Where) or not (view.facts.uniform(made.no) or 0) > 0:
        return False
    test = view.facts.maker(made.condition)
    if not isinstance(test, std.Greater):
        return False
    number, bound = test.node.inputs
    return number is made.yes and view.facts.uniform(bound) == 0


def _emptied_axes(view: std.Expand) -> list[int]:
    """The axes whose only element becomes none."""
    shape, made = view.shape(), view.facts.shape(view.output)
    if shape is None or made is None:
        return []
    missing = len(made) - len(shape)
    return [axis for axis, size in enumerate(shape) if size == 1 and made[missing + axis] == 0]


def makes_nothing(view: std.Expand) -> bool:
    """Whether it makes nothing of one element."""
    return bool(_emptied_axes(view))


def cut_before(view: std.Expand, b: Builder) -> list[Expr]:
    """The same of what that element is cut off from."""
    axes = _emptied_axes(view)
    zeros = b.ints(*[0] * len(axes))
    return [b.op(std.Expand, b.op(std.Slice, b.wrap(view.data), zeros, zeros, b.ints(*axes)), b.wrap(view.target))]


def is_between_vectors(view: std.Range) -> bool:
    """Whether its operands are lone elements with an axis."""
    return any(map(view.facts.rank, view.inputs))


def between_scalars(view: std.Range, b: Builder) -> list[Expr]:
    """The same between scalars."""
    bounds = [b.wrap(value) for value in view.node.inputs if value is not None]
    return [b.op(std.Range, *(x.reshape() if b.facts.rank(x.value) else x for x in bounds))]


def counts_too_many(view: std.Pool) -> bool:
    """Whether a window behind the image is counted."""
    return bool(view.ceil_mode and view.disputed_axes) and not view.pads_alike


def _rounds_up(view: std.Pool) -> bool:
    """Whether windows of some other axis may reach beyond the padding."""
    shape, extents, pads, strides = view.shape(), view.extents, view.pads, view.strides
    assert shape is not None
    assert extents is not None
    axes = zip(range(2, len(shape)), shape[2:], extents, pads or (), strides or (), strict=True)
    return any(
        axis not in view.disputed_axes and not (isinstance(size, int) and (size + sum(pad) - extent) % stride == 0)
        for axis, size, extent, pad, stride in axes
        if stride > 1
    )


def _ends(view: std.Pool) -> list[int]:
    """Padding behind each axis of which none is left behind the last window; less than none where elements are."""
    shape, extents, pads, strides = view.shape(), view.extents, view.pads, view.strides
    assert shape is not None
    assert extents is not None
    found = []
    for axis, (size, extent, pad, stride) in enumerate(zip(shape[2:], extents, pads or (), strides or (), strict=True)):
        found.append(pad[1])
        if 2 + axis in view.disputed_axes and isinstance(size, int) and stride > 0:
            left = size + sum(pad) - extent
            found[-1] -= max(left - (-(-left // stride) - 1) * stride, 0)
    return found


def without_last(view: std.Pool, b: Builder) -> list[Expr]:
    """The same of an image that ends with the last window that is one."""
    image, attributes = b.wrap(view.data), {name: each.value for name, each in view.node.attributes.items()}
    x, changed = image, dict[str, int | list[int]](ceil_mode=0)
    if _rounds_up(view):
        ends = _ends(view)
        for axis, end in enumerate(ends, 2):
            x = x.slice(0, end, axis=axis) if end < 0 else x
        changed = {"pads": [*(before for before, _ in view.pads or ()), *(max(end, 0) for end in ends)]}
    made, *places = b.ops(type(view), x, outputs=len(view.node.outputs), **(attributes | changed))
    by_columns = isinstance(view, std.MaxPool) and bool(view.storage_order)
    return [made, *(each if x is image else _in_whole(each, x, image, by_columns=by_columns) for each in places)]


def _in_whole(numbers: Expr, part: Expr, image: Expr, *, by_columns: bool) -> Expr:
    """Numbers of elements of images, from those in parts of these that begin where they do."""
    assert image.shape is not None
    places: list[Expr] = []
    # The axis along which numbers follow each other first.
    order = range(2, len(image.shape))[:: 1 if by_columns else -1]
    for size in map(part.size, order):
        above = numbers / size
        places.insert(0, numbers - above * size)
        numbers = above
    return row_numbers([numbers, *places], [1, *map(image.size, order[::-1])])


# What onnxruntime moves a QuantizeLinear behind.
_MOVES = (std.Reshape, std.Transpose, std.Squeeze, std.Unsqueeze, std.MaxPool, std.Slice)


def is_moved_int8(view: std.DequantizeLinear) -> bool:
    """Whether numbers of int8, quantized by one scale, are moved before something computes with them in float."""
    facts = view.facts
    shifted = facts.opset >= 21 and view.zero_point is not None and facts.dtype(view.data) == ir.DataType.INT8
    if not shifted or facts.elements(view.scale) != 1:
        return False
    readers = (facts.view(node) for node in view.node.outputs[0].consumers())
    return any(isinstance(reader, _MOVES) and not _is_quantized_again(reader) for reader in readers)


def _is_quantized_again(view: std.Standard) -> bool:
    consumers = view.node.outputs[0].consumers()
    return bool(consumers) and all(std.QuantizeLinear.matches(node) for node in consumers)


def dequantized(view: std.DequantizeLinear, b: Builder) -> list[Expr]:
    """`(x - zero_point) * scale`; the difference is exact."""
    scale = b.wrap(view.scale).reshape()
    zero_point = b.operand(view, 2).reshape()
    return [(b.wrap(view.data).cast(scale.dtype) - zero_point.cast(scale.dtype)) * scale]
