"""Losses that compare a prediction with a target element by element."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.training.losses.base import Loss, check_number, check_option, weighted, weights_of

# The least value that PyTorch gives to the logarithm in `BCE`.
LOG_OF_ZERO = -100.0
# The least value that it gives to the divisor x (1 - x) of the slope.
SMALLEST = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class MSE(Loss):
    """The squared difference."""

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        difference = prediction - targets[0]
        return self.reduced(difference * difference)


@dataclasses.dataclass(frozen=True, eq=False)
class L1(Loss):
    """The absolute difference."""

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        return self.reduced((prediction - targets[0]).abs())


@dataclasses.dataclass(frozen=True, eq=False)
class SmoothL1(Loss):
    """Squared below `beta`, absolute above: d^2 / (2 beta), |d| - beta / 2.

    Attributes:
        beta: where one becomes the other; 0 is `L1`.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("SmoothL1", "beta", self.beta, 0)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        difference = prediction - targets[0]
        size = difference.abs()
        if self.beta == 0:
            return self.reduced(size)
        square = difference * difference * (0.5 / self.beta)
        return self.reduced(size.builder.where(size < self.beta, square, size - 0.5 * self.beta))


@dataclasses.dataclass(frozen=True, eq=False)
class Huber(Loss):
    """Squared up to `delta`, absolute above: d^2 / 2, delta (|d| - delta / 2).

    Attributes:
        delta: where one becomes the other.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("Huber", "delta", self.delta, 0)
        if self.delta == 0:
            raise InvalidInputError("Huber: delta requires a number above 0, got 0")

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        difference = prediction - targets[0]
        size = difference.abs()
        line = (size - 0.5 * self.delta) * self.delta
        return self.reduced(size.builder.where(size > self.delta, line, difference * difference * 0.5))


@dataclasses.dataclass(frozen=True, eq=False)
class BCE(Loss):
    """The cross entropy of two classes, of probabilities; a logarithm is -100 at least, as in PyTorch.

    Attributes:
        weight: factors that are broadcast to the elements.
    """

    weight: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        weights_of("BCE", "weight", self.weight)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        b = x.builder
        inner = x * (1.0 - x) > SMALLEST
        # A sigmoid rounds to 0 and 1, where logarithms have infinite slopes, which would be multiplied by zero.
        p, edge = b.where(inner, x, 0.5), detached(x)
        bounded = -(y * _bounded_log(edge) + (1.0 - y) * _bounded_log(1.0 - edge))
        each = b.where(
            inner,
            -(y * p.log() + (1.0 - y) * (1.0 - p).log()),
            bounded + (x - edge) * ((edge - detached(y)) / SMALLEST),
        )
        return self.reduced(weighted(each, weights_of("BCE", "weight", self.weight)))


def _bounded_log(x: Expr) -> Expr:
    return x.log().maximum(LOG_OF_ZERO)


@dataclasses.dataclass(frozen=True, eq=False)
class BCEWithLogits(Loss):
    """The cross entropy of two classes, of logits: (1-y) x + (1 + (p-1) y) softplus(-x).

    Attributes:
        weight: factors that are broadcast to the elements.
        pos_weight: p, factors of the positive class, broadcast too.
    """

    weight: Any = None
    pos_weight: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        weights_of("BCEWithLogits", "weight", self.weight)
        weights_of("BCEWithLogits", "pos_weight", self.pos_weight)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        rest = _softplus(-x)
        positive = weights_of("BCEWithLogits", "pos_weight", self.pos_weight)
        if positive is not None:
            rest = (weighted(y, positive - 1) + 1.0) * rest
        each = (1.0 - y) * x + rest
        return self.reduced(weighted(each, weights_of("BCEWithLogits", "weight", self.weight)))


def _softplus(x: Expr) -> Expr:
    """log(1 + exp x); a formula in float64, for which onnxruntime has no kernel.

    Its derivatives of all orders are right, at zero too: those of `log1p_of`, by which TensorFlow's op is computed,
    lose digits.
    """
    b = x.builder
    if x.dtype != ir.DataType.DOUBLE:
        return b.op(std.Softplus, x)
    most = detached(x.maximum(0.0))
    return most + ((x - most).exp() + (-most).exp()).log()


@dataclasses.dataclass(frozen=True, eq=False)
class KLDiv(Loss):
    """The divergence of a distribution from the target: y (log y - x), of the logarithm x of a prediction.

    Attributes:
        reduction: also `batchmean`, the sum divided by the first dimension; `mean` divides by all elements.
        log_target: whether targets are logarithms too.
    """

    log_target: bool = False

    def __post_init__(self) -> None:
        check_option("KLDiv", "reduction", self.reduction, ("mean", "batchmean", "sum", "none"))

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        b = x.builder
        logarithm = y if self.log_target else b.where(y > 0, y, 1.0).log()
        each = (y.exp() if self.log_target else y) * (logarithm - x)
        if self.reduction != "batchmean":
            return self.reduced(each)
        rows = b.sizes([x.size(0)]).reshape().cast(x.dtype)
        return b.op(std.ReduceSum, each, keepdims=0) / rows


@dataclasses.dataclass(frozen=True, eq=False)
class PoissonNLL(Loss):
    """The negative logarithm of a Poisson distribution's density: exp(x) - y x, or x - y log(x + eps).

    Attributes:
        log_input: whether predictions are logarithms of the rate.
        full: adds what depends on targets alone, in Stirling's form, for targets above 1.
        eps: keeps the logarithm defined.
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("PoissonNLL", "eps", self.eps, 0)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        b = x.builder
        each = x.exp() - y * x if self.log_input else x - y * (x + self.eps).log()
        if self.full:
            above = b.where(y > 1, y, 1.0)
            stirling = above * above.log() - above + 0.5 * (above * (2 * math.pi)).log()
            each = each + b.where(y > 1, stirling, 0.0)
        return self.reduced(each)


@dataclasses.dataclass(frozen=True, eq=False)
class HingeEmbedding(Loss):
    """The prediction itself where the target is 1, max(0, margin - x) where it is -1; both where it is neither.

    Attributes:
        margin: what a prediction of target -1 shall exceed.
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("HingeEmbedding", "margin", self.margin)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        b = x.builder
        below = self.margin - x
        # At the margin itself the slope is -1, as in PyTorch.
        apart = b.where(below < 0, 0.0, below)
        near = b.where(y.equals(-1), 0.0, x)
        return self.reduced(near + b.where(y.equals(1), 0.0, apart))
