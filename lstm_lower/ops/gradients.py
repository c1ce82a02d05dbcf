"""Definitions of TensorFlow's ordinary gradient ops that keep or sum their operand's shape.

Signatures: TensorFlow's raw ops of the same names. `gradients`, `dy` and `out_backprop` are the incoming gradient;
`y` and `outputs` are results of the forward op, `features` its operand.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, FLOATS, RawOp

# Constants of the scaled exponential linear unit (Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


class ReluGrad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of max(x, 0)."""

    forward = "Relu"


class Relu6Grad(RawOp, gradients="*S", features="*S", T=FLOATS):
    """Gradient of min(max(x, 0), 6)."""

    forward = "Relu6"


class LeakyReluGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of max(x, alpha * x)."""

    forward = "LeakyRelu"
    rounded = ("alpha",)


class SoftplusGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of log(exp(x) + 1)."""

    forward = "Softplus"


class SoftsignGrad(RawOp, gradients="*S", features="*S"):
    """Gradient of x / (1 + abs(x))."""

    forward = "Softsign"


class EluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of x where positive, exp(x) - 1 elsewhere."""

    forward = "Elu"


class SeluGrad(RawOp, gradients="*S", outputs="*S"):
    """Gradient of the scaled exponential linear unit."""

    forward = "Selu"


class SigmoidGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the logistic function."""

    forward = "Sigmoid"


class TanhGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the hyperbolic tangent."""

    forward = "Tanh"


class SqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of the square root."""

    forward = "Sqrt"


class RsqrtGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of one over the square root."""

    forward = "Rsqrt"


class ReciprocalGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x."""

    forward = "Reciprocal"


class InvGrad(RawOp, y="*S", dy="*S", T=FLOATS):
    """Gradient of 1 / x, under the name it has in older graphs."""

    forward = "Inv"


class PreventGradient(RawOp):
    """Its input; in TensorFlow, asking for its gradient raises an error with the message."""


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
