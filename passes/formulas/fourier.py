"""Fourier transforms, as products with a table of angles or by way of lengths that are powers of two.

onnxruntime's kernel (1.32, on CPUs) has a fast transform for powers of two; for other lengths it adds up all products
with angles in float32, whose error grows with the length: 1e-5 of the largest at 100, 3e-4 at 1000. Up to a length of
1024 a product with a table takes less time than either.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.rows import fitted
from lstm_lower.passes.formulas.rows import padded as _filled
from lstm_lower.passes.formulas.sizes import Size, divided, scalar, up_to

DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64
# Numbers in a table: of real numbers of a length of 1024 to half of the frequencies; for lengths that are no powers of
# two, of complex ones of that length.
_TABLE, _ROUGH_TABLE = 1 << 21, 1 << 22


def transformed(
    x: Expr, axis: int, length: Size | None = None, *, inverse: bool = False, onesided: bool = False
) -> Expr:
    """The discrete Fourier transform along an axis, as ONNX's DFT.

    Args:
        x: numbers in parts: a last axis of two, or of one for real ones. Its rank is known.
        axis: the axis, counted from the front.
        length: the length to which the signal is cut or filled with zeros; that of the axis by default.
        inverse: whether it is the inverse transform, divided by the length.
        onesided: whether only half of the frequencies come out; of the inverse, go in, and real numbers come out, in a
            last axis of one.
    """
    assert x.shape is not None
    rank, half = len(x.shape), inverse and onesided
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    moved = x if axis == rank - 2 else x.transpose(*order)
    given, whole = moved.size(rank - 2), length is None
    if length is None:
        length = (given - 1) * 2 if half else given
    some = divided(length, 2) + 1
    read, made = some if half else length, some if onesided and not inverse else length
    if isinstance(length, int) and isinstance(read, int) and isinstance(made, int) and _has_table(moved, length, made):
        rows = min(read, given) if isinstance(given, int) else read
        result = _by_table(fitted(moved, rank - 2, rows), length, rows, made, inverse=inverse, half=half)
    else:
        moved = moved if whole else fitted(moved, rank - 2, read)
        moved = _mirrored(moved, length) if half else moved
        result = _of_any_length(moved, length, made, inverse=inverse)
        result = _without_rests(result, length, made) if onesided and not half else result
        result = result.slice(0, 1, axis=rank - 1) if half else result
    back = [order.index(i) for i in range(rank)]
    return result if axis == rank - 2 else result.transpose(*back)


def _has_table(x: Expr, length: int, made: int) -> bool:
    count = (x.shape or (2,))[-1]
    limit = _ROUGH_TABLE if length & (length - 1) else _TABLE
    return isinstance(count, int) and 0 < length * made * count * 2 <= limit


def _by_table(x: Expr, length: int, rows: int, made: int, *, inverse: bool, half: bool) -> Expr:
    """One product with the cosines and sines of all angles, numbers of two parts as vectors of twice the length."""
    rank, count = len(x.shape or ()), (x.shape or (2,))[-1]
    assert isinstance(count, int)
    turns = np.outer(np.arange(rows), np.arange(made)) % length
    angles = turns * ((1 if inverse else -1) * 2 * math.pi / length)
    # Exact zeros, since the sign of an imaginary part decides on the angle of a negative number.
    cosines, sines = np.cos(angles), np.where(2 * turns % length, np.sin(angles), 0)
    table = np.stack([np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)], 1)[:, :count]
    if half:
        # Each frequency stands for its conjugate too, but for the first and, of an even length, the last.
        twofold = np.array([1 if 2 * row in (0, length) else 2 for row in range(rows)])
        table = table[..., :1] * twofold[:, None, None, None]
    table = table / length if inverse else table
    flat = table.reshape(rows * count, -1).astype(x.dtype.numpy())
    vectors = x.reshape(*[0] * (rank - 2), rows * count)
    return (vectors @ x.builder.constant(flat, x.dtype)).reshape(*[0] * (rank - 2), made, table.shape[-1])


def _mirrored(x: Expr, length: Size) -> Expr:
    """All frequencies of a real signal of which half are given: the others are conjugates."""
    b, axis = x.builder, len(x.shape or ()) - 2
    numbers = (up_to(b, divided(length - 1, 2)) * -1) + scalar(b, divided(length - 1, 2))
    others = x.take(numbers, axis=axis)
    return b.concat([x, others * b.constant([1, -1], x.dtype)], axis=axis)


def _without_rests(x: Expr, length: Size, made: Size) -> Expr:
    """The frequencies of real numbers with an imaginary part of 0 where it must be: at the first, and at the middle."""
    b = x.builder
    numbers = up_to(b, made)
    whole = numbers.equals(0) | (numbers * 2).equals(scalar(b, length))
    return b.where(whole.unsqueeze(1) & b.constant([False, True], ir.DataType.BOOL), x.like(0), x)


def _of_any_length(x: Expr, length: Size, made: Size, *, inverse: bool) -> Expr:
    """Of a known power of two the runtime's own transform."""
    b, axis = x.builder, len(x.shape or ()) - 2
    if isinstance(length, int) and length & (length - 1) == 0:
        result = _transform(x, axis, int(inverse))
        return result if made == length else result.slice(0, _end(made), axis=axis)
    result = _by_chirp(x, length, made, 1 if inverse else -1)
    return result / scalar(b, length).cast(x.dtype) if inverse else result


def _by_chirp(x: Expr, length: Size, kept: Size, sign: int) -> Expr:
    """A convolution with a chirp, of a length that is a power of two (Bluestein, 1970)."""
    b, axis = x.builder, len(x.shape or ()) - 2
    count = scalar(b, length)
    numbers = up_to(b, length)
    # Squares modulo twice the length are exact, and so the angles in double.
    squares = ((numbers * numbers) % (count * 2)).cast(DOUBLE)
    angles = squares * (b.constant(math.pi, DOUBLE) / count.cast(DOUBLE))
    cosines, sines = (b.op(made, angles).cast(x.dtype).unsqueeze(1) for made in (std.Cos, std.Sin))
    chirp = b.concat([cosines, sines * float(sign)], axis=1)
    conjugate = b.concat([cosines, sines * float(-sign)], axis=1)
    doubled = (count * 2 - 1).maximum(1).cast(DOUBLE)
    exponent = b.op(std.Ceil, doubled.log() / math.log(2))
    padded = (2.0**exponent).cast(INT64)
    rest = b.op(std.Sub, padded, count * 2 - 1).maximum(0).reshape(1)
    zeros = b.op(std.Expand, b.constant(0.0, x.dtype), b.concat([rest, b.ints(2)], axis=0))
    backwards = conjugate.take((count - 1) - up_to(b, _one_less(count)))
    filter_ = b.concat([conjugate, zeros, backwards], axis=0)
    turned = x * chirp if x.size(axis + 1) == 1 else _product(x, chirp)
    whole = _filled(turned, {axis: (0, padded.reshape(1) - turned.size(axis))})
    spectrum = _product(_transform(whole, axis, 0), _transform(filter_.unsqueeze(0), 1, 0).squeeze(0))
    convolved = _transform(spectrum, axis, 1).slice(0, _end(kept), axis=axis)
    return _product(convolved, chirp.slice(0, _end(kept), axis=0))


def _end(size: Size) -> int | Expr:
    return size if isinstance(size, int) else size.reshape(1)


def _one_less(count: Expr) -> Expr:
    return (count - 1).maximum(0)


def _product(x: Expr, y: Expr) -> Expr:
    """Of numbers in two parts."""
    b, last = x.builder, len(x.shape or ()) - 1
    behind = len(y.shape or ()) - 1
    (a, c), (d, e) = ([v.slice(part, part + 1, axis=axis) for part in (0, 1)] for v, axis in ((x, last), (y, behind)))
    return b.concat([a * d - c * e, a * e + c * d], axis=last)


def _transform(x: Expr, axis: int, inverse: int) -> Expr:
    """Of a length that is a power of two, which its mark says.

    The axis has that length: of one that DFT's own operand says onnxruntime takes memory for what it was before.
    """
    b = x.builder
    made = b.op(std.DFT, x, None, b.constant(axis, INT64), inverse=inverse)
    node = made.value.producer()
    assert node is not None
    node.metadata_props[std.LENGTH] = std.POWER_OF_TWO
    return made
