"""Losses as formulas on expressions, under PyTorch's names and with PyTorch's options.

    CrossEntropy(label_smoothing=0.1)
    resolve("cross_entropy")

`hinge` is PyTorch's `hinge_embedding_loss`, whose targets are 1 and -1 and have the prediction's shape; the hinge loss
of class numbers is `multi_margin`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Container, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules import ctc

__all__ = [
    "BCE",
    "CTC",
    "L1",
    "MSE",
    "NLL",
    "BCEWithLogits",
    "CrossEntropy",
    "HingeEmbedding",
    "Huber",
    "KLDiv",
    "Loss",
    "MultiMargin",
    "PoissonNLL",
    "Reduction",
    "SmoothL1",
    "Target",
    "resolve",
]


# What a loss is, and how its elements are reduced.


Reduction = Literal["mean", "sum", "none"]
Array = np.ndarray[Any, Any]
INT64 = ir.DataType.INT64


def target_names(count: int, taken: Container[str] = ()) -> list[str]:
    """The names of a step's targets.

    Args:
        count: how many there are.
        taken: inputs of the model.

    Raises:
        InvalidInputError: an input has such a name.
    """
    names = ["target"] if count == 1 else [f"target_{number}" for number in range(count)]
    if doubled := [name for name in names if name in taken]:
        raise InvalidInputError(
            f"targets require a model without an input '{doubled[0]}', got one; give that input another name, which in "
            "PyTorch is that of an argument of forward"
        )
    return names


class Target(NamedTuple):
    """What a loss compares a prediction with.

    Attributes:
        dtype: of its elements.
        shape: sizes, names or identities of open dimensions.
    """

    dtype: ir.DataType
    shape: tuple[Dim | None, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Loss(abc.ABC):
    """A scalar, or with reduction `none` one value per element, that is to be made small.

    Attributes:
        reduction: `mean`, `sum` or `none`.
    """

    reduction: str = dataclasses.field(default="mean", kw_only=True)
    # How many targets it takes.
    count: ClassVar[int] = 1
    # What it computes of scores itself: of a prediction that is made so, it would compute it twice.
    of_scores: ClassVar[type[std.Standard] | None] = None

    def __post_init__(self) -> None:
        check_option(type(self).__name__, "reduction", self.reduction, get_args(Reduction))

    def targets(self, prediction: Expr) -> list[Target]:
        """The targets for a prediction: one of its dtype and shape, unless a loss says otherwise."""
        return [Target(prediction.dtype, shape_of(prediction))]

    def __call__(self, prediction: Expr, *targets: Expr) -> Expr:
        """The loss, in float32 at least."""
        wide = ir.DataType.DOUBLE if prediction.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
        targets = tuple(target.cast(wide) if target.dtype.is_floating_point() else target for target in targets)
        return self.value(prediction.cast(wide), *targets)

    @abc.abstractmethod
    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        """The loss, of float32 or float64 operands."""

    def reduced(self, each: Expr, weights: Expr | None = None) -> Expr:
        """Reduces elements, which are multiplied by their weights already, where there are any."""
        b = each.builder
        if self.reduction == "none":
            return each
        if self.reduction == "sum":
            return b.op(std.ReduceSum, each, keepdims=0)
        if weights is None:
            return b.op(std.ReduceMean, each, keepdims=0)
        return b.op(std.ReduceSum, each, keepdims=0) / b.op(std.ReduceSum, weights, keepdims=0)


def shape_of(prediction: Expr) -> tuple[Dim | None, ...]:
    """A prediction's shape.

    Raises:
        InvalidInputError: its rank is not known.
    """
    if prediction.shape is None:
        raise InvalidInputError(
            f"a loss requires a known rank, got none of '{prediction.value.name}'; declare a shape for it, whose sizes "
            "may be open"
        )
    return tuple(prediction.shape)


def check_option(loss: str, name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuses a value that is none of those allowed."""
    if value not in allowed:
        raise InvalidInputError(f"{loss}: {name} requires one of {list(allowed)}, got {value!r}")


def check_number(loss: str, name: str, value: Any, lowest: float = -math.inf, highest: float = math.inf) -> None:
    """Refuses what is no finite number between two bounds."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not lowest <= value <= highest:
        raise InvalidInputError(f"{loss}: {name} requires a number of {lowest} to {highest}, got {value!r}")


def weights_of(loss: str, name: str, value: Any) -> Array | Expr | None:
    """An option's numbers; `None` stays, and so does an expression.

    Raises:
        InvalidInputError: it holds anything but numbers.
    """
    if value is None:
        return None
    if isinstance(value, Expr):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{loss}: {name} requires numbers, got {value!r}")
    return array


def weighted(each: Expr, weight: Array | Expr | None) -> Expr:
    """Elements times broadcast weights."""
    return each if weight is None else each * _in_dtype_of(weight, each)


def _in_dtype_of(weight: Array | Expr, other: Expr) -> Expr:
    return weight.cast(other.dtype) if isinstance(weight, Expr) else other.builder.constant(weight, other.dtype)


# Losses of class numbers, or of probabilities of classes.
# Predictions are [N, C, d1, ...], or [C] for a single one; class numbers [N, d1, ...].


@dataclasses.dataclass(frozen=True, eq=False)
class _OfClasses(Loss):
    """A loss with an axis of classes.

    Attributes:
        weight: a factor per class; a mean is divided by the factors' sum.
    """

    weight: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        array = weights_of(type(self).__name__, "weight", self.weight)
        if isinstance(array, np.ndarray) and array.ndim != 1:
            raise InvalidInputError(
                f"{type(self).__name__}: weight requires a number per class, got shape {list(array.shape)}"
            )

    def targets(self, prediction: Expr) -> list[Target]:
        shape = shape_of(prediction)
        axis = _class_axis(prediction)
        return [Target(INT64, (*shape[:axis], *shape[axis + 1 :]))]

    def class_weights(self, prediction: Expr) -> Expr | None:
        """The factors in the prediction's dtype.

        Raises:
            InvalidInputError: there are more or fewer than classes.
        """
        array = weights_of(type(self).__name__, "weight", self.weight)
        if array is None:
            return None
        classes = prediction.size(_class_axis(prediction))
        if isinstance(array, np.ndarray) and isinstance(classes, int) and classes != array.size:
            raise InvalidInputError(
                f"{type(self).__name__}: weight requires one number for each of {classes} classes, got {array.size}"
            )
        return _in_dtype_of(array, prediction)


def _class_axis(prediction: Expr) -> int:
    rank = len(shape_of(prediction))
    if rank == 0:
        raise InvalidInputError("a loss of classes requires a prediction with an axis of classes, got a scalar")
    return 0 if rank == 1 else 1


@dataclasses.dataclass(frozen=True, eq=False)
class NLL(_OfClasses):
    """Minus the predicted logarithm of the target class's probability.

    Attributes:
        ignore_index: a class number that does not count.
    """

    ignore_index: int = -100

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        return self.of_numbers(prediction, targets[0], 0.0)

    def of_numbers(self, scores: Expr, numbers: Expr, smoothing: float) -> Expr:
        """The loss of class numbers, a share of which counts for all classes alike.

        Args:
            scores: logarithms of probabilities.
            numbers: classes.
            smoothing: the share.

        Raises:
            InvalidInputError: targets are no integers.
        """
        b, axis = scores.builder, _class_axis(scores)
        if not numbers.dtype.is_integer():
            raise InvalidInputError(f"{type(self).__name__} requires class numbers as target, got {numbers.dtype}")
        # With an axis of size 1 to the end, which spares gradients to put it back.
        numbers = numbers.cast(INT64).unsqueeze(axis)
        ignored = numbers.equals(self.ignore_index)
        # Any class that there is stands for those that do not count.
        numbers = from_front(b.where(ignored, 0, numbers))
        # Minus the loss: of a mean, it is the divisor that has the sign, which the gradient then takes from there.
        each = b.op(std.GatherElements, scores, numbers, axis=axis)
        weight = self.class_weights(scores)
        factors = b.where(ignored, scores.like(0), -1.0)
        if weight is not None:
            weights = weight.take(numbers)
            factors = factors * weights
            each = each * weights
        if smoothing:
            shares = scores if weight is None else scores * _along(weight, scores, axis)
            classes = b.sizes([scores.size(axis)]).reshape().cast(scores.dtype)
            each = each * (1 - smoothing) + shares.sum(axis, keepdims=True) * (smoothing / classes)
        each = b.where(ignored, 0.0, each)
        if self.reduction == "mean":
            return self.reduced(each, factors)
        return -self.reduced(each if self.reduction == "sum" else each.squeeze(axis))


def _along(weight: Expr, like: Expr, axis: int) -> Expr:
    """A vector that lies along an axis."""
    return weight.reshape(-1, *[1] * (len(shape_of(like)) - axis - 1))


@dataclasses.dataclass(frozen=True, eq=False)
class CrossEntropy(NLL):
    """`NLL` of the logarithm of softmax, of class numbers or of probabilities of classes.

    Attributes:
        label_smoothing: the share of each target that counts for all classes alike.
        target: what targets are, `indices` or `probabilities`; where they are given, their dtype tells.
    """

    label_smoothing: float = 0.0
    target: Literal["indices", "probabilities"] = "indices"
    of_scores: ClassVar[type[std.Standard] | None] = std.Softmax

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("CrossEntropy", "label_smoothing", self.label_smoothing, 0, 1)
        check_option("CrossEntropy", "target", self.target, ("indices", "probabilities"))

    def targets(self, prediction: Expr) -> list[Target]:
        if self.target == "indices":
            return super().targets(prediction)
        return [Target(prediction.dtype, shape_of(prediction))]

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        b, axis, target = prediction.builder, _class_axis(prediction), targets[0]
        scores = b.op(std.LogSoftmax, prediction, axis=axis)
        if not target.dtype.is_floating_point():
            return self.of_numbers(scores, target, self.label_smoothing)
        if self.label_smoothing:
            classes = b.sizes([scores.size(axis)]).reshape().cast(scores.dtype)
            target = target * (1 - self.label_smoothing) + self.label_smoothing / classes
        weight = self.class_weights(scores)
        each = scores * target
        if weight is not None:
            each = each * _along(weight, scores, axis)
        return self.reduced(-each.sum(axis))


@dataclasses.dataclass(frozen=True, eq=False)
class MultiMargin(_OfClasses):
    """The hinge loss of class numbers: the sum over other classes j of max(0, margin - x_y + x_j)^p, divided by C.

    Attributes:
        p: 1 or 2.
        margin: by which the target's score shall exceed others.
    """

    p: int = 1
    margin: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("MultiMargin", "p", self.p, (1, 2))
        check_number("MultiMargin", "margin", self.margin)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        b, axis = prediction.builder, _class_axis(prediction)
        if len(shape_of(prediction)) > 2:
            raise InvalidInputError(
                f"MultiMargin requires predictions [N, C] or [C], got rank {len(shape_of(prediction))}"
            )
        number = from_front(targets[0].cast(INT64)).unsqueeze(axis)
        excess = self.margin - b.op(std.GatherElements, prediction, number, axis=axis) + prediction
        # At the margin itself the slope is 0, as in PyTorch.
        excess = b.where(excess > 0, excess, 0.0)
        each = excess * excess if self.p == 2 else excess
        weight = self.class_weights(prediction)
        if weight is not None:
            each = each * weight.take(number)
        classes = b.sizes([prediction.size(axis)]).reshape()
        own = number.equals(up_to(b, classes))
        return self.reduced(b.where(own, 0.0, each).sum(axis) / classes.cast(prediction.dtype))


# Connectionist temporal classification, with PyTorch's operands.


@dataclasses.dataclass(frozen=True, eq=False)
class CTC(Loss):
    """Minus the logarithm of the probability of labels, of logarithms of probabilities [T, N, C] (or [T, C]).

    Targets are labels, padded [N, S] or one behind the other [sum of S], then the numbers of steps and of labels of
    each sequence. A mean is one over sequences, each divided by its number of labels.

    Attributes:
        blank: class of the blank.
        zero_infinity: whether the loss of labels for which there are too few steps is zero.

    Source: Graves et al., Connectionist Temporal Classification, 2006.
    """

    count: ClassVar[int] = 3
    blank: int = 0
    zero_infinity: bool = False

    def targets(self, prediction: Expr) -> list[Target]:
        shape = shape_of(prediction)
        if len(shape) not in (2, 3):
            raise InvalidInputError(f"CTC requires predictions [T, N, C] or [T, C], got rank {len(shape)}")
        batch = shape[1:-1]
        return [Target(INT64, (*batch, "S")), Target(INT64, batch), Target(INT64, batch)]

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        b, alone = prediction.builder, len(shape_of(prediction)) == 2
        labels, steps, counts = (target.cast(INT64) for target in targets)
        if alone:
            prediction, labels = prediction.unsqueeze(1), labels.unsqueeze(0)
        steps = ctc.up_to_end(steps.reshape(-1, 1), prediction.size(0))
        counts = ctc.up_to_end(counts.reshape(-1, 1), labels.size(-1))
        if len(shape_of(labels)) == 1:
            labels = _padded(labels, counts)
        width = b.sizes([labels.size(1)]).reshape()
        inside = up_to(b, width).unsqueeze(0) < counts
        # Padding may be no class at all.
        labels = b.where(inside, labels, self.blank)
        paths = ctc.paths_of(labels, counts, b.constant(self.blank, INT64), prediction.dtype)
        emissions = ctc.emissions_of(prediction, paths)
        length = b.sizes([prediction.size(0)]).reshape()
        numbers = up_to(b, length).unsqueeze(1, 2)
        total, _ = ctc.total_of(paths, *ctc.forward(paths, emissions, numbers < steps.unsqueeze(0)))
        possible = total > ctc.LOG_ZERO / 2
        infinite = prediction.like(float("inf"))
        # A factor, so that gradients are no numbers either, as PyTorch's.
        each = b.where(possible, -total, 0.0) if self.zero_infinity else -total * b.where(possible, 1.0, infinite)
        if self.reduction == "mean":
            each = each / counts.maximum(1).cast(each.dtype)
        return self.reduced(each.squeeze(*((0, 1) if alone else (1,))))


def _padded(labels: Expr, counts: Expr) -> Expr:
    """Labels one behind the other as rows [N, S], whatever stands behind a row's end."""
    b = labels.builder
    starts = b.op(std.CumSum, counts, b.constant(0, INT64), exclusive=1)
    longest = b.op(std.ReduceMax, counts, keepdims=0).maximum(1)
    places = starts + up_to(b, longest).unsqueeze(0)
    last = b.sizes([labels.size(0)]) - 1
    return labels.take(places.minimum(last))


# Losses that compare a prediction with a target element by element.


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
    of_scores: ClassVar[type[std.Standard] | None] = std.Sigmoid

    def __post_init__(self) -> None:
        super().__post_init__()
        weights_of("BCEWithLogits", "weight", self.weight)
        weights_of("BCEWithLogits", "pos_weight", self.pos_weight)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        x, y = prediction, targets[0]
        rest = softplus(-x)
        positive = weights_of("BCEWithLogits", "pos_weight", self.pos_weight)
        if positive is not None:
            rest = (weighted(y, positive - 1) + 1.0) * rest
        each = (1.0 - y) * x + rest
        return self.reduced(weighted(each, weights_of("BCEWithLogits", "weight", self.weight)))


def softplus(x: Expr) -> Expr:
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


BY_NAME: dict[str, type[Loss]] = {
    "bce": BCE,
    "bce_with_logits": BCEWithLogits,
    "cross_entropy": CrossEntropy,
    "ctc": CTC,
    "hinge": HingeEmbedding,
    "hinge_embedding": HingeEmbedding,
    "huber": Huber,
    "kl_div": KLDiv,
    "l1": L1,
    "mse": MSE,
    "multi_margin": MultiMargin,
    "nll": NLL,
    "poisson_nll": PoissonNLL,
    "smooth_l1": SmoothL1,
}


def resolve(loss: Loss | str) -> Loss:
    """A loss by name, with PyTorch's defaults; an object as it is.

    Raises:
        InvalidInputError: the name is not known.
    """
    if isinstance(loss, Loss):
        return loss
    if str(loss).lower() not in BY_NAME:
        raise InvalidInputError(f"loss requires one of {sorted(BY_NAME)} or a Loss, got {loss!r}")
    return BY_NAME[loss.lower()]()
