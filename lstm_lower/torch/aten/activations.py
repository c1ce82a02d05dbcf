"""Activations, with PyTorch's slopes at their kinks."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached, sigmoid, tanh
from lstm_lower.passes.formulas import special_functions
from lstm_lower.passes.formulas.special_functions import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.passes.training.losses import softplus
from lstm_lower.torch.aten.random import uniform
from lstm_lower.torch.aten.registry import AtenCall, translates

aten = torch.ops.aten


@translates(aten.softmax.int, aten._softmax.default, aten._safe_softmax.default)
def _softmax(n: AtenCall, x: Expr, axis: int, *_: Any, dtype: Any = None) -> Expr:
    return _along_axis(n, std.Softmax, x, axis)


@translates(aten.log_softmax.int, aten._log_softmax.default)
def _log_softmax(n: AtenCall, x: Expr, axis: int, *_: Any, dtype: Any = None) -> Expr:
    return _along_axis(n, std.LogSoftmax, x, axis)


def _along_axis(n: AtenCall, op: type[std.AlongAxis], x: Expr, axis: int) -> Expr:
    x = x.cast(n.dtype)
    if x.shape == ():
        return n.b.op(op, x.unsqueeze(0), axis=0).squeeze(0)
    return n.b.op(op, x, axis=axis)


@translates(aten.relu.default)
def _relu(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.Relu, x) if x.dtype.is_floating_point() else x.maximum(0)


@translates(aten.hardtanh.default)
def _hardtanh(n: AtenCall, x: Expr, low: Any = -1, high: Any = 1) -> Expr:
    return bounded(x, low, high)


@translates(aten.relu6.default)
def _relu6(n: AtenCall, x: Expr) -> Expr:
    return bounded(x, 0, 6)


def bounded(x: Expr, low: float, high: float) -> Expr:
    """X between bounds, at which it has no gradient, as it has in `clamp`."""
    result = x.builder.op(std.Clip, x, x.like(low), x.like(high))
    node = result.value.producer()
    assert node is not None
    node.metadata_props[std.OPEN] = "true"
    return result


@translates(aten.hardsigmoid.default)
def _hardsigmoid(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.HardSigmoid, x, alpha=1 / 6, beta=0.5)


@translates(aten.hardswish.default)
def _hardswish(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.HardSwish, x)


@translates(aten.silu.default)
def _silu(n: AtenCall, x: Expr) -> Expr:
    return x * sigmoid(x)


@translates(aten.mish.default)
def _mish(n: AtenCall, x: Expr) -> Expr:
    return x * tanh(softplus(x))


@translates(aten.softplus.default)
def _softplus(n: AtenCall, x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    if beta == 1 and threshold >= 20:
        # What is beyond it rounds to x in float32, and next to that in float64.
        return softplus(x) if x.dtype != ir.DataType.DOUBLE else n.b.where(x > threshold, x, softplus(x))
    scaled = x * beta
    return n.b.where(scaled > threshold, x, softplus(n.b.where(scaled > threshold, 0, scaled)) / beta)


@translates(aten.log_sigmoid.default)
def _log_sigmoid(n: AtenCall, x: Expr) -> Expr:
    return -softplus(-x)


@translates(aten.log_sigmoid_forward.default)
def _log_sigmoid_forward(n: AtenCall, x: Expr) -> list[Expr | None]:
    return [-softplus(-x), None]


@translates(aten.elu.default)
def _elu(n: AtenCall, x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    made = n.b.op(std.Elu, x if input_scale == 1 else x * input_scale, alpha=float(alpha))
    if input_scale != 1:
        made = n.b.where(x > 0, x, made)
    return made if scale == 1 else made * scale


@translates(aten.selu.default)
def _selu(n: AtenCall, x: Expr) -> Expr:
    return n.b.op(std.Selu, x, alpha=SELU_SCALE_ALPHA / SELU_SCALE, gamma=SELU_SCALE)


@translates(aten.celu.default)
def _celu(n: AtenCall, x: Expr, alpha: float = 1) -> Expr:
    if x.dtype == ir.DataType.DOUBLE:
        # onnxruntime has Celu in float32 alone.
        return n.b.op(std.Elu, x / alpha) * alpha
    return n.b.op(std.Celu, x, alpha=float(alpha))


@translates(aten.gelu.default)
def _gelu(n: AtenCall, x: Expr, *, approximate: str = "none") -> Expr:
    if approximate == "tanh":
        return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    if x.dtype == ir.DataType.DOUBLE:
        return special_functions.gelu(x)
    return x * (n.b.op(std.Erf, x * math.sqrt(0.5)) + 1) * 0.5


@translates(aten.glu.default)
def _glu(n: AtenCall, x: Expr, axis: int = -1) -> Expr:
    rank = len(x.shape or ())
    value, gate = x.split(2, axis=axis % rank)
    return value * sigmoid(gate)


@translates(aten.leaky_relu.default)
def _leaky_relu(n: AtenCall, x: Expr, slope: float = 0.01) -> Expr:
    return n.b.op(std.LeakyRelu, x, alpha=float(slope))


@translates(aten.prelu.default, aten._prelu_kernel.default)
def _prelu(n: AtenCall, x: Expr, slope: Expr) -> Expr:
    rank = len(x.shape or ())
    if len(slope.shape or ()) == 1 and rank > 2:
        slope = slope.unsqueeze(*range(1, rank - 1))
    elif rank < len(slope.shape or ()):
        slope = slope.reshape()
    return n.b.op(std.PRelu, x, slope)


@translates(aten.threshold.default)
def _threshold(n: AtenCall, x: Expr, threshold: float, value: float) -> Expr:
    return n.b.where(x <= threshold, value, x)


@translates(aten.softshrink.default)
def _softshrink(n: AtenCall, x: Expr, bound: float = 0.5) -> Expr:
    return n.b.op(std.Shrink, x, lambd=float(bound), bias=float(bound))


@translates(aten.hardshrink.default)
def _hardshrink(n: AtenCall, x: Expr, bound: float = 0.5) -> Expr:
    return n.b.op(std.Shrink, x, lambd=float(bound), bias=0.0)


@translates(aten.rrelu.default)
def _rrelu(n: AtenCall, x: Expr, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Expr:
    """Slopes below zero that are drawn, or their mean (Xu et al., 2015)."""
    if not training:
        return n.b.op(std.LeakyRelu, x, alpha=(lower + upper) / 2)
    slopes = detached(uniform(x.sizes(), x.dtype, n.b) * (upper - lower) + lower)
    return n.b.where(x > 0, x, x * slopes)
