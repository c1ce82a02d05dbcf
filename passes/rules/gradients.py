"""Lowering of the ordinary gradient ops that keep or sum their operand's shape: each one is its formula."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, FLOATS, RawOp
from lstm_lower.passes.formulas.special_functions import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.passes.rules.registry import Node, lowers


class ReluGrad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of max(x, 0)."""


@lowers(ReluGrad)
def relu_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the operand is positive; there an infinite gradient elsewhere must not become a NaN."""
    return b.where(n.features > 0, n.gradients, 0)


class Relu6Grad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of min(max(x, 0), 6)."""


@lowers(Relu6Grad)
def relu6_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the operand lies between 0 and 6."""
    within = (n.features > 0) & (n.features < 6)
    return b.where(within, n.gradients, 0)


class LeakyReluGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of max(x, alpha * x)."""

    rounded = ("alpha",)


@lowers(LeakyReluGrad)
def leaky_relu_grad(n: Node, b: Builder) -> Expr:
    """The gradient where the operand is positive, alpha times it elsewhere."""
    return n.gradients * b.where(n.features > 0, n.features.like(1), n.alpha)


class SoftplusGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of log(exp(x) + 1)."""


@lowers(SoftplusGrad)
def softplus_grad(n: Node, _: Builder) -> Expr:
    """The derivative of softplus is the logistic function.

    Written out: onnxruntime's Sigmoid is exact to an absolute 1e-8 only, which shows where the result is small.
    """
    return n.gradients / (1 + (-n.features).exp())


class SoftsignGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of x / (1 + abs(x))."""


@lowers(SoftsignGrad)
def softsign_grad(n: Node, _: Builder) -> Expr:
    """The gradient over (1 + |x|) squared."""
    scale = 1 + n.features.abs()
    return n.gradients / scale / scale


class EluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of x where positive, exp(x) - 1 elsewhere."""


@lowers(EluGrad)
def elu_grad(n: Node, b: Builder) -> Expr:
    """Where the result is negative it is exp(x) - 1, whose derivative is the result plus 1."""
    return b.where(n.outputs < 0, n.gradients * (n.outputs + 1), n.gradients)


class SeluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of the scaled exponential linear unit."""


@lowers(SeluGrad)
def selu_grad(n: Node, b: Builder) -> Expr:
    """The same, scaled."""
    slope = b.where(n.outputs < 0, n.outputs + SELU_SCALE_ALPHA, SELU_SCALE)
    return n.gradients * slope


class SigmoidGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the logistic function."""


@lowers(SigmoidGrad)
def sigmoid_grad(n: Node, _: Builder) -> Expr:
    """The product dy y (1 - y)."""
    return n.dy * n.y * (1 - n.y)


class TanhGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the hyperbolic tangent."""


@lowers(TanhGrad)
def tanh_grad(n: Node, _: Builder) -> Expr:
    """The product dy (1 - y) (1 + y), which unlike 1 - y y does not cancel where y is close to 1."""
    return n.dy * ((1 - n.y) * (1 + n.y))


class SqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the square root."""


@lowers(SqrtGrad)
def sqrt_grad(n: Node, b: Builder) -> Expr:
    """Half of dy over y."""
    return _unless_zero(n, b, n.dy * 0.5 / n.y)


class RsqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of one over the square root."""


@lowers(RsqrtGrad)
def rsqrt_grad(n: Node, b: Builder) -> Expr:
    """-dy y^3 / 2."""
    return _unless_zero(n, b, n.dy * (n.y * -0.5) * (n.y * n.y))


class ReciprocalGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x."""


class InvGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x, under the name it has in older graphs."""


@lowers(ReciprocalGrad, InvGrad)
def reciprocal_grad(n: Node, b: Builder) -> Expr:
    """-dy y^2."""
    return _unless_zero(n, b, -n.dy * n.y * n.y)


def _unless_zero(n: Node, b: Builder, z: Expr) -> Expr:
    """Zero wherever dy is, as TensorFlow has it, also beside an infinite slope: a root of 0 that nothing depends on."""
    return b.where(n.dy.equals(b.zeros_like(n.dy)), 0, z)


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
