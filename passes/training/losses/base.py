"""What a loss is, and how its elements are reduced."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.values import Dim

Reduction = Literal["mean", "sum", "none"]
Array = np.ndarray[Any, Any]
INT64 = ir.DataType.INT64


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


def weights_of(loss: str, name: str, value: Any) -> Array | None:
    """An option's numbers; `None` stays.

    Raises:
        InvalidInputError: it holds anything but numbers.
    """
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{loss}: {name} requires numbers, got {value!r}")
    return array


def weighted(each: Expr, weight: Array | None) -> Expr:
    """Elements times broadcast weights."""
    return each if weight is None else each * each.builder.constant(weight, each.dtype)
