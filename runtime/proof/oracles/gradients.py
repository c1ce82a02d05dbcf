"""Float64 oracles of the ordinary gradient ops that keep or sum their operand's shape.

Each takes TensorFlow's argument names, computes in float64, and returns the outputs under TensorFlow's names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.passes.formulas.elementary import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.runtime.proof.oracles.numerics import Array, float64, round_attribute, sigmoid
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("ReluGrad")
def relu_grad(*, gradients: npt.ArrayLike, features: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` where `features` is positive."""
    return {"backprops": float64(gradients) * (float64(features) > 0)}


@oracle("Relu6Grad")
def relu6_grad(*, gradients: npt.ArrayLike, features: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` where `features` lies between 0 and 6."""
    features = float64(features)
    return {"backprops": float64(gradients) * ((features > 0) & (features < 6))}


@oracle("LeakyReluGrad")
def leaky_relu_grad(*, gradients: npt.ArrayLike, features: npt.ArrayLike, alpha: float = 0.2) -> dict[str, Array]:
    """`gradients` where `features` is positive, alpha times it elsewhere."""
    slope = np.where(float64(features) > 0, 1.0, round_attribute(alpha, features))
    return {"backprops": float64(gradients) * slope}


@oracle("SoftplusGrad")
def softplus_grad(*, gradients: npt.ArrayLike, features: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` times the logistic function of `features`."""
    return {"backprops": float64(gradients) * sigmoid(float64(features))}


@oracle("SoftsignGrad")
def softsign_grad(*, gradients: npt.ArrayLike, features: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` over (1 + |features|) squared."""
    return {"backprops": float64(gradients) / (1 + np.abs(float64(features))) ** 2}


@oracle("EluGrad")
def elu_grad(*, gradients: npt.ArrayLike, outputs: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` times exp(x), which is outputs + 1, where `outputs` is negative."""
    gradients, outputs = float64(gradients), float64(outputs)
    return {"backprops": np.where(outputs < 0, gradients * (outputs + 1), gradients)}


@oracle("SeluGrad")
def selu_grad(*, gradients: npt.ArrayLike, outputs: npt.ArrayLike) -> dict[str, Array]:
    """`gradients` times the scale, or times outputs + scale * alpha where `outputs` is negative."""
    gradients, outputs = float64(gradients), float64(outputs)
    return {"backprops": gradients * np.where(outputs < 0, outputs + SELU_SCALE_ALPHA, SELU_SCALE)}


@oracle("SigmoidGrad")
def sigmoid_grad(*, y: npt.ArrayLike, dy: npt.ArrayLike) -> dict[str, Array]:
    """The product dy y (1 - y)."""
    y = float64(y)
    return {"z": float64(dy) * y * (1 - y)}


@oracle("TanhGrad")
def tanh_grad(*, y: npt.ArrayLike, dy: npt.ArrayLike) -> dict[str, Array]:
    """The product dy (1 - y y)."""
    y = float64(y)
    return {"z": float64(dy) * (1 - y) * (1 + y)}


@oracle("SqrtGrad")
def sqrt_grad(*, y: npt.ArrayLike, dy: npt.ArrayLike) -> dict[str, Array]:
    """Half of dy over y."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"z": np.where(float64(dy) == 0, 0, 0.5 * float64(dy) / float64(y))}


@oracle("RsqrtGrad")
def rsqrt_grad(*, y: npt.ArrayLike, dy: npt.ArrayLike) -> dict[str, Array]:
    """-dy y^3 / 2."""
    with np.errstate(invalid="ignore"):
        return {"z": np.where(float64(dy) == 0, 0, -0.5 * float64(dy) * float64(y) ** 3)}


@oracle("ReciprocalGrad", "InvGrad")
def reciprocal_grad(*, y: npt.ArrayLike, dy: npt.ArrayLike) -> dict[str, Array]:
    """-dy y^2."""
    with np.errstate(invalid="ignore"):
        return {"z": np.where(float64(dy) == 0, 0, -float64(dy) * float64(y) ** 2)}


@oracle("PreventGradient")
def prevent_gradient(*, input: npt.ArrayLike, message: str = "") -> dict[str, npt.NDArray[Any]]:
    """The input."""
    return {"output": np.asarray(input)}


@oracle("BiasAddGrad")
def bias_add_grad(*, out_backprop: npt.ArrayLike, data_format: str = "NHWC") -> dict[str, Array]:
    """The sum over all axes but that of the channels."""
    gradient = float64(out_backprop)
    channels = 1 if data_format == "NCHW" else gradient.ndim - 1
    return {"output": gradient.sum(axis=tuple(axis for axis in range(gradient.ndim) if axis != channels))}
