"""Gradient descent as PyTorch has it: with momentum, with averages, by signs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.optimizers import Slot
from lstm_lower.passes.training.torch_optimizers.base import Descent, TorchOptimizer, Updated, within


@dataclasses.dataclass(frozen=True)
class SGD(Descent):
    """Gradient descent; the first velocity is the gradient itself.

    Attributes:
        momentum: share of the velocity that is kept.
        dampening: share of the gradient that does not enter the velocity.
        nesterov: look ahead by one velocity.
    """

    momentum: float | Expr = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot("momentum_buffer"),) if self.momentum else ()

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        rate = learning_rate.cast(gradient.dtype)
        if not self.momentum:
            return gradient * rate, {}
        taken = gradient
        if self.dampening:
            share = gradient.builder.where(step > 1, step.like(1 - self.dampening), 1.0)
            taken = gradient * share.cast(gradient.dtype)
        momentum = within(self.momentum, gradient)
        velocity = slots["momentum_buffer"] * momentum + taken
        direction = gradient + velocity * momentum if self.nesterov else velocity
        return direction * rate, {"momentum_buffer": velocity}

    def with_momentum(self, momentum: Expr) -> Self:
        return dataclasses.replace(self, momentum=momentum)


@dataclasses.dataclass(frozen=True)
class ASGD(TorchOptimizer):
    """Gradient descent whose weights are averaged from a step on (Polyak and Juditsky, 1992).

    The average of a weight is its slot `ax`. Steps after the first one take the learning rate of the step before them.

    Attributes:
        lambd: share of the weight that is taken off, in units of the learning rate.
        alpha: power with which the learning rate falls.
        t0: the number of steps before the average begins.
    """

    learning_rate: float = 0.01
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6

    @property
    def slots(self) -> tuple[Slot, ...]:
        return Slot("ax"), Slot("eta", scalar=True)

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> Updated:
        b = weight.builder
        rate = b.where(step > 1, slots["eta"].cast(step.dtype), learning_rate)
        wanted = self.wanted(weight, gradient)
        new = weight * (1.0 - rate * self.lambd).cast(weight.dtype) - wanted * rate.cast(weight.dtype)
        share = b.where(step > 1, 1.0 / (step - (1 + self.t0)).maximum(1.0), 1.0)
        mean = slots["ax"] + (new - slots["ax"]) * share.cast(weight.dtype)
        following = learning_rate / (1.0 + learning_rate * step * self.lambd) ** self.alpha
        return new, {"ax": b.where(share < 1, mean, new), "eta": following.cast(weight.dtype)}


@dataclasses.dataclass(frozen=True)
class Rprop:
    """Steps by the signs of gradients, of sizes that grow while the sign stays (Riedmiller and Braun, 1993).

    Attributes:
        learning_rate: the first step size; later ones do not depend on it.
        etas: what step sizes are multiplied by where the sign has changed, and where it has stayed.
        step_sizes: the smallest and the largest.
        maximize: climb instead of descend.
    """

    learning_rate: float = 0.01
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)
    maximize: bool = False

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The gradient before, and the step sizes."""
        return Slot("prev"), Slot("step_size")

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> Updated:
        """Where the sign has changed, there is no step, and the next one is as after none."""
        b = weight.builder
        wanted = -gradient if self.maximize else gradient
        product = wanted * slots["prev"]
        turned = product < 0
        same = product * 0.0 + 1.0  # of what is no number, PyTorch makes none either
        factor = b.where(turned, self.etas[0], b.where(product > 0, self.etas[1], same))
        before = b.where(step > 1, slots["step_size"], learning_rate.cast(weight.dtype))
        size = (before * factor).maximum(self.step_sizes[0]).minimum(self.step_sizes[1])
        taken = b.where(turned, 0.0, wanted)
        return weight - b.op(std.Sign, taken) * size, {"prev": taken, "step_size": size}
