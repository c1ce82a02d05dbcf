"""Definitions of onnxruntime-training's ops that treat every element, or every row, alike.

Signatures: the operator schemas of onnxruntime-training 1.19. `dY` is the incoming gradient; where an op takes `Y` it
is the forward op's result, where it takes `X` its operand.
"""

from __future__ import annotations

from lstm_lower.opdef import OpDef, attr, operand
from lstm_lower.ops.raw import FLOATS

# The domain of everything that is onnxruntime's own.
MICROSOFT = "com.microsoft"


class MicrosoftOp(OpDef, abstract=True):
    """An op of onnxruntime's own, of which every build has the kernel."""

    domain = MICROSOFT
    stock = True

    class Types:
        T = FLOATS


class TrainingOp(MicrosoftOp, abstract=True):
    """An op of onnxruntime-training."""

    stock = False


class _OfResult(TrainingOp, abstract=True):
    """A gradient from the forward op's result."""

    class Inputs:
        dY = operand("*S")
        Y = operand("*S")

    class Outputs:
        dX = operand("*S")


class ReluGrad(_OfResult):
    """Gradient of max(x, 0) from its result."""


class SigmoidGrad(_OfResult):
    """Gradient of the logistic function from its result."""


class TanhGrad(_OfResult):
    """Gradient of the hyperbolic tangent from its result."""


class LeakyReluGrad(_OfResult):
    """Gradient of max(x, alpha * x), alpha of 0 to 1, from its result."""

    class Attrs:
        alpha = attr(float, 0.01)


class _Softmax(_OfResult, abstract=True):
    """A gradient along one axis."""

    class Attrs:
        axis = attr(int, -1)


class SoftmaxGrad_13(_Softmax):  # noqa: N801 (onnxruntime's name)
    """Gradient of softmax along an axis, from its result."""


class LogSoftmaxGrad_13(_Softmax):  # noqa: N801
    """Gradient of the logarithm of softmax along an axis, from its result."""


class SoftmaxGrad(_Softmax):
    """Gradient of softmax over an axis and all behind it taken together, from its result."""

    class Attrs:
        axis = attr(int, 1)


class LogSoftmaxGrad(_Softmax):
    """Gradient of the logarithm of softmax over an axis and all behind it taken together, from its result."""

    class Attrs:
        axis = attr(int, 1)


class _Function(MicrosoftOp, abstract=True):
    """An activation."""

    class Inputs:
        X = operand("*S")

    class Outputs:
        Y = operand("*S")


class _OfOperand(TrainingOp, abstract=True):
    """A gradient from the forward op's operand."""

    class Inputs:
        dY = operand("*S")
        X = operand("*S")

    class Outputs:
        dX = operand("*S")


class Gelu(_Function):
    """x times the normal distribution function of x."""


class GeluGrad(_OfOperand):
    """Gradient of Gelu."""


class BiasGelu(_Function):
    """Gelu of a sum with a bias for the last axis."""

    class Inputs:
        X = operand("*S H")
        B = operand("H")

    class Outputs:
        Y = operand("*S H")


class _OfBiased(TrainingOp, abstract=True):
    """A gradient from the forward op's operand and bias."""

    class Inputs:
        dY = operand("*S H")
        X = operand("*S H")
        B = operand("H")

    class Outputs:
        dX = operand("*S H")


class BiasGeluGrad_dX(_OfBiased):  # noqa: N801
    """Gradient of BiasGelu; that of the bias is its sum over all axes but the last."""


class FastGelu(_Function):
    """Gelu approximated by tanh, of a sum with a bias for the last axis."""

    class Inputs:
        X = operand("*S H")
        B = operand("H", optional=True)

    class Outputs:
        Y = operand("*S H")


class FastGeluGrad(_OfOperand):
    """Gradient of FastGelu without a bias."""


class BiasFastGeluGrad_dX(_OfBiased):  # noqa: N801
    """Gradient of FastGelu with a bias; that of the bias is its sum over all axes but the last."""


class QuickGelu(_Function):
    """x times the logistic function of alpha * x."""

    class Attrs:
        alpha = attr(float, 1.702)


class QuickGeluGrad(_OfOperand):
    """Gradient of QuickGelu."""

    class Attrs:
        alpha = attr(float, 1.702)


class DivGrad(TrainingOp):
    """Gradients of A / B, whose shapes broadcast."""

    class Inputs:
        dY = operand(None)
        A = operand("*A")
        B = operand("*B")

    class Outputs:
        dA = operand("*A")
        dB = operand("*B")


class Scale(TrainingOp):
    """The operand times a number, or divided by it."""

    class Types:
        T = FLOATS
        ScaleT = (*FLOATS, "int32", "int64")

    class Inputs:
        input = operand("*S")
        scale = operand(None, "ScaleT")

    class Outputs:
        output = operand("*S")

    class Attrs:
        scale_down = attr(int, 0, choices=(0, 1))


class ScaledSum(TrainingOp):
    """A weighted sum of two or three operands."""

    class Inputs:
        input_0 = operand("*S")
        input_1 = operand("*S")
        input_2 = operand("*S", optional=True)

    class Outputs:
        output = operand("*S")

    class Attrs:
        scale_0 = attr(float)
        scale_1 = attr(float)
        scale_2 = attr(float, 0.0)


class BatchScale(TrainingOp):
    """Gradients of ScaledSum: the operand times each of two or three numbers."""

    class Inputs:
        input = operand("*S")

    class Outputs:
        output_0 = operand("*S")
        output_1 = operand("*S")
        output_2 = operand("*S")

    class Attrs:
        scale_0 = attr(float)
        scale_1 = attr(float)
        scale_2 = attr(float, 0.0)


class DropoutGrad(TrainingOp):
    """Gradient of dropout: what was kept, over the part that was; all of it outside of training."""

    class Types:
        T = FLOATS
        T1 = FLOATS

    class Inputs:
        dY = operand("*S")
        mask = operand("*S", "bool")
        ratio = operand(None, "T1", optional=True)
        training_mode = operand(None, "bool", optional=True)

    class Outputs:
        dX = operand("*S")

    class Attrs:
        seed = attr(int, 0)


class ZeroGradient(TrainingOp):
    """Zeros, whatever the signal."""

    class Types:
        T = FLOATS
        Signal = (*FLOATS, "bool", "int32", "int64")

    class Inputs:
        old_gradient = operand("*S")
        reset_signal = operand(None, "Signal")

    class Outputs:
        zero_gradient = operand("*S")
