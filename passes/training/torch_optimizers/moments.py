"""Optimizers of Adam's kind as PyTorch has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.optimizers import Slot
from lstm_lower.passes.training.torch_optimizers.base import Descent, Updated, within


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
    def slots(self) -> tuple[Slot, ...]:
        return Slot("exp_avg"), Slot("exp_avg_sq")

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
    def decoupled(self) -> bool:
        return self.decoupled_weight_decay

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (*super().slots, Slot("max_exp_avg_sq")) if self.amsgrad else super().slots

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
    def decoupled(self) -> bool:
        return self.decoupled_weight_decay

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (*super().slots, Slot("mu_product", 1.0, scalar=True))

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

    @property
    def decoupled(self) -> bool:
        return self.decoupled_weight_decay

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
    def slots(self) -> tuple[Slot, ...]:
        return Slot("exp_avg"), Slot("exp_inf")

    def change(self, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr) -> Updated:
        first, second = self.betas
        m = slots["exp_avg"] * within(first, gradient) + gradient * within(1.0 - first, gradient)
        largest = (slots["exp_inf"] * second).maximum(gradient.abs() + self.eps)
        rate = learning_rate / (1.0 - first**step)
        return m * rate.cast(m.dtype) / largest, {"exp_avg": m, "exp_inf": largest}
