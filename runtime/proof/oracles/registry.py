"""The registry of float64 oracles: op -> numpy function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from lstm_lower.registry import Op, Registry

Oracle = Callable[..., dict[str, np.ndarray[Any, Any]]]
F = TypeVar("F", bound=Oracle)

ORACLES: Registry[Oracle] = Registry("oracle", "lstm_lower.runtime.proof.oracles")


def oracle(*ops: Op) -> Callable[[F], F]:
    """Registers a function as the float64 oracle of one or more ops, given as definitions or as op types of our domain.

    The function takes TensorFlow's operand and attribute names as keywords and returns the outputs by name,
    in TensorFlow's order. It computes in float64 whatever dtype comes in.
    """

    def register(function: F) -> F:
        for op in ops:
            ORACLES.register(op, function, function.__module__)
        return function

    return register
