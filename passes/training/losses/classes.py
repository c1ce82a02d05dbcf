"""Losses of class numbers, or of probabilities of classes.

Predictions are [N, C, d1, ...], or [C] for a single one; class numbers [N, d1, ...].
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.training.losses.base import (
    INT64,
    Array,
    Loss,
    Target,
    check_number,
    check_option,
    shape_of,
    weights_of,
)


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
        if array is not None and array.ndim != 1:
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
        array: Array | None = weights_of(type(self).__name__, "weight", self.weight)
        if array is None:
            return None
        classes = prediction.size(_class_axis(prediction))
        if isinstance(classes, int) and classes != array.size:
            raise InvalidInputError(
                f"{type(self).__name__}: weight requires one number for each of {classes} classes, got {array.size}"
            )
        return prediction.builder.constant(array, prediction.dtype)


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
