"""Optimizers as formulas on expressions, for models that end at their gradients.

Arithmetic is done in float32 at least: a weight in float16 keeps float32 slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.builder import Expr

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def working_dtype(dtype: ir.DataType) -> ir.DataType:
    """The dtype of slots and arithmetic for a weight of a dtype."""
    return dtype if dtype in _WIDE else ir.DataType.FLOAT


class OptimizerSlot(NamedTuple):
    """A value that is kept per weight.

    Attributes:
        name: unique among an optimizer's slots.
        initial: the number that all elements start with.
        scalar: one number for the weight, instead of one per element.
    """

    name: str
    initial: float = 0.0
    scalar: bool = False


@runtime_checkable
class Optimizer(Protocol):
    """What makes new weights of gradients.

    Attributes:
        learning_rate: the first learning rate; in the graph it is an input.
        slots: what is kept per weight.
    """

    @property
    def learning_rate(self) -> float: ...

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]: ...

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> tuple[Expr, dict[str, Expr]]:
        """The new weight and slots.

        Args:
            weight: the weight, in its working dtype, as everything else.
            gradient: of the weight's shape.
            slots: by name.
            learning_rate: scalar, in float64, so that small differences of powers stay exact; results are cast.
            step: the same, 1 in the first update.
        """
        ...


@dataclasses.dataclass(frozen=True)
class SGD:
    """Gradient descent, with momentum in units of the gradient as in TensorFlow's ApplyMomentum and in PyTorch.

    Attributes:
        learning_rate: step size.
        momentum: share of the velocity that is kept; 0 needs no slot.
        nesterov: look ahead by one velocity.
        weight_decay: decoupled decay, in units of the learning rate.
    """

    learning_rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        """The velocity, where there is any."""
        return (OptimizerSlot("velocity"),) if self.momentum else ()

    def update(
        self,
        weight: Expr,
        gradient: Expr,
        slots: Mapping[str, Expr],
        learning_rate: Expr,
        step: Expr,  # noqa: ARG002
    ) -> tuple[Expr, dict[str, Expr]]:
        """V = momentum v + g; w - lr v, or w - lr (g + momentum v) with look-ahead."""
        direction, new_slots = gradient, {}
        if self.momentum:
            velocity = slots["velocity"] * self.momentum + gradient
            direction = gradient + velocity * self.momentum if self.nesterov else velocity
            new_slots["velocity"] = velocity
        rate = learning_rate.cast(weight.dtype)
        return _decayed(weight, rate, self.weight_decay) - direction * rate, new_slots


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam with epsilon outside the bias correction, as TensorFlow and Keras have it.

    Attributes:
        learning_rate: step size.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: keeps the division defined.
        weight_decay: decoupled decay (Loshchilov and Hutter, 2019), in units of the learning rate.
    """

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        """Both moments."""
        return OptimizerSlot("m"), OptimizerSlot("v")

    def update(
        self, weight: Expr, gradient: Expr, slots: Mapping[str, Expr], learning_rate: Expr, step: Expr
    ) -> tuple[Expr, dict[str, Expr]]:
        """Kingma and Ba, 2014, the form before section 2.1."""
        correction_1 = 1.0 - self.beta_1**step
        correction_2 = 1.0 - self.beta_2**step
        rate = (learning_rate * correction_2.sqrt() / correction_1).cast(weight.dtype)
        m = slots["m"] * self.beta_1 + gradient * (1.0 - self.beta_1)
        v = slots["v"] * self.beta_2 + gradient * gradient * (1.0 - self.beta_2)
        moved = _decayed(weight, learning_rate.cast(weight.dtype), self.weight_decay) - m * rate / (
            v.sqrt() + self.epsilon
        )
        return moved, {"m": m, "v": v}


@dataclasses.dataclass(frozen=True)
class RMSprop:
    """Gradients divided by a running root mean square (Tieleman and Hinton, 2012), epsilon inside the root.

    Attributes:
        learning_rate: step size.
        rho: decay of the mean square.
        epsilon: keeps the division defined.
    """

    learning_rate: float = 0.001
    rho: float = 0.9
    epsilon: float = 1e-7

    @property
    def slots(self) -> tuple[OptimizerSlot, ...]:
        """The mean square."""
        return (OptimizerSlot("mean_square"),)

    def update(
        self,
        weight: Expr,
        gradient: Expr,
        slots: Mapping[str, Expr],
        learning_rate: Expr,
        step: Expr,  # noqa: ARG002
    ) -> tuple[Expr, dict[str, Expr]]:
        """S = rho s + (1-rho) g^2; w - lr g / sqrt(s + epsilon)."""
        mean_square = slots["mean_square"] * self.rho + gradient * gradient * (1.0 - self.rho)
        root = (mean_square + self.epsilon).sqrt()
        return weight - gradient * learning_rate.cast(weight.dtype) / root, {"mean_square": mean_square}


# Keras' formulas and defaults.
BY_NAME: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.004),
    "rmsprop": RMSprop(),
}


def resolve(optimizer: Optimizer | str, by_name: Mapping[str, Optimizer] = BY_NAME) -> Optimizer:
    """An optimizer by name, `sgd`, `momentum`, `adam`, `adamw` or `rmsprop`, with its defaults; others as they are.

    Args:
        optimizer: either.
        by_name: what the names stand for.

    Raises:
        InvalidInputError: the name is not known.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if str(optimizer).lower() not in by_name:
        raise InvalidInputError(f"optimizer requires one of {sorted(by_name)}, got {optimizer!r}")
    return by_name[optimizer.lower()]


def _decayed(weight: Expr, learning_rate: Expr, decay: float) -> Expr:
    return weight if not decay else weight - weight * (learning_rate * decay)
