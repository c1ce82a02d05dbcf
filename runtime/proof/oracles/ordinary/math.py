"""Float64 oracles of the functions of one operand, and of what hands its operand on."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.dtypes import DType, is_complex
from lstm_lower.ops.gradients import SELU_SCALE, SELU_SCALE_ALPHA
from lstm_lower.runtime.proof.oracles.numerics import Array, round_attribute, sigmoid
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, oracles_by, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _lgamma(x: float) -> float:
    """Python's own, which raises an error at the poles."""
    return math.inf if x <= 0 and (math.isinf(x) or x == round(x)) else math.lgamma(x)


def digamma(x: float) -> float:
    """By recurrence up to 40, from where four terms of the asymptotic series are exact; below 0 by reflection."""
    if math.isnan(x) or (x <= 0 and (math.isinf(x) or x == round(x))):
        return math.nan
    if x < 0:
        return digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    if math.isinf(x):
        return x
    steps = 0.0
    while x < 40:
        steps += 1 / x
        x += 1
    return math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6) + 1 / (240 * x**8) - steps


def _ndtri(p: float) -> float:
    """The standard library's, which raises an error at the ends."""
    if p in (0, 1):
        return math.inf if p else -math.inf
    return NormalDist().inv_cdf(p) if 0 < p < 1 else math.nan


def _erfinv(x: float) -> float:
    """The quantile, and a step of Newton's method, which makes small ones exact."""
    y = _ndtri((x + 1) / 2) / math.sqrt(2)
    return y - (math.erf(y) - x) * math.exp(y * y) * math.sqrt(math.pi) / 2 if math.isfinite(y) else y


def _same(x: Values) -> Values:
    return x


oracles_by(
    {
        "Abs": np.abs,
        "Neg": np.negative,
        "Sign": np.sign,
        "Round": np.round,
        "Square": np.square,
        "Invert": np.invert,
        "Sqrt": np.sqrt,
        "Rsqrt": lambda x: 1 / np.sqrt(x),
        "Reciprocal": lambda x: 1 / x,
        "Exp": np.exp,
        "Log": np.log,
        "Sin": np.sin,
        "Cos": np.cos,
        "Tan": np.tan,
        "Asin": np.arcsin,
        "Acos": np.arccos,
        "Atan": np.arctan,
        "Sinh": np.sinh,
        "Cosh": np.cosh,
        "Asinh": np.arcsinh,
        "Acosh": np.arccosh,
        "Atanh": np.arctanh,
        "Sigmoid": sigmoid,
        "Tanh": np.tanh,
        "Erf": np.vectorize(math.erf, otypes=[np.float64]),
        "Erfc": np.vectorize(math.erfc, otypes=[np.float64]),
        "Erfinv": np.vectorize(_erfinv, otypes=[np.float64]),
        "Ndtri": np.vectorize(_ndtri, otypes=[np.float64]),
        "Lgamma": np.vectorize(_lgamma, otypes=[np.float64]),
        "Digamma": np.vectorize(digamma, otypes=[np.float64]),
        "Floor": np.floor,
        "Ceil": np.ceil,
        "Rint": np.rint,
        "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
        "Relu6": lambda x: np.clip(x, 0, 6).astype(x.dtype),
        "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
        "Selu": lambda x: np.where(x < 0, SELU_SCALE_ALPHA * np.expm1(x), SELU_SCALE * x),
        "Softplus": lambda x: np.logaddexp(0, x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "DeepCopy": _same,
        "Identity": _same,
        "RefIdentity": _same,
        "StopGradient": _same,
    }
)


@oracle("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3")
def handed_on(*, input: npt.ArrayLike, **notes: Any) -> dict[str, Values]:
    """The input."""
    return {"output": wide(input)}


@oracle("CheckNumerics", "CheckNumericsV2")
def check_numerics(*, tensor: npt.ArrayLike, message: str) -> dict[str, Values]:
    """The input."""
    return {"output": wide(tensor)}


@oracle("IdentityN")
def identity_n(*, input: list[npt.ArrayLike]) -> dict[str, Any]:
    """The inputs."""
    return {"output": [wide(part) for part in input]}


@oracle("LeakyRelu")
def leaky_relu(*, features: npt.ArrayLike, alpha: float = 0.2) -> dict[str, Array]:
    """The operand where positive, alpha times it elsewhere."""
    slope, x = round_attribute(alpha, features), wide(features)
    return {"activations": np.where(x > 0, x, x * slope)}


@oracle("Cast")
def cast(*, x: npt.ArrayLike, DstT: int, Truncate: bool = False) -> dict[str, Values]:
    """The numbers in another dtype; float64 stands for every floating-point one. Real ones have no imaginary part."""
    target = DType(DstT)
    with np.errstate(invalid="ignore"):
        if not is_complex(target):
            x = np.real(x)
        return {
            "y": np.asarray(x).astype(
                np.complex128 if is_complex(target) else np.float64 if target.is_floating_point() else target.numpy()
            )
        }
