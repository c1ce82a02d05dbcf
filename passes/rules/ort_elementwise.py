"""Lowering of onnxruntime-training's ops that treat every element, or every row, alike.

An activation is its formula, and its gradient is the gradient of that formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, sigmoid, tanh
from lstm_lower.opdef import OpDef
from lstm_lower.ops import ort_elementwise as ops
from lstm_lower.passes.gradients.registry import unbroadcast
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(ops.ReluGrad)
def relu_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the result is positive."""
    return b.where(n.Y > 0, n.dY, 0)


@lowers(ops.LeakyReluGrad)
def leaky_relu_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the result is positive, alpha times it elsewhere."""
    return n.dY * b.where(n.Y > 0, n.Y.like(1), n.alpha)


@lowers(ops.SigmoidGrad)
def sigmoid_grad(n: Node, _: Builder) -> Expr:
    """The product dy y (1 - y)."""
    return n.dY * n.Y * (1 - n.Y)


@lowers(ops.TanhGrad)
def tanh_grad(n: Node, _: Builder) -> Expr:
    """The product dy (1 - y) (1 + y), which does not cancel where y is close to 1."""
    return n.dY * (1 - n.Y) * (1 + n.Y)


@lowers(ops.SoftmaxGrad, ops.SoftmaxGrad_13)
def softmax_grad(n: Node, _: Builder) -> Expr:
    """(dy - sum(dy y)) y."""
    return (n.dY - (n.dY * n.Y).sum(_axes(n), keepdims=True)) * n.Y


@lowers(ops.LogSoftmaxGrad, ops.LogSoftmaxGrad_13)
def log_softmax_grad(n: Node, _: Builder) -> Expr:
    """Less exp(y) sum(dy)."""
    return n.dY - n.Y.exp() * n.dY.sum(_axes(n), keepdims=True)


def _axes(n: Node) -> list[int]:
    """The axes that probabilities add up to 1 over; the older ops take all from `axis` on."""
    if n.op in (ops.SoftmaxGrad_13, ops.LogSoftmaxGrad_13):
        return [n.axis]
    if n.dY.shape is None and n.axis >= 0:
        raise n.unsupported("dY", "a known rank", "none")
    return list(range(n.axis, 0)) if n.axis < 0 else list(range(n.axis, len(n.dY.shape)))


def _gelu(x: Expr) -> Expr:
    return x * ((x.builder.op(std.Erf, x * math.sqrt(0.5)) + 1) * 0.5)


def _fast_gelu(x: Expr) -> Expr:
    return x * ((tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1) * 0.5)


def _quick_gelu(x: Expr, alpha: float) -> Expr:
    return x * sigmoid(x * alpha)


# Activation, gradients -> formula of the operand, with the bias added.
_ACTIVATIONS: dict[tuple[type[OpDef], ...], Callable[[Node, Expr], Expr]] = {
    (ops.Gelu, ops.GeluGrad): lambda _, x: _gelu(x),
    (ops.BiasGelu, ops.BiasGeluGrad_dX): lambda _, x: _gelu(x),
    (ops.FastGelu, ops.FastGeluGrad, ops.BiasFastGeluGrad_dX): lambda _, x: _fast_gelu(x),
    (ops.QuickGelu, ops.QuickGeluGrad): lambda n, x: _quick_gelu(x, n.alpha),
}


def _operand(n: Node) -> Expr:
    bias = n.get("B", None)
    x: Expr = n.X
    return x if bias is None else x + bias


def _register(
    activation: type[OpDef], gradients: tuple[type[OpDef], ...], formula: Callable[[Node, Expr], Expr]
) -> None:
    @lowers(activation)
    def forward(n: Node, _: Builder) -> Expr:
        return formula(n, _operand(n))

    @lowers(*gradients)
    def backward(n: Node, b: Builder) -> Expr:
        x = _operand(n)
        return pullback(b, [formula(n, x)], [x], [n.dY])[0]


for _ops, _formula in _ACTIVATIONS.items():
    _register(_ops[0], _ops[1:], _formula)


@lowers(ops.DivGrad)
def div_grad(n: Node, _: Builder) -> list[Expr]:
    """Each summed over what its operand was repeated along."""
    quotient = n.dY / n.B
    return [unbroadcast(quotient, n.A), unbroadcast(-(quotient * (n.A / n.B)), n.B)]


@lowers(ops.Scale)
def scale(n: Node, _: Builder) -> Expr:
    """The number may be of another dtype, and of one or no axis."""
    factor = n.scale.cast(n.input.dtype).reshape()
    return n.input / factor if n.scale_down else n.input * factor


@lowers(ops.ScaledSum)
def scaled_sum(n: Node, _: Builder) -> Expr:
    """Term by term."""
    total = n.input_0 * n.scale_0 + n.input_1 * n.scale_1
    third = n.get("input_2", None)
    return total if third is None else total + third * n.scale_2


@lowers(ops.BatchScale)
def batch_scale(n: Node, _: Builder) -> list[Expr]:
    """A product for each number."""
    return [n.input * scale for scale in (n.scale_0, n.scale_1, n.scale_2)]


@lowers(ops.DropoutGrad)
def dropout_grad(n: Node, b: Builder) -> Expr:
    """Without a mode there is no training, without a ratio it is a half."""
    mode = n.get("training_mode", None)
    if mode is None:
        return n.dY
    ratio = n.get("ratio", None)
    kept = n.dY.like(0.5) if ratio is None else (1 - ratio.cast(n.dY.dtype)).reshape()
    return b.where(mode.reshape(), b.where(n.mask, n.dY / kept, 0), n.dY)


@lowers(ops.ZeroGradient)
def zero_gradient(n: Node, b: Builder) -> Expr:
    """Zeros."""
    return b.zeros_like(n.old_gradient)
