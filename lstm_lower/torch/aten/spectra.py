"""Fourier transforms and complex numbers."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas import cumulative
from lstm_lower.passes.formulas.complex_numbers import (
    Number,
    conjugate,
    each,
    joined,
    magnitude,
    of_parts,
    parts_of,
)
from lstm_lower.passes.formulas.fourier import transformed
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.formulas.special_functions import log1p_of
from lstm_lower.torch.aten import open_sizes
from lstm_lower.torch.aten.arrays import broadcast_to, counted, rank_of, sizes_of, vector_of
from lstm_lower.torch.aten.elementwise import angle_of
from lstm_lower.torch.aten.registry import AtenCall, Size, translates

aten = torch.ops.aten

# What PyTorch calls the norms: how a transform is divided by the number of elements.
_NONE, _BY_ROOT, _BY_NUMBER = range(3)


def _normalized(n: AtenCall, parts: Expr, sizes: Sequence[Size], norm: int, *, divided: bool) -> Expr:
    """A transform with the norm that is asked for, of one that is divided by the number of elements or not."""
    if norm == (_BY_NUMBER if divided else _NONE):
        return parts
    count = n.scalar(n.count(sizes), parts.dtype)
    if norm == _BY_ROOT:
        return parts * count.sqrt() if divided else parts / count.sqrt()
    return parts * count if divided else parts / count


def _along(x: Expr, dim: Sequence[int]) -> list[int]:
    return [counted(x, axis) for axis in dim]


@translates(aten._fft_c2c.default)
def _complex_transform(n: AtenCall, x: Expr, dim: Sequence[int], normalization: int, forward: bool) -> Expr:
    """Axis by axis."""
    sizes, axes = sizes_of(x), _along(x, dim)
    parts = functools.reduce(lambda y, axis: transformed(y, axis, inverse=not forward), axes, parts_of(x))
    return of_parts(_normalized(n, parts, [sizes[axis] for axis in axes], normalization, divided=not forward))


@translates(aten._fft_r2c.default)
def _real_transform(n: AtenCall, x: Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Expr:
    """Of real numbers: of the last axis half of the frequencies, if no more are asked for."""
    sizes, axes = sizes_of(x), _along(x, dim)
    parts = transformed(x.unsqueeze(rank_of(x)), axes[-1], onesided=onesided)
    parts = functools.reduce(transformed, axes[:-1], parts)
    return of_parts(_normalized(n, parts, [sizes[axis] for axis in axes], normalization, divided=False))


@translates(aten._fft_c2r.default)
def _to_real(n: AtenCall, x: Expr, dim: Sequence[int], normalization: int, last_dim_size: Size) -> Expr:
    """Real numbers of half of the frequencies along the last axis."""
    sizes, axes = sizes_of(x), _along(x, dim)
    parts = functools.reduce(lambda y, axis: transformed(y, axis, inverse=True), axes[:-1], parts_of(x))
    length = vector_of(last_dim_size)
    parts = transformed(parts, axes[-1], length, inverse=True, onesided=True)
    counts = [*(sizes[axis] for axis in axes[:-1]), last_dim_size]
    return _normalized(n, parts, counts, normalization, divided=True).squeeze(rank_of(x))


@translates(open_sizes.frequencies)
def _frequencies(n: AtenCall, size: Size, d: float, half: bool, **_: Any) -> Expr:
    """Numbers of cycles, those behind the middle negative, over the length."""
    count = n.scalar(size, ir.DataType.INT64)
    numbers = up_to(n.b, vector_of(n.shape[0]))
    if not half:
        numbers = n.b.where(numbers * 2 < count, numbers, numbers - count)
    return numbers.cast(n.dtype) / (count.cast(n.dtype) * d)


# Complex numbers and their parts.


def _paired(n: AtenCall, real: Expr, imaginary: Expr) -> Expr:
    return of_parts(joined(*(broadcast_to(n, part, n.shape) for part in (real, imaginary))))


@translates(aten.complex.default)
def _complex(n: AtenCall, real: Expr, imaginary: Expr) -> Expr:
    return _paired(n, real, imaginary)


@translates(aten.polar.default)
def _polar(n: AtenCall, size: Expr, angle: Expr) -> Expr:
    return _paired(n, *(size * n.b.op(op, angle) for op in (std.Cos, std.Sin)))


@translates(aten.view_as_real.default, aten.view_as_real_copy.default)
def _parts(n: AtenCall, x: Expr) -> Expr:
    return parts_of(x)


@translates(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def _of_parts(n: AtenCall, x: Expr) -> Expr:
    return of_parts(x)


@translates(aten.real.default)
def _real(n: AtenCall, x: Expr) -> Expr:
    return each(parts_of(x))[0] if is_complex(x.dtype) else x


@translates(aten.imag.default)
def _imaginary(n: AtenCall, x: Expr) -> Expr:
    return each(parts_of(x))[1]


@translates(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default, aten._conj_copy.default)
def _conjugate(n: AtenCall, x: Expr) -> Expr:
    return conjugate(x) if is_complex(x.dtype) else x


@translates(aten._neg_view.default)
def _negative(n: AtenCall, x: Expr) -> Expr:
    return -x


@translates(aten.angle.default)
def _angle(n: AtenCall, x: Expr) -> Expr:
    if is_complex(x.dtype):
        real, imaginary = each(parts_of(x))
        return angle_of(imaginary, real)
    half_turn = n.b.where(x < 0, n.scalar(torch.pi, n.dtype), n.scalar(0, n.dtype))
    return n.b.where(n.b.op(std.IsNaN, x), x, half_turn) if x.dtype.is_floating_point() else half_turn


@translates(aten.abs.default, of_complex=True)
def _magnitude(n: AtenCall, x: Expr) -> Expr:
    return magnitude(each(parts_of(x)))


@translates(aten.log.default, of_complex=True)
def _logarithm(n: AtenCall, x: Expr) -> Expr:
    parts = each(parts_of(x))
    return of_parts(joined(magnitude(parts).log(), angle_of(parts[1], parts[0])))


@translates(aten.log1p.default, of_complex=True)
def _logarithm_above_one(n: AtenCall, x: Expr) -> Expr:
    return of_parts(joined(*_log1p(each(parts_of(x)))))


def _log1p(x: Number) -> Number:
    """log(1 + x), of small numbers by how much the square of the length is above 1."""
    real, imaginary = x
    b, one = real.builder, real + 1
    near = magnitude(x) < 0.5
    # What is not chosen must have a slope all the same.
    above = log1p_of(b.where(near, real * (real + 2) + imaginary * imaginary, 0)) / 2
    length = b.where(near, 1, magnitude((one, imaginary))).log()
    return b.where(near, above, length), angle_of(imaginary, one)


@translates(aten.logcumsumexp.default, of_complex=True)
def _log_cumsum_exp(n: AtenCall, x: Expr, dim: int) -> Expr:
    """Each logarithm with that of one and the share of the lesser one, whose angles add up to more than half a turn."""
    if not rank_of(x):
        return x
    b = n.b

    def body(most: list[Expr], least: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        behind = most[0] < least[0]
        most, least = (
            [b.where(behind, *pair) for pair in zip(*ends, strict=True)] for ends in ((least, most), (most, least))
        )
        # Minus infinity less itself is no number.
        share = (least[0] - b.where(most[0].abs().equals(math.inf), 0, most[0])).exp()
        angle = least[1] - most[1]
        added = _log1p((share * b.op(std.Cos, angle), share * b.op(std.Sin, angle)))
        sums = [part + more for part, more in zip(most, added, strict=True)]
        return sums, sums

    sums = cumulative.running(body, [-math.inf, 0], each(parts_of(x)), counted(x, dim))
    return of_parts(joined(*sums))


@translates(aten.sqrt.default, of_complex=True)
def _root(n: AtenCall, x: Expr) -> Expr:
    """The root of the magnitude, at half of the angle."""
    parts = each(parts_of(x))
    size, angle = magnitude(parts).sqrt(), angle_of(parts[1], parts[0]) * 0.5
    return of_parts(joined(*(size * n.b.op(op, angle) for op in (std.Cos, std.Sin))))


@translates(aten.pow.Tensor_Scalar, of_complex=True)
def _power(n: AtenCall, x: Expr, exponent: Any) -> Expr:
    """Products of a number with itself."""
    if not isinstance(exponent, (int, float)) or exponent not in range(1, 9):
        raise n.refuse("a whole exponent from 1 to 8 of complex numbers", "exp(exponent * log(x)) is the same")
    return functools.reduce(operator.mul, [x] * int(exponent))
