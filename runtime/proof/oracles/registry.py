"""The registry of float64 oracles: op type -> numpy function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Oracle = Callable[..., dict[str, np.ndarray[Any, Any]]]
F = TypeVar("F", bound=Oracle)

ORACLES: dict[str, Oracle] = {}


def oracle(*op_types: str) -> Callable[[F], F]:
    """Registers a function as the float64 oracle of one or more op types.

    The function takes TensorFlow's operand and attribute names as keywords and returns the outputs by name,
    in TensorFlow's order. It computes in float64 whatever dtype comes in.
    """

    def register(function: F) -> F:
        for op_type in op_types:
            if op_type in ORACLES:
                raise KeyError(f"{op_type} already has an oracle")
            ORACLES[op_type] = function
        return function

    return register
