"""Formulas on complex numbers in their two parts."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr

Number = tuple[Expr, Expr]


def parts_of(x: Expr) -> Expr:
    """The parts of complex numbers, along a last axis of two."""
    return x.builder.op(std.PartsOf, x)


def of_parts(x: Expr) -> Expr:
    """The complex numbers of such parts."""
    return x.builder.op(std.OfParts, x)


def conjugate(x: Expr) -> Expr:
    """Complex numbers with the other sign of the imaginary part."""
    parts = parts_of(x)
    return of_parts(parts * parts.builder.constant([1, -1], parts.dtype))


def each(parts: Expr) -> Number:
    """The real and the imaginary part, out of a last axis of two."""
    real, imaginary = (parts.take(part, axis=-1) for part in (0, 1))
    return real, imaginary


def joined(real: Expr, imaginary: Expr) -> Expr:
    """Parts of one shape along a last axis of two."""
    return real.builder.op(std.Concat, real.unsqueeze(-1), imaginary.unsqueeze(-1), axis=-1)


def product(x: Number, y: Number) -> Number:
    """X y."""
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def quotient(x: Number, y: Number) -> Number:
    """X / y, the divisor scaled so that no square leaves the range of numbers; no number where it is 0."""
    (a, b), (c, d) = x, y
    scale = c.abs().maximum(d.abs())
    c, d = c / scale, d / scale
    size = c * c + d * d
    return (a * c + b * d) / size / scale, (b * c - a * d) / size / scale


def magnitude(x: Number) -> Expr:
    """The length of the larger part times that of the number that is left, so that no square leaves the range."""
    real, imaginary = (part.abs() for part in x)
    large, small = real.maximum(imaginary), real.minimum(imaginary)
    limits = np.finfo(large.dtype.numpy())
    # Neither 0 / 0 nor infinity / infinity.
    divisor = large.maximum(float(limits.tiny)).minimum(float(limits.max))
    ratio = small / divisor
    return large * (ratio * ratio + 1).sqrt()
