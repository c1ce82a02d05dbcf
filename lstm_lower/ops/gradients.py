"""Definitions of TensorFlow's ordinary gradient ops that keep or sum their operand's shape.

Signatures: TensorFlow's raw ops of the same names. `gradients`, `dy` and `out_backprop` are the incoming gradient;
`y` and `outputs` are results of the forward op, `features` its operand.
"""

from __future__ import annotations

from lstm_lower.dtypes import DTYPES
from lstm_lower.opdef import Call, OpDef, attr, operand

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
ANY = tuple(DTYPES)

# Constants of the scaled exponential linear unit (Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


class Function(OpDef, abstract=True):
    """A function of one operand."""

    class Types:
        T = FLOATS

    class Inputs:
        x = operand("*S")

    class Outputs:
        y = operand("*S")


class Passing(OpDef, abstract=True):
    """What hands its input on."""

    class Types:
        T = ANY

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S")


class _ActivationGradient(OpDef, abstract=True):
    """Gradient of an activation."""

    class Types:
        T = FLOATS

    class Outputs:
        backprops = operand("*S")


class _FeatureGradient(_ActivationGradient, abstract=True):
    """Gradient of an activation from its operand."""

    class Inputs:
        gradients = operand("*S")
        features = operand("*S")


class ReluGrad(_FeatureGradient):
    """Gradient of max(x, 0)."""

    forward = "Relu"


class Relu6Grad(_FeatureGradient):
    """Gradient of min(max(x, 0), 6)."""

    forward = "Relu6"


class LeakyReluGrad(_FeatureGradient):
    """Gradient of max(x, alpha * x)."""

    forward = "LeakyRelu"

    class Attrs:
        alpha = attr(float, 0.2, rounds_to="T")


class SoftplusGrad(_FeatureGradient):
    """Gradient of log(exp(x) + 1)."""

    forward = "Softplus"


class SoftsignGrad(_FeatureGradient):
    """Gradient of x / (1 + abs(x))."""

    forward = "Softsign"


class _OutputGradient(_ActivationGradient, abstract=True):
    """Gradient of an activation from its result."""

    class Inputs:
        gradients = operand("*S")
        outputs = operand("*S")


class EluGrad(_OutputGradient):
    """Gradient of x where positive, exp(x) - 1 elsewhere."""

    forward = "Elu"


class SeluGrad(_OutputGradient):
    """Gradient of the scaled exponential linear unit."""

    forward = "Selu"


class _ResultGradient(OpDef, abstract=True):
    """Gradient of a function from its result, operands the other way round."""

    class Types:
        T = FLOATS

    class Inputs:
        y = operand("*S")
        dy = operand("*S")

    class Outputs:
        z = operand("*S")


class SigmoidGrad(_ResultGradient):
    """Gradient of the logistic function."""

    forward = "Sigmoid"


class TanhGrad(_ResultGradient):
    """Gradient of the hyperbolic tangent."""

    forward = "Tanh"


class SqrtGrad(_ResultGradient):
    """Gradient of the square root."""

    forward = "Sqrt"


class RsqrtGrad(_ResultGradient):
    """Gradient of one over the square root."""

    forward = "Rsqrt"


class ReciprocalGrad(_ResultGradient):
    """Gradient of 1 / x."""

    forward = "Reciprocal"


class InvGrad(_ResultGradient):
    """Gradient of 1 / x, under the name it has in older graphs."""

    forward = "Inv"


class PreventGradient(Passing):
    """Its input; in TensorFlow, asking for its gradient raises an error with the message."""

    class Attrs:
        message = attr(str, "")


class BiasAddGrad(OpDef):
    """Gradient of a bias: the sum over all axes but that of the channels, the last one (NHWC) or axis 1 (NCHW)."""

    class Types:
        T = (*FLOATS, "int32", "int64")

    class Inputs:
        out_backprop = operand(None)

    class Outputs:
        output = operand("C")

    class Attrs:
        data_format = attr(str, "NHWC", choices=("NHWC", "NCHW"))

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds C, the channels."""
        shape = call.operands["out_backprop"].shape
        if shape is None:
            return
        if len(shape) < 2:
            raise call.error("out_backprop", "rank 2 or more", f"rank {len(shape)}")
        call.unifier.sizes["C"] = shape[-1] if call.attributes["data_format"] == "NHWC" else shape[1]
