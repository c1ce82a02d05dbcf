"""Arrays made of sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten import open_sizes
from lstm_lower.torch.aten.arrays import triangle_places, vector_of
from lstm_lower.torch.aten.registry import AtenCall, Size, translates

aten = torch.ops.aten
INT64, DOUBLE = ir.DataType.INT64, ir.DataType.DOUBLE


def _filled(n: AtenCall, value: Any) -> Expr:
    """The result's shape full of a number, known or not."""
    if isinstance(value, Expr):
        scalar = value.cast(n.dtype)
        return n.b.op(std.Expand, scalar, n.vector(n.shape)) if n.results[0].dim() else scalar
    if not n.results[0].dim():
        return n.b.constant(value, n.dtype)
    return n.b.fill(value, [vector_of(size) for size in n.shape], n.dtype)


@translates(aten.full.default, aten.full_like.default)
def _full(n: AtenCall, like: Any, fill_value: Any, **_: Any) -> Expr:
    return _filled(n, fill_value)


@translates(aten.new_full.default)
def _new_full(n: AtenCall, like: Expr, size: Any, fill_value: Any, **_: Any) -> Expr:
    return _filled(n, fill_value)


@translates(aten.scalar_tensor.default)
def _scalar_tensor(n: AtenCall, value: Any, **_: Any) -> Expr:
    return _filled(n, value)


def _of(value: int) -> Callable[..., Expr]:
    def filled(n: AtenCall, *_: Any, **__: Any) -> Expr:
        return _filled(n, value)

    return filled


# What is empty may hold anything.
translates(
    aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.empty.memory_format,
    aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default, aten.new_empty_strided.default,
    aten.empty_permuted.default, aten.zero.default,
)(_of(0))  # fmt: skip
translates(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(_of(1))


@translates(aten.arange.default)
def _arange(n: AtenCall, end: Any, **options: Any) -> Expr:
    return _numbers(n, 0, end, 1, **options)


@translates(aten.arange.start)
def _arange_from(n: AtenCall, start: Any, end: Any, **options: Any) -> Expr:
    return _numbers(n, start, end, 1, **options)


@translates(aten.arange.start_step)
def _numbers(n: AtenCall, start: Any, end: Any, step: Any = 1, **_: Any) -> Expr:
    """Multiples of the step from the start on, as many as the trace says."""
    b, (count,) = n.b, n.shape
    bounds = start, end, step
    if isinstance(count, int) and all(isinstance(x, (int, float)) for x in bounds):
        kind = np.float64 if any(isinstance(x, float) for x in bounds) else np.int64
        return b.constant(np.asarray(start + np.arange(count) * step, kind).astype(n.dtype.numpy()), n.dtype)
    numbers = up_to(b, vector_of(count))
    if isinstance(step, Expr) or step != 1 or isinstance(start, Expr) or start != 0:
        real = any(isinstance(x, float) or (isinstance(x, Expr) and x.dtype == DOUBLE) for x in bounds)
        dtype = DOUBLE if real else INT64
        numbers = numbers.cast(dtype) * n.scalar(step, dtype) + n.scalar(start, dtype)
    return numbers.cast(n.dtype)


@translates(aten.linspace.default)
def _linspace(n: AtenCall, start: Any, end: Any, steps: Size, **_: Any) -> Expr:
    """Numbers at equal distances, counted from both ends, as in PyTorch."""
    b = n.b
    first, last, count = (n.scalar(x, n.dtype) for x in (start, end, steps))
    places = up_to(b, vector_of(steps))
    numbers = places.cast(n.dtype)
    apart = (last - first) / (count - 1).maximum(1)
    from_start = (places * 2) < n.scalar(steps, INT64)
    return b.where(from_start, first + apart * numbers, last - apart * (count - 1 - numbers))


@translates(aten.logspace.default)
def _logspace(n: AtenCall, start: Any, end: Any, steps: Size, base: float = 10.0, **options: Any) -> Expr:
    return n.scalar(base, n.dtype) ** _linspace(n, start, end, steps, **options)


@translates(aten.eye.default)
def _square_eye(n: AtenCall, size: Size, **_: Any) -> Expr:
    return identity(n, size, size)


@translates(aten.eye.m)
def _eye(n: AtenCall, rows: Size, columns: Size, **_: Any) -> Expr:
    return identity(n, rows, columns)


def identity(n: AtenCall, rows: Size, columns: Size) -> Expr:
    """Ones where row and column are the same, in the result's dtype."""
    row, column = (up_to(n.b, vector_of(size)) for size in (rows, columns))
    return row.unsqueeze(1).equals(column).cast(n.dtype)


@translates(aten.tril_indices.default)
def _lower_places(n: AtenCall, row: Size, col: Size, offset: int = 0, **_: Any) -> Expr:
    return triangle_places(n.b, row, col, offset, upper=False)


@translates(aten.triu_indices.default)
def _upper_places(n: AtenCall, row: Size, col: Size, offset: int = 0, **_: Any) -> Expr:
    return triangle_places(n.b, row, col, offset, upper=True)


def _cosines(n: AtenCall, length: Size, shares: Sequence[float], *, periodic: bool) -> Expr:
    """A window that is a sum of cosines of multiples of the angle."""
    around = n.scalar(length, n.dtype) if periodic else (n.scalar(length, n.dtype) - 1).maximum(1)
    angles = up_to(n.b, vector_of(length)).cast(n.dtype) * (2 * math.pi) / around
    result = n.b.op(std.Cos, angles) * shares[1] + shares[0]
    for number, share in enumerate(shares[2:], 2):
        result = result + n.b.op(std.Cos, angles * number) * share
    # A window of one element is 1, whatever its shares.
    return n.b.where(n.scalar(length, INT64).equals(1), n.scalar(1, n.dtype), result)


@translates(aten.hamming_window.default, aten.hamming_window.periodic, aten.hamming_window.periodic_alpha)
@translates(aten.hamming_window.periodic_alpha_beta)
def _hamming(
    n: AtenCall, length: Size, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **_: Any
) -> Expr:
    return _cosines(n, length, (alpha, -beta), periodic=periodic)


@translates(aten.hann_window.default, aten.hann_window.periodic)
def _hann(n: AtenCall, length: Size, periodic: bool = True, **_: Any) -> Expr:
    return _cosines(n, length, (0.5, -0.5), periodic=periodic)


@translates(aten.blackman_window.default, aten.blackman_window.periodic)
def _blackman(n: AtenCall, length: Size, periodic: bool = True, **_: Any) -> Expr:
    return _cosines(n, length, (0.42, -0.5, 0.08), periodic=periodic)


@translates(open_sizes.window)
def _window(n: AtenCall, length: Size, shares: Sequence[float], periodic: bool, **_: Any) -> Expr:
    return _cosines(n, length, shares, periodic=periodic)
