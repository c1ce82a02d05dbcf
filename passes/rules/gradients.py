"""Lowering of the ordinary gradient ops that keep or sum their operand's shape: each one is its formula."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, FLOATS, RawOp
from lstm_lower.passes.formulas.special_functions import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by


class ReluGrad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of max(x, 0)."""


class Relu6Grad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of min(max(x, 0), 6)."""


class LeakyReluGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of max(x, alpha * x)."""

    rounded = ("alpha",)


@lowers(LeakyReluGrad)
def leaky_relu_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the operand is positive, alpha times it elsewhere."""
    return n.gradients * b.where(n.features > 0, n.features.like(1), n.alpha)


class SoftplusGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of log(exp(x) + 1)."""


class SoftsignGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of x / (1 + abs(x))."""


class EluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of x where positive, exp(x) - 1 elsewhere."""


class SeluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of the scaled exponential linear unit."""


class SigmoidGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the logistic function."""


class TanhGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the hyperbolic tangent."""


class SqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the square root."""


class RsqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of one over the square root."""


class ReciprocalGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x."""


class InvGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x, under the name it has in older graphs."""


def _where(condition: Expr, x: Expr | float, y: Expr | float) -> Expr:
    return condition.builder.where(condition, x, y)


def _unless_zero(dy: Expr, z: Expr) -> Expr:
    """Zero wherever dy is, as TensorFlow has it, also beside an infinite slope: a root of 0 that nothing depends on."""
    return _where(dy.equals(dy.builder.zeros_like(dy)), 0, z)


lowers_by(
    {
        # There an infinite gradient elsewhere must not become a NaN.
        ReluGrad: lambda dy, x: _where(x > 0, dy, 0),
        Relu6Grad: lambda dy, x: _where((x > 0) & (x < 6), dy, 0),
        # The logistic function written out: onnxruntime's Sigmoid is exact to an absolute 1e-8 only, which shows where
        # the result is small.
        SoftplusGrad: lambda dy, x: dy / (1 + (-x).exp()),
        SoftsignGrad: lambda dy, x: dy / (scale := 1 + x.abs()) / scale,
        # Where the result is negative it is exp(x) - 1, whose derivative is the result plus 1.
        EluGrad: lambda dy, y: _where(y < 0, dy * (y + 1), dy),
        SeluGrad: lambda dy, y: dy * _where(y < 0, y + SELU_SCALE_ALPHA, SELU_SCALE),
        SigmoidGrad: lambda y, dy: dy * y * (1 - y),
        # Unlike 1 - y y this does not cancel where y is close to 1.
        TanhGrad: lambda y, dy: dy * ((1 - y) * (1 + y)),
        SqrtGrad: lambda y, dy: _unless_zero(dy, dy * 0.5 / y),
        RsqrtGrad: lambda y, dy: _unless_zero(dy, dy * (y * -0.5) * (y * y)),
        ReciprocalGrad: lambda y, dy: _unless_zero(dy, -dy * y * y),
        InvGrad: lambda y, dy: _unless_zero(dy, -dy * y * y),
    }
)


class PreventGradient(RawOp):
    """Its input; in TensorFlow, asking for its gradient raises an error with the message."""


@lowers(PreventGradient)
def prevent_gradient(n: Node, _: Builder) -> Expr:
    """The input."""
    return n.input


class BiasAddGrad(RawOp, T=COMPUTED):
    """Gradient of a bias: the sum over all axes but that of the channels, the last one (NHWC) or axis 1 (NCHW)."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds C, the channels."""
        shape = call.operands["out_backprop"].shape
        if shape is None:
            return
        if len(shape) < 2:
            raise call.error("out_backprop", "rank 2 or more", f"rank {len(shape)}")
        call.unifier.sizes["C"] = shape[-1] if call.attributes["data_format"] == "NHWC" else shape[1]


@lowers(BiasAddGrad)
def bias_add_grad(n: Node, b: Builder) -> Expr:
    """The sum over all axes but that of the channels; with an open rank, over the two axes left when others merge."""
    gradient = n.out_backprop
    if gradient.shape is not None:
        rank = len(gradient.shape)
        channels = 1 if n.data_format == "NCHW" else rank - 1
        return gradient.sum([axis for axis in range(rank) if axis != channels])
    if n.data_format == "NCHW":
        # 0 keeps the batch and the channels.
        return gradient.reshape(0, 0, -1).sum([0, 2])
    sizes = b.sizes([-1, gradient.size(-1)])
    return b.op(std.Reshape, gradient, sizes).sum(0)
