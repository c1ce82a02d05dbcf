"""What PyTorch's optimizers have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.optimizers import Optimizer, Slot

Updated = tuple[Expr, dict[str, Expr]]


@runtime_checkable
class HasMomentum(Protocol):
    """An optimizer whose momentum, or first beta, a schedule may move."""

    def with_momentum(self, momentum: Expr) -> Optimizer:
        """The same with another one, a float64 scalar."""
        ...


@dataclasses.dataclass(frozen=True)
class TorchOptimizer(abc.ABC):
    """What all have in common.

    Attributes:
        learning_rate: step size.
        weight_decay: share of the weight that is added to the gradient.
        maximize: climb instead of descend.
    """

    learning_rate: float = 0.001
    weight_decay: float = 0.0
    maximize: bool = False

    def wanted(self, weight: Expr, gradient: Expr) -> Expr:
        """The gradient of what shall become small."""
        if self.maximize:
            gradient = -gradient
        return gradient + weight * self.weight_decay if self.weight_decay and not self.decoupled else gradient

    @property
    def decoupled(self) -> bool:
        """Whether weights decay by themselves (Loshchilov and Hutter, 2019), in units of the learning rate."""
        return False

    @property
    @abc.abstractmethod
    def slots(self) -> tuple[Slot, ...]:
        """What is kept per weight."""

    @abc.abstractmethod
    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> Updated:
        """The new weight and slots, see `optimizers.Optimizer`."""


class Descent(TorchOptimizer):
    """One that subtracts from a weight what does not depend on the weight itself, but for its decay."""

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> Updated:
        wanted = self.wanted(weight, gradient)
        if self.weight_decay and self.decoupled:
            weight = weight * (1.0 - learning_rate * self.weight_decay).cast(weight.dtype)
        change, new_slots = self.change(wanted, slots, learning_rate, step)
        return weight - change, new_slots

    @abc.abstractmethod
    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        """What is subtracted from the weight, and the new slots."""


def within(number: float | Expr, other: Expr) -> float | Expr:
    """A number as an operand beside another one."""
    return number.cast(other.dtype) if isinstance(number, Expr) else number
