"""Float64 oracles of arithmetic on two or more operands. Integers stay integers, and wrap."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, oracles_by, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _quotient(x: Values, y: Values) -> Values:
    """The quotient; of integers rounded towards 0."""
    if x.dtype.kind in "fc":
        return np.asarray(x / y)
    return np.asarray(np.abs(x) // np.abs(y) * (np.sign(x) * np.sign(y)))


def _truncated(x: Values, y: Values) -> Values:
    return np.asarray(np.trunc(x / y) if x.dtype.kind == "f" else _quotient(x, y))


def _shifted(function: Any) -> Any:
    def shift(x: Values, y: Values) -> Values:
        return np.asarray(function(x, np.clip(y, 0, x.dtype.itemsize * 8 - 1)))

    return shift


oracles_by(
    {
        "Add": np.add,
        "AddV2": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "RealDiv": np.divide,
        "Div": _quotient,
        "TruncateDiv": _truncated,
        "DivNoNan": lambda x, y: np.where(y == 0, 0, x / y),
        "Pow": np.power,
        "Maximum": np.maximum,
        "Minimum": np.minimum,
        "SquaredDifference": lambda x, y: (x - y) * np.conj(x - y),
        "Atan2": np.arctan2,
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
        "LeftShift": _shifted(np.left_shift),
        "RightShift": _shifted(np.right_shift),
        "ClipByValue": lambda t, low, high: np.maximum(np.minimum(t, high), low),
    }
)


@oracle("AddN", "AccumulateNV2")
def add_n(*, inputs: Sequence[npt.ArrayLike], N: int = 0, shape: Sequence[int] = ()) -> dict[str, Values]:
    """The sum."""
    return {"sum": functools.reduce(np.add, [wide(part) for part in inputs])}
