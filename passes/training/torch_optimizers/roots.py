"""Optimizers that divide gradients by roots of mean squares, as PyTorch has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.optimizers import Slot
from lstm_lower.passes.training.torch_optimizers.base import Descent, Updated, within


@dataclasses.dataclass(frozen=True)
class RMSprop(Descent):
    """Gradients divided by a running root mean square (Tieleman and Hinton, 2012), epsilon outside the root.

    Attributes:
        alpha: decay of the mean square.
        eps: keeps the division defined.
        momentum: share of the velocity that is kept.
        centered: divide by the standard deviation instead.
    """

    learning_rate: float = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float | Expr = 0.0
    centered: bool = False

    @property
    def slots(self) -> tuple[Slot, ...]:
        more = (Slot("grad_avg"),) * self.centered + (Slot("momentum_buffer"),) * bool(self.momentum)
        return Slot("square_avg"), *more

    def change(
        self,
        gradient: Expr,
        slots: Mapping[str, Expr],
        learning_rate: Expr,
        step: Expr,  # noqa: ARG002
    ) -> Updated:
        square = slots["square_avg"] * self.alpha + gradient * gradient * (1 - self.alpha)
        new = {"square_avg": square}
        if self.centered:
            mean = new["grad_avg"] = slots["grad_avg"] * self.alpha + gradient * (1 - self.alpha)
            square = square - mean * mean
        direction = gradient / (square.sqrt() + self.eps)
        if self.momentum:
            direction = new["momentum_buffer"] = slots["momentum_buffer"] * within(self.momentum, gradient) + direction
        return direction * learning_rate.cast(gradient.dtype), new

    def with_momentum(self, momentum: Expr) -> Self:
        return dataclasses.replace(self, momentum=momentum)


@dataclasses.dataclass(frozen=True)
class Adagrad(Descent):
    """Gradients divided by the root of the sum of all squares (Duchi, Hazan and Singer, 2011).

    Attributes:
        lr_decay: the learning rate is divided by one plus this times the number of steps before.
        initial_accumulator_value: what sums start at.
        eps: keeps the division defined.
    """

    learning_rate: float = 0.01
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot("sum", self.initial_accumulator_value),)

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        rate = learning_rate / ((step - 1) * self.lr_decay + 1) if self.lr_decay else learning_rate
        total = slots["sum"] + gradient * gradient
        return gradient * rate.cast(gradient.dtype) / (total.sqrt() + self.eps), {"sum": total}


@dataclasses.dataclass(frozen=True)
class Adadelta(Descent):
    """Steps in units of the steps before (Zeiler, 2012), epsilon inside both roots.

    Attributes:
        rho: decay of both mean squares.
        eps: keeps the division defined, and the first steps from being none.
    """

    learning_rate: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    @property
    def slots(self) -> tuple[Slot, ...]:
        return Slot("square_avg"), Slot("acc_delta")

    def change(
        self,
        gradient: Expr,
        slots: Mapping[str, Expr],
        learning_rate: Expr,
        step: Expr,  # noqa: ARG002
    ) -> Updated:
        square = slots["square_avg"] * self.rho + gradient * gradient * (1 - self.rho)
        delta = (slots["acc_delta"] + self.eps).sqrt() / (square + self.eps).sqrt() * gradient
        steps = slots["acc_delta"] * self.rho + delta * delta * (1 - self.rho)
        return delta * learning_rate.cast(gradient.dtype), {"square_avg": square, "acc_delta": steps}
