"""Fourier transforms of any length as transforms of powers of two, or as products.

onnxruntime's kernel (1.32, on CPUs) has a fast transform for powers of two; for other lengths it adds up all products
with angles in float32, whose error grows with the length: 1e-5 of the largest at 100, 3e-4 at 1000.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.decompositions.registry import decomposes
from lstm_lower.passes.formulas.rows import fitted
from lstm_lower.passes.formulas.sizes import Size, divided, scalar, up_to

DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64
# Lengths up to which a table of all angles is multiplied with.
_TABLE = 1024


def is_inexact(node: ir.Node, facts: Facts) -> bool:
    """Whether a node is a transform in float32 of a length that may be no power of two, and that can be rewritten."""
    framed = std.STFT.of(node, facts) if std.STFT.matches(node) else None
    if framed is not None:
        return _is_rough(_frame(framed, facts)) and facts.dtype(framed.signal) == ir.DataType.FLOAT
    op = std.DFT.of(node, facts) if std.DFT.matches(node) else None
    if op is None or op.axis is None or (op.inverse and op.onesided):
        return False
    shape = facts.shape(op.data)
    if shape is None or facts.dtype(op.data) != ir.DataType.FLOAT or shape[-1] not in (1, 2):
        return False
    given = node.metadata_props.get(std.LENGTH) == std.POWER_OF_TWO
    return not given and _is_rough(shape[op.axis] if op.length is None else _number(op.length, facts))


def _frame(op: std.STFT, facts: Facts) -> object:
    """The length of a frame, as far as it is known."""
    if op.length is not None:
        return _number(op.length, facts)
    shape = None if op.window is None else facts.shape(op.window)
    return shape[0] if shape else None


def _number(length: ir.Value, facts: Facts) -> int | None:
    known = facts.constant(length)
    return None if known is None else int(known.reshape(-1)[0])


def _is_rough(length: object) -> bool:
    return not isinstance(length, int) or length & (length - 1) != 0


@decomposes(std.DFT)
def _dft(op: std.DFT, b: Builder) -> list[Expr] | None:
    """Along the last axis but one, to which the transform's is moved."""
    x, axis = b.wrap(op.data), op.axis
    if axis is None or x.shape is None:
        return None
    rank = len(x.shape)
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    length = x.size(axis)
    if op.length is not None:
        known = _number(op.length, b.facts)
        length = b.wrap(op.length).cast(INT64).reshape(1) if known is None else known
        x = fitted(x, axis, length)
    moved = x if axis == rank - 2 else x.transpose(*order)
    sign = 1 if op.inverse else -1
    if isinstance(length, int) and length <= _TABLE:
        result = _by_table(moved, length, length // 2 + 1 if op.onesided else length, sign)
    else:
        result = _by_chirp(moved, length, divided(length, 2) + 1 if op.onesided else length, sign)
    if op.inverse:
        count = scalar(b, length).cast(x.dtype) if isinstance(length, Expr) else float(length)
        result = result / count
    back = [order.index(i) for i in range(rank)]
    return [result if axis == rank - 2 else result.transpose(*back)]


def _by_table(x: Expr, length: int, kept: int, sign: int) -> Expr:
    """Products with the cosines and sines of all angles."""
    b, last = x.builder, len(x.shape or ()) - 1
    turns = np.outer(np.arange(length), np.arange(kept)) % length
    angles = turns * (sign * 2 * math.pi / length)
    cosines, sines = (b.constant(made(angles).astype(np.float32), x.dtype) for made in (np.cos, np.sin))
    count = (x.shape or (2,))[last]
    parts = [x.slice(part, part + 1, axis=last).squeeze(last) for part in range(2 if count == 2 else 1)]
    real, imaginary = parts[0] @ cosines, parts[0] @ sines
    if len(parts) == 2:
        real, imaginary = real - parts[1] @ sines, imaginary + parts[1] @ cosines
    return b.concat([real.unsqueeze(last), imaginary.unsqueeze(last)], axis=last)


def _by_chirp(x: Expr, length: Size, kept: Size, sign: int) -> Expr:
    """A convolution with a chirp, of a length that is a power of two (Bluestein, 1970)."""
    b, axis = x.builder, len(x.shape or ()) - 2
    count = scalar(b, length)
    numbers = up_to(b, length)
    # Squares modulo twice the length are exact, and so the angles in double.
    squares = b.op(std.Mod, numbers * numbers, count * 2).cast(DOUBLE)
    angles = squares * (b.constant(math.pi, DOUBLE) / count.cast(DOUBLE))
    cosines, sines = (b.op(made, angles).cast(x.dtype).unsqueeze(1) for made in (std.Cos, std.Sin))
    chirp = b.concat([cosines, sines * float(sign)], axis=1)
    conjugate = b.concat([cosines, sines * float(-sign)], axis=1)
    doubled = (count * 2 - 1).maximum(1).cast(DOUBLE)
    exponent = b.op(std.Ceil, b.op(std.Log, doubled) / math.log(2))
    padded = b.op(std.Pow, exponent.like(2.0), exponent).cast(INT64)
    rest = b.op(std.Sub, padded, count * 2 - 1).maximum(0).reshape(1)
    zeros = b.op(std.Expand, b.constant(0.0, x.dtype), b.concat([rest, b.ints(2)], axis=0))
    backwards = b.op(std.Gather, conjugate, (count - 1) - up_to(b, _one_less(count)), axis=0)
    filter_ = b.concat([conjugate, zeros, backwards], axis=0)
    turned = x * chirp if x.size(axis + 1) == 1 else _product(x, chirp)
    spectrum = _product(_transform(turned, padded, axis, 0), _transform(filter_.unsqueeze(0), padded, 1, 0).squeeze(0))
    convolved = _transform(spectrum, padded, axis, 1).slice(0, _end(kept), axis=axis)
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


def _transform(x: Expr, length: Expr, axis: int, inverse: int) -> Expr:
    """Of a length that is a power of two, which its mark says."""
    b = x.builder
    at = {"axis": axis} if b.opset < 20 else {}
    made = b.op(std.DFT, x, length, *([] if at else [b.constant(axis, INT64)]), inverse=inverse, **at)
    node = made.value.producer()
    assert node is not None
    node.metadata_props[std.LENGTH] = std.POWER_OF_TWO
    return made
