"""Constant folding: an operator's result from operands that are known, the facet `folds`.

A rule gets the operands as numpy arrays, `None` for those that are not known. It is not called where the first one is
not known, except where the result follows from shapes (`OF_SHAPES`) and no operand is needed. An array of Python
objects holds sizes of which some are known by name or identity only; operators that only move elements treat it as any
other array, arithmetic takes numbers only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference import is_disputed, range_length, taken
from lstm_lower.graph.values import Array, Dim, UnknownEntry, product

# Results up to this many elements are computed: sizes, axes, biases, but no weights.
LARGEST = 1 << 12
# Integers up to this are doubles too.
EXACT = 1 << 53

# What these compute follows from their operand's shape alone.
OF_SHAPES = (std.Shape, std.Size)

Operands = list[Array | None]
folds: std.Facet[Callable[[Any, Operands], Array | None]] = std.Facet("folding")


@folds(std.Identity)
def _identity(_: std.Identity, operands: Operands) -> Array | None:
    return operands[0]


@folds(std.Cast)
def _cast(cast: std.Cast, operands: Operands) -> Array | None:
    array = operands[0]
    if array is None or (array.dtype == object and cast.to.is_integer()):
        return array
    target = cast.to.numpy()
    if array.dtype == object or target.kind not in "iufb":
        return None
    if target.kind in "iu" and array.dtype.kind == "f" and not _fits(array, target):
        return None
    with np.errstate(all="ignore"):
        return array.astype(target)


def _fits(array: Array, target: np.dtype[Any]) -> bool:
    """Whether converting to integers is defined: beyond their range, runtimes differ."""
    limits = np.iinfo(target)
    wide = array.astype(np.float64)  # halves do not hold the limits
    return bool(np.isfinite(wide).all() and (wide > limits.min).all() and (wide < limits.max).all())


@folds(std.Gather)
def _gather(gather: std.Gather, operands: Operands) -> Array | None:
    data, indices = operands
    axis = gather.axis
    if data is None or indices is None or axis is None or indices.dtype == object:
        return None
    if indices.size and not (-data.shape[axis] <= indices.min() and indices.max() < data.shape[axis]):
        return None
    # One index at a time, since numpy takes a lone element out of its array.
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return np.take(data, indices.reshape(-1), axis=axis).reshape(shape)


@folds(std.Slice)
def _slice(op: std.Slice, operands: Operands) -> Array | None:
    data, starts, ends = operands[:3]
    axes, steps = op.axes, op.steps
    if data is None or starts is None or ends is None or axes is None or steps is None:
        return None
    if starts.dtype == object or ends.dtype == object or 0 in steps:
        return None
    if any(is_disputed(end, step) for end, step in zip(ends.tolist(), steps, strict=True)):
        return None
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes, steps, strict=True):
        data = np.take(data, np.asarray(taken(data.shape[axis], start, end, step), np.int64), axis=axis)
    return data


@folds(std.Reshape)
def _reshape(op: std.Reshape, operands: Operands) -> Array | None:
    data, target = operands
    if data is None or target is None or target.dtype == object:
        return None
    wanted = target.tolist()
    sizes = [
        data.shape[a] if not size and not op.allowzero and a < data.ndim else size for a, size in enumerate(wanted)
    ]
    rest = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
    if (
        sizes.count(-1) > 1
        or (-1 in sizes and (not rest or data.size % rest))
        or (-1 not in sizes and rest != data.size)
    ):
        return None
    return data.reshape(sizes)


@folds(std.Unsqueeze)
def _unsqueeze(op: std.Unsqueeze, operands: Operands) -> Array | None:
    axes = op.axes
    return None if operands[0] is None or axes is None else np.expand_dims(operands[0], axes)


@folds(std.Squeeze)
def _squeeze(op: std.Squeeze, operands: Operands) -> Array | None:
    data, axes = operands[0], op.axes
    if data is None or axes is None or any(data.shape[axis] != 1 for axis in axes):
        return None
    return np.squeeze(data, axes)


@folds(std.Transpose)
def _transpose(op: std.Transpose, operands: Operands) -> Array | None:
    return None if operands[0] is None else np.transpose(operands[0], op.perm)


@folds(std.Concat)
def _concat(op: std.Concat, operands: Operands) -> Array | None:
    parts, axis = [part for part in operands if part is not None], op.axis
    if len(parts) < len(operands) or axis is None:
        return None
    if any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts, axis=axis)


@folds(std.Shape)
def _shape(op: std.Shape, _: Operands) -> Array | None:
    shape = op.shape()
    if shape is None:
        return None
    dims = shape[op.bounds]
    if all(isinstance(dim, int) for dim in dims):
        return np.asarray(dims, np.int64)
    entries = np.empty(len(dims), object)
    entries[:] = dims
    return entries


@folds(std.Size)
def _size(op: std.Size, _: Operands) -> Array | None:
    shape = op.shape()
    if shape is None:
        return None
    sizes = [dim for dim in shape if isinstance(dim, int)]
    return (
        np.asarray(np.prod(sizes, dtype=np.int64))
        if len(sizes) == len(shape)
        else _lone(product(shape), keepdims=False)
    )


@folds(std.ConstantOfShape)
def _constant_of_shape(op: std.ConstantOfShape, operands: Operands) -> Array | None:
    target, fill = operands[0], op.fill
    if target is None or target.dtype == object or any(size < 0 for size in target.tolist()):
        return None
    if _elements(target) > LARGEST:
        return None
    value = np.zeros(1, np.float32) if fill is None else fill.numpy()
    return np.full(target.tolist(), value.reshape(-1)[0], value.dtype)


@folds(std.Expand)
def _expand(_: std.Expand, operands: Operands) -> Array | None:
    data, target = operands
    if data is None or target is None or target.dtype == object or target.size > 32:
        return None
    try:
        shape = np.broadcast_shapes(data.shape, tuple(target.tolist()))
    except ValueError:
        return None
    return np.broadcast_to(data, shape) if _elements(np.asarray(shape)) <= LARGEST else None


def _elements(sizes: Array) -> int:
    total = 1
    for size in sizes.tolist():
        total *= size
    return total


@folds(std.Range)
def _range(_: std.Range, operands: Operands) -> Array | None:
    numbers = [x for x in operands if x is not None and x.dtype != object and x.size == 1]
    if len(numbers) < 3:
        return None
    start, limit, delta = (x.item() for x in numbers)
    count = range_length(start, limit, delta)
    if count is None or count > LARGEST or numbers[0].dtype.kind not in "iu":
        return None
    return np.asarray(start + delta * np.arange(count), numbers[0].dtype)


@folds(std.ReduceProd)
def _reduce_prod(op: std.ReduceProd, operands: Operands) -> Array | None:
    data, axes = operands[0], op.axes
    if data is not None and data.dtype == object and data.ndim == 1 and axes == (0,):
        return _lone(product(data.tolist()), keepdims=op.keepdims)
    if data is None or axes is None or data.dtype.kind not in "iu":
        return None
    # Beyond the integers' range results are undefined; onnxruntime multiplies doubles.
    exact = np.asarray(np.prod(data.astype(object), axis=axes, keepdims=op.keepdims))
    limits = np.iinfo(data.dtype)
    least, largest = max(limits.min, -EXACT), min(limits.max, EXACT)
    return exact.astype(data.dtype) if all(least <= size <= largest for size in exact.flat) else None


def _lone(size: Dim | None, *, keepdims: bool) -> Array | None:
    """One size, of whatever kind."""
    if size is None or isinstance(size, UnknownEntry):
        return None
    entry = np.empty(1 if keepdims else (), object)
    entry[...] = size
    return entry


@folds(std.Div)
def _divide(_: std.Div, operands: Operands) -> Array | None:
    numbers = _numbers(operands)
    if numbers is None:
        return None
    a, b = numbers
    if a.dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return np.asarray(a / b)
    if (b == 0).any():
        return None
    # Integer division rounds towards zero in ONNX, towards minus infinity in numpy. The least integer has no absolute
    # value to divide.
    return np.asarray((a - np.fmod(a, b)) // b)


@folds(std.Mod)
def _remainder(op: std.Mod, operands: Operands) -> Array | None:
    numbers = _numbers(operands)
    if numbers is None or any(x.dtype.kind not in "iu" for x in numbers):
        return None
    a, b = numbers
    if (b == 0).any():
        return None
    # The divisor's sign, or under fmod the dividend's.
    return np.asarray(np.fmod(a, b) if op.fmod else np.mod(a, b))


@folds(std.ReduceSum)
def _reduce_sum(op: std.ReduceSum, operands: Operands) -> Array | None:
    data, axes = operands[0], op.axes
    if data is None or axes is None or data.dtype.kind not in "iu":
        return None
    return np.asarray(data.sum(tuple(axes), keepdims=bool(op.keepdims), dtype=data.dtype))


@folds(std.ReduceMax)
def _reduce_max(op: std.ReduceMax, operands: Operands) -> Array | None:
    return _extreme(op, operands[0], np.max)


@folds(std.ReduceMin)
def _reduce_min(op: std.ReduceMin, operands: Operands) -> Array | None:
    return _extreme(op, operands[0], np.min)


def _extreme(op: std.Reduction, data: Array | None, function: Callable[..., Any]) -> Array | None:
    """Of integers: NaN among numbers is taken differently by different runtimes, and so are no numbers."""
    axes = op.axes
    if data is None or axes is None or data.dtype.kind not in "iu" or not data.size:
        return None
    return np.asarray(function(data, axis=tuple(axes), keepdims=bool(op.keepdims)))


@folds(std.NonZero)
def _places(_: std.NonZero, operands: Operands) -> Array | None:
    data = operands[0]
    return (
        None if data is None or data.dtype == object or not data.ndim else np.stack(np.nonzero(data)).astype(np.int64)
    )


@folds(std.Where)
def _where(op: std.Where, operands: Operands) -> Array | None:
    condition, yes, no = operands
    if condition is None or condition.dtype == object:
        return None
    if condition.size and condition.all() and yes is not None and yes.shape == op.facts.shape(op.output):
        return yes
    numbers = _numbers([yes, no])
    return None if numbers is None else np.asarray(np.where(condition, *numbers))


def _numbers(operands: Operands) -> list[Array] | None:
    numbers = [x for x in operands if x is not None and x.dtype != object]
    return numbers if len(numbers) == len(operands) else None


def _by(function: Callable[..., Any]) -> Callable[[std.Standard, Operands], Array | None]:
    def rule(_: std.Standard, operands: Operands) -> Array | None:
        numbers = _numbers(operands)
        if numbers is None:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(function(*numbers))

    return rule


_difference = _by(np.subtract)


@folds(std.Sub)
def _subtract(op: std.Sub, operands: Operands) -> Array | None:
    a, b = operands
    if a is not None and b is not None and a.dtype == b.dtype == object and a.tolist() == b.tolist():
        # The same sizes, whatever they are.
        return np.full(a.shape, 0, object)
    return _difference(op, operands)


folds(std.Add)(_by(np.add))
folds(std.Mul)(_by(np.multiply))
folds(std.Neg)(_by(np.negative))
folds(std.Not)(_by(np.logical_not))
folds(std.And)(_by(np.logical_and))
folds(std.Or)(_by(np.logical_or))
folds(std.Equal)(_by(np.equal))
folds(std.Less)(_by(np.less))
folds(std.Greater)(_by(np.greater))
folds(std.LessOrEqual)(_by(np.less_equal))
folds(std.GreaterOrEqual)(_by(np.greater_equal))
folds(std.Min)(_by(lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs))))
folds(std.Max)(_by(lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs))))
