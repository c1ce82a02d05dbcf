"""PyTorch's optimizers: the formulas and defaults of `torch.optim`, under its names.

They differ from those of `optimizers`, which are TensorFlow's and Keras', in where epsilon stands, in weight decay
(added to the gradient unless it is said to be decoupled) and in first steps.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.optimizers import Optimizer, OptimizerSlot

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "HasMomentum",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
]


# What PyTorch's optimizers have in common.


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
        return bool(getattr(self, "decoupled_weight_decay", False))

    @property
    @abc.abstractmethod
    def slots(self) -> tuple[OptimizerSlot, ...]:
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


# Gradient descent as PyTorch has it: with momentum, with averages, by signs.


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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return (OptimizerSlot("momentum_buffer"),) if self.momentum else ()

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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return OptimizerSlot("ax"), OptimizerSlot("eta", scalar=True), OptimizerSlot("mu", 1.0, scalar=True)

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> Updated:
        b = weight.builder
        rate = b.where(step > 1, slots["eta"].cast(step.dtype), learning_rate)
        wanted = self.wanted(weight, gradient)
        new = weight * (1.0 - rate * self.lambd).cast(weight.dtype) - wanted * rate.cast(weight.dtype)
        share = slots["mu"].cast(step.dtype)
        mean = slots["ax"] + (new - slots["ax"]) * share.cast(weight.dtype)
        following = learning_rate / (1.0 + learning_rate * step * self.lambd) ** self.alpha
        averaged = {"ax": b.where(share < 1, mean, new), "mu": (1.0 / (step - self.t0).maximum(1.0)).cast(weight.dtype)}
        return new, {**averaged, "eta": following.cast(weight.dtype)}


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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        """The gradient before, and the step sizes."""
        return OptimizerSlot("prev"), OptimizerSlot("step_size")

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


# Optimizers that divide gradients by roots of mean squares, as PyTorch has them.


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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        more = (OptimizerSlot("grad_avg"),) * self.centered + (OptimizerSlot("momentum_buffer"),) * bool(self.momentum)
        return OptimizerSlot("square_avg"), *more

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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return (OptimizerSlot("sum", self.initial_accumulator_value),)

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
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return OptimizerSlot("square_avg"), OptimizerSlot("acc_delta")

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


# Optimizers of Adam's kind as PyTorch has them.


@dataclasses.dataclass(frozen=True)
class _Moments(Descent):
    """Optimizers with running means of gradients and of their squares.

    Attributes:
        betas: decay of both.
        eps: keeps the division defined.
    """

    betas: tuple[float | Expr, float] = (0.9, 0.999)
    eps: float = 1e-8

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return OptimizerSlot("exp_avg"), OptimizerSlot("exp_avg_sq")

    def with_momentum(self, momentum: Expr) -> Self:
        return dataclasses.replace(self, betas=(momentum, self.betas[1]))

    def moments(self, gradient: Expr, slots: Mapping[str, Expr]) -> tuple[Expr, Expr]:
        """The new means."""
        first, second = self.betas
        m = slots["exp_avg"] * within(first, gradient) + gradient * within(1.0 - first, gradient)
        return m, slots["exp_avg_sq"] * second + gradient * gradient * (1 - second)

    def corrections(self, step: Expr) -> tuple[Expr, Expr]:
        """What the means of the first steps lack."""
        first, second = (1.0 - beta**step for beta in self.betas)
        return first, second

    def root(self, square: Expr, correction: Expr) -> Expr:
        """The root of the mean square, with epsilon."""
        return square.sqrt() / correction.sqrt().cast(square.dtype) + self.eps


@dataclasses.dataclass(frozen=True)
class Adam(_Moments):
    """Adam (Kingma and Ba, 2014), epsilon beside the corrected root.

    Attributes:
        amsgrad: divide by the largest mean square so far (Reddi et al., 2018).
        decoupled_weight_decay: weights decay by themselves.
    """

    amsgrad: bool = False
    decoupled_weight_decay: bool = False

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return (*super().slots, OptimizerSlot("max_exp_avg_sq")) if self.amsgrad else super().slots

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        m, v = self.moments(gradient, slots)
        new = {"exp_avg": m, "exp_avg_sq": v}
        if self.amsgrad:
            v = new["max_exp_avg_sq"] = slots["max_exp_avg_sq"].maximum(v)
        first, second = self.corrections(step)
        return m * (learning_rate / first).cast(m.dtype) / self.root(v, second), new


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    weight_decay: float = 0.01
    decoupled_weight_decay: bool = True


@dataclasses.dataclass(frozen=True)
class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Attributes:
        momentum_decay: how fast the momentum grows to its final value.
        decoupled_weight_decay: weights decay by themselves.
    """

    learning_rate: float = 0.002
    momentum_decay: float = 0.004
    decoupled_weight_decay: bool = False

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return (*super().slots, OptimizerSlot("mu_product", 1.0, scalar=True))

    def _momentum(self, step: Expr) -> Expr:
        return (1.0 - 0.5 * 0.96 ** (step * self.momentum_decay)) * self.betas[0]

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        m, v = self.moments(gradient, slots)
        root = self.root(v, self.corrections(step)[1])
        now, following = self._momentum(step), self._momentum(step + 1)
        product = slots["mu_product"].cast(step.dtype) * now
        of_gradient = learning_rate * (1.0 - now) / (1.0 - product)
        of_mean = learning_rate * following / (1.0 - product * following)
        change = (gradient * of_gradient.cast(m.dtype) + m * of_mean.cast(m.dtype)) / root
        return change, {"exp_avg": m, "exp_avg_sq": v, "mu_product": product.cast(m.dtype)}


@dataclasses.dataclass(frozen=True)
class RAdam(_Moments):
    """Adam that waits until the variance of the mean square is known (Liu et al., 2019).

    Attributes:
        decoupled_weight_decay: weights decay by themselves.
    """

    decoupled_weight_decay: bool = False

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        b = gradient.builder
        m, v = self.moments(gradient, slots)
        first, second = self.corrections(step)
        longest = 2 / (1 - self.betas[1]) - 1
        length = longest - 2.0 * step * (1.0 - second) / second
        known = length > 5
        # In the first steps the root would be of a negative number.
        safe = b.where(known, length, 6.0)
        shrunk = (safe - 4.0) * (safe - 2.0) * longest / (safe * ((longest - 4) * (longest - 2)))
        rectified = (shrunk * second).sqrt().cast(m.dtype) / (v.sqrt() + self.eps)
        change = m * (learning_rate / first).cast(m.dtype) * b.where(known, rectified, 1.0)
        return change, {"exp_avg": m, "exp_avg_sq": v}


@dataclasses.dataclass(frozen=True)
class Adamax(_Moments):
    """Adam with the largest gradient in place of the root of the mean square (Kingma and Ba, 2014, section 7.1)."""

    learning_rate: float = 0.002

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        return OptimizerSlot("exp_avg"), OptimizerSlot("exp_inf")

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        first, second = self.betas
        m = slots["exp_avg"] * within(first, gradient) + gradient * within(1.0 - first, gradient)
        largest = (slots["exp_inf"] * second).maximum(gradient.abs() + self.eps)
        rate = learning_rate / (1.0 - first**step)
        return m * rate.cast(m.dtype) / largest, {"exp_avg": m, "exp_inf": largest}


# What names stand for where a step is a PyTorch module's, with PyTorch's defaults.
BY_NAME: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "adam": Adam(),
    "adamw": AdamW(),
    "rmsprop": RMSprop(),
}
