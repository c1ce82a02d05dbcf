"""Central differences: is a backward oracle the derivative of its forward oracle?

A `Pairing` says how the two ops belong together. The scalar differentiated is the sum, over the forward outputs that
have a gradient operand, of the output times a random cotangent; what the backward oracle returns for these cotangents
must then be that scalar's derivative. All in float64, with relative errors near 1e-9.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lstm_lower.registry import Op, Registry
from lstm_lower.runtime.proof.oracles.numerics import Array
from lstm_lower.runtime.proof.oracles.registry import ORACLES, Oracle

Named = Mapping[str, Any]

# Truncation grows with the square of the step, rounding with its inverse; this is where they meet in float64.
STEP = 6e-6

# What a right formula stays below (by a factor of a hundred and more) and a wrong one does not.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Pairing:
    """How a backward op belongs to its forward op.

    The backward op's remaining operands are the forward op's operands, outputs and attributes of the same name.

    Attributes:
        forward: the forward op: its definition, or its type where it stands in our domain.
        cotangents: operand of the backward op -> output of the forward op whose gradient it is.
        gradients: from the backward op's operands and its outputs, the gradient of each forward operand that has one.
        sample: small random operands of the forward op, given its attributes.
        smooth: attributes that switch off what the backward op leaves out on purpose.
        shrink: from the attributes of an actual node, those of a small one of its kind; as they are by default.
    """

    forward: Op
    cotangents: Mapping[str, str]
    gradients: Callable[[Named, Mapping[str, Array]], dict[str, Array]]
    sample: Callable[[np.random.Generator, Named], dict[str, Any]]
    smooth: Named = field(default_factory=dict)
    shrink: Callable[[Named], dict[str, Any]] = dict


PAIRINGS: Registry[Pairing] = Registry("pairing", "lstm_lower.runtime.proof.oracles")


def pairs(op: Op, pairing: Pairing) -> None:
    """Registers of which op, and how, a backward op is the gradient.

    Args:
        op: the backward op: its definition, or its type where it stands in our domain.
        pairing: how it belongs to its forward op.
    """
    PAIRINGS.register(op, pairing, pairing.gradients.__module__)


@dataclass(frozen=True)
class GradientError:
    """How far one gradient is from central differences.

    Attributes:
        operand: the forward op's operand.
        shape: its shape.
        absolute: largest absolute error.
        relative: the same over the largest derivative seen; 0 when all are 0.
    """

    operand: str
    shape: tuple[int, ...]
    absolute: float
    relative: float


def check_backward(
    op: Op,
    attributes: Named | None = None,
    operands: Named | None = None,
    *,
    directions: int | None = None,
    seed: int = 0,
) -> list[GradientError]:
    """Compares the oracle of a backward op with central differences of its forward op's oracle.

    Args:
        op: a backward op, a key of `PAIRINGS`.
        attributes: attributes of either op; the forward op's defaults where absent.
        operands: operands of the forward op; a small random sample when `None`.
        directions: number of random directions per operand; `None` takes every element by itself.
        seed: of the sample, the cotangents and the directions.

    Raises:
        KeyError: the op is not in `PAIRINGS`.
    """
    pairing = PAIRINGS[op]
    attributes = {**pairing.shrink(attributes or {}), **pairing.smooth}
    if operands is None:
        operands = pairing.sample(np.random.default_rng(seed), attributes)
    forward, backward = ORACLES[pairing.forward], ORACLES[op]
    return gradient_errors(forward, backward, pairing, operands, attributes, directions=directions, seed=seed)


def gradient_errors(
    forward: Oracle,
    backward: Oracle,
    pairing: Pairing,
    operands: Named,
    attributes: Named,
    *,
    directions: int | None = None,
    seed: int = 0,
) -> list[GradientError]:
    """Compares any two functions that claim to be a pair; see `check_backward`, which takes them by name."""
    rng = np.random.default_rng(seed)
    operands = {name: _widen(value) for name, value in operands.items()}
    call = {**_defaults(forward), **attributes, **operands}
    outputs = forward(**_accepted(forward, call))
    cotangents = {operand: rng.standard_normal(outputs[output].shape) for operand, output in pairing.cotangents.items()}

    def loss(changed: Named) -> float:
        results = forward(**_accepted(forward, {**call, **changed}))
        return sum(float(np.vdot(cotangents[operand], results[o])) for operand, o in pairing.cotangents.items())

    given = {**call, **outputs, **cotangents}
    gradients = pairing.gradients(given, backward(**_accepted(backward, given)))
    errors = []
    for operand, gradient in gradients.items():
        point = operands[operand]
        if gradient.shape != point.shape:
            raise ValueError(f"gradient of {operand} requires shape {point.shape}, got {gradient.shape}")
        claimed, measured = [0.0], [0.0]
        for direction in _directions(point.shape, directions, rng):
            above, below = loss({operand: point + STEP * direction}), loss({operand: point - STEP * direction})
            measured.append((above - below) / (2 * STEP))
            claimed.append(float(np.vdot(gradient, direction)))
        absolute = float(np.max(np.abs(np.subtract(claimed, measured))))
        largest = float(np.max(np.abs([claimed, measured])))
        errors.append(GradientError(operand, point.shape, absolute, absolute / largest if largest else absolute))
    return errors


def _directions(shape: tuple[int, ...], count: int | None, rng: np.random.Generator) -> Iterator[Array]:
    if count is not None:
        yield from (rng.standard_normal(shape) for _ in range(count))
        return
    for index in np.ndindex(shape):
        unit = np.zeros(shape)
        unit[index] = 1.0
        yield unit


def _widen(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


def _defaults(function: Oracle) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _accepted(function: Oracle, values: Named) -> dict[str, Any]:
    return {name: values[name] for name in inspect.signature(function).parameters if name in values}
