"""Operators that functions of PyTorch come down to, and that its exporter writes with a loss of digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops import linalg

from lstm_lower.torch.front_indices import TRANSLATION
from lstm_lower.torch.real_sizes import REAL_SIZES


def _log_sigmoid(x: Any) -> Any:
    """The exporter takes the logarithm of a sigmoid, which may be 0."""
    return op.Neg(op.Softplus(op.Neg(x)))


def _vector_norm(
    x: Any,
    ord: float = 2.0,  # noqa: A002
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: int = -1,
) -> Any:
    """The exporter's of any order has no slope, and so do those of orders below 1, at zeros."""
    if ord in (0, 1, 2) or math.isinf(ord):
        return linalg.aten_linalg_vector_norm(x, ord, dim, keepdim, dtype)
    if dtype != -1:
        x = op.Cast(x, to=dtype)
    powers = _power(op.Abs(x), ord)
    axes = None if dim is None else op.Constant(value_ints=list(dim))
    return _power(op.ReduceSum(powers, axes, keepdims=int(keepdim)), 1 / ord)


def _uniform(x: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Functions of `nn.init` draw where no mode is asked."""
    return op.RandomUniformLike(x, low=low, high=high)


def _power(x: Any, exponent: float) -> Any:
    """Of what is not below 0; 0 of 0, without a slope."""
    made = (ir.tensor(number, dtype=ir.DataType.DOUBLE) for number in (0.0, 1.0, exponent))
    zero, one, exponent = (op.CastLike(op.Constant(value=number), x) for number in made)
    empty = op.Equal(x, zero)
    return op.Where(empty, zero, op.Pow(op.Where(empty, one, x), exponent))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.linalg_vector_norm.default: _vector_norm,
    torch.ops.aten.log_sigmoid.default: _log_sigmoid,
    torch.ops.aten.log_sigmoid_forward.default: _log_sigmoid,
    torch.ops.aten.uniform.default: _uniform,
    **TRANSLATION,
    **REAL_SIZES,
}
