"""The facet `infers`: types and shapes that follow from an operator's operands.

A rule tells a pair for each output, dtype (or type) and shape, with `None` for what does not follow. Operators without
a rule are left to onnx's own inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from lstm_lower.dims import unknown_sizes
from lstm_lower.dtypes import PARTS
from lstm_lower.graph import standard as std
from lstm_lower.graph.values import Alternatives, Dim, Open, Partial, Shape, UnknownEntry, broadcast, product

Type = ir.TypeProtocol | ir.DataType | None
Inferred = list[tuple[Type, Partial | Alternatives | None]]

infers: std.Facet[Callable[[Any], Inferred]] = std.Facet("inference")


# Types and shapes of operators that treat every element alike.


@infers(std.Arithmetic)
def _arithmetic(op: std.Arithmetic) -> Inferred:
    return [(op.dtype(), _broadcast(op))]


@infers(std.Logical)
def _logical(op: std.Logical) -> Inferred:
    return [(ir.DataType.BOOL, _broadcast(op))]


@infers(std.Where)
def _where(op: std.Where) -> Inferred:
    return [(op.dtype(1), _broadcast(op))]


def _broadcast(op: std.Elementwise) -> Partial | None:
    return broadcast(*[op.facts.shape(value) for value in op.node.inputs])


@infers(
    std.Unary,
    std.PRelu,
    std.AlongAxis,
    std.Cumulative,
    std.MeanVarianceNormalization,
    std.Scatter,
    std.ReverseSequence,
    std.Trilu,
)
def _same(op: std.Unary) -> Inferred:
    return [(op.facts.type(op.operand(0)), op.shape())]


@infers(std.Test)
def _test(op: std.Test) -> Inferred:
    return [(ir.DataType.BOOL, op.shape())]


@infers(std.Cast)
def _cast(op: std.Cast) -> Inferred:
    return [(op.to, op.shape())]


@infers(std.CastLike)
def _cast_like(op: std.CastLike) -> Inferred:
    return [(op.dtype(1), op.shape())]


@infers(std.Dropout)
def _dropout(op: std.Dropout) -> Inferred:
    return [(op.dtype(), op.shape()), (ir.DataType.BOOL, op.shape())]


# Types and shapes of operators that rearrange or select elements, or make arrays of sizes.


@infers(std.Concat)
def _concat(op: std.Concat) -> Inferred:
    shapes, axis = [op.facts.shape(part) for part in op.parts], op.axis
    stated = [shape for shape in shapes if shape is not None]
    if not stated or axis is None or len({len(shape) for shape in stated}) > 1:
        return [(op.dtype(), None)]
    # Of an empty part onnxruntime asks not that its other sizes fit: they tell something where all parts agree.
    telling = [shape for shape in stated if 0 not in shape]
    alike = stated if not telling and len(stated) == len(shapes) else []
    result: list[Dim | None] = []
    for index in range(len(stated[0])):
        dims = [shape[index] for shape in (stated if index == axis else telling or alike)]
        sizes = [dim for dim in dims if isinstance(dim, int)]
        if index == axis:
            joined = [dim for dim in dims if dim != 0]
            whole = sum(sizes) if len(sizes) == len(dims) else joined[0] if len(joined) == 1 else None
            result.append(whole if len(stated) == len(shapes) else None)
        elif telling:
            result.append(sizes[0] if sizes else next((dim for dim in dims if isinstance(dim, str)), dims[0]))
        else:
            result.append(dims[0] if dims and dims.count(dims[0]) == len(dims) else None)
    return [(op.dtype(), tuple(result))]


@infers(std.Split)
def _split(op: std.Split) -> Inferred:
    shape, axis, sizes = op.shape(), op.axis, op.sizes
    count = len(op.node.outputs)
    if shape is None or axis is None:
        return [(op.dtype(), None)] * count
    each: tuple[Dim | None, ...] = sizes if sizes is not None and len(sizes) == count else (None,) * count
    if count == 1:
        each = (shape[axis],)
    elif sizes is None:
        # Sizes computed from other sizes.
        entries = op.facts.entries(op.operand(1))
        if entries is not None and len(entries) == count:
            each = entries
    return [(op.dtype(), (*shape[:axis], size, *shape[axis + 1 :])) for size in each]


@infers(std.Slice)
def _slice(op: std.Slice) -> Inferred:
    shape, axes = op.shape(), op.axes
    if shape is None:
        return [(op.dtype(), None)]
    if axes is None:
        return [(op.dtype(), (None,) * len(shape))]
    starts, ends, steps = op.facts.entries(op.starts), op.facts.entries(op.ends), op.steps
    result: list[Dim | None] = list(shape)
    for place, axis in enumerate(axes):
        if starts is None or ends is None or steps is None:
            result[axis] = None
        elif isinstance(end := ends[place], int) and is_disputed(end, steps[place]):
            # What a model declares, too, is true of one runtime only.
            result[axis] = Open(op.node.outputs[0], axis)
        else:
            result[axis] = sliced(shape[axis], starts[place], ends[place], steps[place])
    return [(op.dtype(), tuple(result))]


def sliced(dim: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """How many elements a Slice takes of an axis."""
    if not isinstance(start, int):
        return None
    if step == 1 and start == 0 and (end == dim or (isinstance(end, int) and end >= 2**31 - 1)):
        return dim
    if step == -1 and start == -1 and isinstance(end, int) and end <= -(2**31 - 1):
        return dim
    if not isinstance(dim, int) or not isinstance(end, int) or step == 0 or is_disputed(end, step):
        return None
    return len(taken(dim, start, end, step))


def is_disputed(end: int, step: int) -> bool:
    """Whether runtimes differ: in a backward Slice, onnxruntime reads the largest integer as the beginning."""
    return step < 0 and end >= 2**31 - 1


def taken(dim: int, start: int, end: int, step: int) -> range:
    """The elements that a Slice takes of an axis: bounds below -size are clamped, as ONNX has it."""
    start, end = (bound + dim if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return range(min(max(start, 0), dim), min(max(end, 0), dim), step)
    return range(min(max(start, 0), dim - 1), min(max(end, -1), dim - 1), step)


@infers(std.Gather)
def _gather(op: std.Gather) -> Inferred:
    shape, indices, axis = op.shape(0), op.shape(1), op.axis
    if shape is None or indices is None or axis is None:
        return [(op.dtype(), None)]
    return [(op.dtype(), (*shape[:axis], *indices, *shape[axis + 1 :]))]


@infers(std.GatherND)
def _gather_nd(op: std.GatherND) -> Inferred:
    shape, indices = op.shape(0), op.shape(1)
    if shape is None or not indices or not isinstance(depth := indices[-1], int):
        return [(op.dtype(), None)]
    return [(op.dtype(), (*indices[:-1], *shape[op.batch_dims + depth :]))]


@infers(std.GatherElements)
def _gather_elements(op: std.GatherElements) -> Inferred:
    return [(op.dtype(), op.shape(1))]


@infers(std.Transpose)
def _transpose(op: std.Transpose) -> Inferred:
    shape, perm = op.shape(), op.perm
    if shape is None or perm is None:
        return [(op.dtype(), None if perm is None else (None,) * len(perm))]
    return [(op.dtype(), tuple(shape[axis] for axis in perm))]


@infers(std.Reshape)
def _reshape(op: std.Reshape) -> Inferred:
    target = op.facts.entries(op.target)
    if target is None:
        return [(op.dtype(), None)]
    return [(op.dtype(), reshaped(op.shape(), target, allow_zero=bool(op.allowzero)))]


def reshaped(shape: Partial | None, target: tuple[Dim, ...], *, allow_zero: bool) -> Partial:
    """The shape that a Reshape makes: 0 copies a dimension, -1 is what is left over."""
    dims: list[Dim | None] = []
    for axis, wanted in enumerate(target):
        own = shape[axis] if shape is not None and axis < len(shape) else None
        if isinstance(wanted, int):
            dims.append(None if wanted == -1 else own if wanted == 0 and not allow_zero else wanted)
            continue
        # An entry that is no size may be -1, and one that is may be 0 at run time, which copies a dimension: of an
        # operand without elements where the size is one of its own, of any where it is not.
        certain = shape is not None and (allow_zero or wanted in shape or axis >= len(shape))
        dims.append(wanted if certain and not isinstance(wanted, UnknownEntry) else None)
    if target.count(-1) == 1 and shape is not None:
        dims[target.index(-1)] = _left_over(shape, [dim for dim, w in zip(dims, target, strict=True) if w != -1])
    return tuple(dims)


def _left_over(shape: Partial, dims: list[Dim | None]) -> Dim | None:
    """The dimension that makes the number of elements right."""
    if None in dims or 0 in dims:
        return None
    rest = list(shape)
    for dim in [dim for dim in dims if not isinstance(dim, int)]:
        if dim not in rest:
            return None
        rest.remove(dim)
    divisor = product(tuple(dim for dim in dims if isinstance(dim, int)))
    sizes = product(tuple(dim for dim in rest if isinstance(dim, int)))
    others = [dim for dim in rest if not isinstance(dim, int)]
    assert isinstance(divisor, int)
    assert isinstance(sizes, int)
    if not others:
        return sizes // divisor
    return others[0] if len(others) == 1 and sizes == divisor else None


@infers(std.Flatten)
def _flatten(op: std.Flatten) -> Inferred:
    shape, axis = op.shape(), op.axis
    if shape is None or axis is None:
        return [(op.dtype(), (None, None))]
    return [(op.dtype(), (product(shape[:axis]), product(shape[axis:])))]


@infers(std.Squeeze)
def _squeeze(op: std.Squeeze) -> Inferred:
    shape, axes = op.shape(), op.axes
    if shape is None:
        return [(op.dtype(), None)]
    if axes is not None:
        return [(op.dtype(), tuple(dim for axis, dim in enumerate(shape) if axis not in axes))]
    return [(op.dtype(), _squeezed(op, shape))]


def _squeezed(op: std.Squeeze, shape: Shape) -> Alternatives | None:
    """Without axes, each open size may be 1 and go."""
    possible: list[Partial] = [()]
    for dim in shape:
        kept = [(*rest, dim) for rest in possible]
        possible = kept if isinstance(dim, int) and dim != 1 else possible if dim == 1 else [*kept, *possible]
    if op.says(1, "axes"):
        # An empty list of axes is all or none of these, as the runtime likes it.
        return None if op.ints(1, "axes") != () else Alternatives((shape, *possible))
    return Alternatives(tuple(possible))


@infers(std.Unsqueeze)
def _unsqueeze(op: std.Unsqueeze) -> Inferred:
    shape, axes = op.shape(), op.axes
    if shape is None or axes is None:
        return [(op.dtype(), None)]
    rest = list(reversed(shape))
    return [(op.dtype(), tuple(1 if axis in axes else rest.pop() for axis in range(len(shape) + len(axes))))]


@infers(std.Expand)
def _expand(op: std.Expand) -> Inferred:
    return [(op.dtype(), broadcast(op.shape(), op.facts.entries(op.target)))]


@infers(std.Tile)
def _tile(op: std.Tile) -> Inferred:
    shape, repeats = op.shape(), op.facts.entries(op.repeats)
    if shape is None or repeats is None or len(shape) != len(repeats):
        return [(op.dtype(), None if shape is None else (None,) * len(shape))]
    return [(op.dtype(), tuple(product(pair) for pair in zip(shape, repeats, strict=True)))]


@infers(std.ConstantOfShape)
def _constant_of_shape(op: std.ConstantOfShape) -> Inferred:
    fill = op.fill
    return [(ir.DataType.FLOAT if fill is None else fill.dtype, op.facts.entries(op.target))]


@infers(std.Shape)
def _shape(op: std.Shape) -> Inferred:
    shape = op.shape()
    return [(ir.DataType.INT64, (None,) if shape is None else (len(shape[op.bounds]),))]


@infers(std.Size)
def _size(_: std.Size) -> Inferred:
    return [(ir.DataType.INT64, ())]


@infers(std.NonZero)
def _non_zero(op: std.NonZero) -> Inferred:
    # A scalar counts as a vector of one.
    rank = op.rank()
    return [(ir.DataType.INT64, (None if rank is None else max(rank, 1), None))]


@infers(std.Constant)
def _constant(op: std.Constant) -> Inferred:
    array = op.array
    if array is None:
        return [(None, None)]
    tensor = op.attribute("value", None)
    return [(ir.DataType.from_numpy(array.dtype) if tensor is None else tensor.dtype, array.shape)]


@infers(std.Pad)
def _pad(op: std.Pad) -> Inferred:
    shape, widths = op.shape(), op.widths
    if shape is None or widths is None:
        return [(op.dtype(), None if shape is None else (None,) * len(shape))]
    return [(op.dtype(), tuple(_padded(dim, *sides) for dim, sides in zip(shape, widths, strict=True)))]


def _padded(dim: Dim, before: Dim, after: Dim) -> Dim | None:
    if isinstance(dim, int) and isinstance(before, int) and isinstance(after, int):
        return dim + before + after
    return dim if before == after == 0 else None


@infers(std.CenterCropPad)
def _center_crop_pad(op: std.CenterCropPad) -> Inferred:
    shape, axes, target = op.shape(), op.axes, op.facts.entries(op.target)
    if shape is None or axes is None:
        return [(op.dtype(), None)]
    sizes: list[Dim | None] = list(shape)
    for place, axis in enumerate(axes):
        sizes[axis] = None if target is None else target[place]
    return [(op.dtype(), tuple(sizes))]


@infers(std.Range)
def _range(op: std.Range) -> Inferred:
    bounds = [op.constant(index) for index in range(3)]
    constants = [bound.item() for bound in bounds if bound is not None and bound.size == 1]
    count = range_length(*constants) if len(constants) == len(bounds) else None
    start, limit, delta = (op.facts.entries(value) for value in (op.start, op.limit, op.delta))
    if (
        count is None
        and (start, delta) == ((0,), (1,))
        and limit is not None
        and not isinstance(limit[0], UnknownEntry)
    ):
        return [(op.dtype(), limit)]
    return [(op.dtype(), (count,))]


def range_length(start: float, limit: float, delta: float) -> int | None:
    """The number of elements of a Range; `None` where it has none that is well defined."""
    if not delta:
        return None
    if all(isinstance(bound, int) for bound in (start, limit, delta)):
        return max(int(-((start - limit) // delta)), 0)
    steps = (limit - start) / delta
    return max(int(-(-steps // 1)), 0) if abs(steps) < 2**53 else None


# Types and shapes of reductions and products.


@infers(std.LayerNormalization)
def _layer_normalization(op: std.LayerNormalization) -> Inferred:
    shape, axis = op.shape(), op.axis
    reduced = None
    if shape is not None and axis is not None:
        reduced = (*shape[:axis], *(1,) * (len(shape) - axis))
    stash = ir.DataType(op.attribute("stash_type", 1))
    return [(op.dtype(), shape), (stash, reduced), (stash, reduced)]


@infers(std.Reduction)
def _reduce(op: std.Reduction) -> Inferred:
    shape = op.shape()
    if shape is not None and 0 in shape and any(axis < 0 for axis in op.written_axes or ()):
        # onnxruntime reduces no axis of an empty operand that is counted from behind.
        return [(op.dtype(), None)]
    if op.is_total and not op.keepdims:
        return [(op.dtype(), ())]
    listed = op.shape(1) if op.axes is None else None
    if shape is not None and not op.keepdims and listed and isinstance(count := listed[0], int) and count:
        return [(op.dtype(), unknown_sizes(len(shape) - count))]
    return [(op.dtype(), _reduced(shape, op.axes, keepdims=op.keepdims))]


def _reduced(shape: Partial | None, axes: tuple[int, ...] | None, *, keepdims: bool) -> Partial | None:
    if shape is None or axes is None:
        return None if shape is None or not keepdims else (None,) * len(shape)
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


@infers(std.Arg)
def _arg(op: std.Arg) -> Inferred:
    axis = op.axis
    return [(ir.DataType.INT64, _reduced(op.shape(), None if axis is None else (axis,), keepdims=bool(op.keepdims)))]


@infers(std.MatMul)
def _matmul(op: std.MatMul) -> Inferred:
    a, b = op.shape(0), op.shape(1)
    if not a or not b:
        return [(op.dtype(), None)]
    batch = broadcast(a[:-2], b[:-2])
    # Of a vector the axis that a matrix has besides the inner one is missing.
    return [(op.dtype(), None if batch is None else (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())))]


@infers(std.Einsum)
def _einsum(op: std.Einsum) -> Inferred:
    equation = op.equation
    if equation is None:
        return [(op.dtype(), None)]
    sizes: dict[str, Dim | None] = {}
    for index, term in enumerate(equation.inputs):
        for label, dim in zip(term, op.shape(index) or [None] * len(term), strict=True):
            before = sizes.get(label, dim)
            both = broadcast((before,), (dim,))
            sizes[label] = None if both is None else both[0]
    return [(op.dtype(), tuple(sizes.get(label) for label in equation.output))]


@infers(std.Gemm)
def _gemm(op: std.Gemm) -> Inferred:
    a, b = op.shape(0), op.shape(1)
    rows = None if a is None else a[1 if op.trans_a else 0]
    columns = None if b is None else b[0 if op.trans_b else 1]
    return [(op.dtype(), (rows, columns))]


# Types and shapes of operators that sample images, and of transforms.


@infers(std.DFT)
def _dft(op: std.DFT) -> Inferred:
    shape, axis = op.shape(), op.axis
    if shape is None or axis is None:
        return [(op.dtype(), None if shape is None else (None,) * len(shape))]
    given = None if op.length is None else op.facts.entries(op.length)
    size: Dim | None = shape[axis] if op.length is None else None if given is None else given[0]
    if op.onesided and op.inverse:
        size = (size - 1) * 2 if op.length is None and isinstance(size, int) else None if op.length is None else size
    elif op.onesided:
        size = size // 2 + 1 if isinstance(size, int) else None
    real = op.onesided and op.inverse
    return [(op.dtype(), (*shape[:axis], size, *shape[axis + 1 : -1], 1 if real else 2))]


# Types and shapes of complex numbers and their parts.


_COMPLEX = {part: whole for whole, part in PARTS.items()}


@infers(std.PartsOf)
def _parts_of(op: std.PartsOf) -> Inferred:
    dtype, shape = op.dtype(), op.shape()
    return [(None if dtype is None else PARTS[dtype], None if shape is None else (*shape, 2))]


@infers(std.OfParts)
def _of_parts(op: std.OfParts) -> Inferred:
    dtype, shape = op.dtype(), op.shape()
    return [(None if dtype is None else _COMPLEX[dtype], None if shape is None else shape[:-1])]


# Types and shapes of the results of control flow, from those of its bodies.


@infers(std.Scan)
def _scan(op: std.Scan) -> Inferred:
    """States keep their type; sequences stack the body's values over time."""
    facts, states = op.facts, op.states
    lengths = []
    for value, axis in zip(op.node.inputs[states:], op.input_axes, strict=True):
        shape = facts.shape(value)
        if shape is not None:
            lengths.append(shape[axis])
    length = next((dim for kind in (int, str) for dim in lengths if isinstance(dim, kind)), next(iter(lengths), None))
    results: Inferred = []
    for value, parameter, update in zip(op.node.inputs[:states], op.body.inputs, op.body.outputs, strict=False):
        # It is the parameter's at every step, and has as many axes as what a step makes of it.
        shape, rank = facts.shape(value), facts.rank(update)
        kept: Partial | None = facts.shape(parameter) if shape is None else shape
        results.append((facts.type(value), (None,) * rank if kept is None and rank is not None else kept))
    for value, axis in zip(op.body.outputs[states:], op.output_axes, strict=True):
        step: Partial | None = facts.shape(value)
        if step is not None:
            at = axis % (len(step) + 1)
            step = (*step[:at], length, *step[at:])
        results.append((facts.dtype(value), step))
    return results


@infers(std.If)
def _if(op: std.If) -> Inferred:
    """Types and shapes that both branches agree on."""
    first, second = op.branches
    results: Inferred = []
    for a, b in zip(first.outputs, second.outputs, strict=True):
        type_, common = _common(op, a, b)
        shapes = [shape for shape in (op.facts.shape(a), op.facts.shape(b)) if shape is not None]
        unlike = common is None and len(shapes) > 1
        results.append((type_, Alternatives(tuple(shapes)) if unlike else common))
    return results


def _common(op: std.Standard, a: ir.Value | None, b: ir.Value | None) -> tuple[Type, Partial | None]:
    types = op.facts.type(a), op.facts.type(b)
    shapes = op.facts.shape(a), op.facts.shape(b)
    shape = None
    if shapes[0] is not None and shapes[1] is not None and len(shapes[0]) == len(shapes[1]):
        shape = tuple(x if x == y else None for x, y in zip(shapes[0], shapes[1], strict=True))
    return types[0] if types[1] is None or types[0] == types[1] else None, shape


@infers(std.Loop)
def _loop(op: std.Loop) -> Inferred:
    """Carried values are the initial ones where there is no iteration; sequences have one element for each."""
    facts, body, carried = op.facts, op.body, op.carried
    results: Inferred = [_common(op, a, b) for a, b in zip(carried, body.outputs[1:], strict=False)]
    steps = _steps(op)
    for value in body.outputs[1 + len(carried) :]:
        step: Partial | None = facts.shape(value)
        if step is not None and not op.never_empty:
            # Without any iteration onnxruntime knows the sizes only that the body's declarations hold.
            step = tuple(dim if isinstance(dim, int) else None for dim in step)
        results.append((facts.dtype(value), None if step is None else (steps, *step)))
    return results


def _steps(op: std.Loop) -> Dim | None:
    """The number of steps of a Loop that nothing but its trip count ends."""
    counts = op.facts.entries(op.trips) if op.is_counted else None
    if counts is None or len(counts) != 1:
        return None
    (count,) = counts
    if isinstance(count, int):
        return max(count, 0)
    # Less than nothing is nothing.
    return None if isinstance(count, UnknownEntry) and not op.never_empty else count


@infers(std.SequenceMap)
def _sequence_map(op: std.SequenceMap) -> Inferred:
    """Sequences of what the body makes of each element."""
    types = [op.facts.type(value) for value in op.body.outputs]
    return [(None if type_ is None else ir.SequenceType(type_), None) for type_ in types]


# Types and shapes that follow from an operator's operands: the facet `infers` and its rules.
