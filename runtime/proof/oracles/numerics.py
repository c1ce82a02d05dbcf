"""Arithmetic that several float64 oracles share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = npt.NDArray[Any]


def float64(value: npt.ArrayLike) -> Array:
    """Returns the value as a float64 array."""
    return np.asarray(value, dtype=np.float64)


def wide(value: npt.ArrayLike) -> Values:
    """Floating-point numbers in float64, complex ones in complex128; integers and truth values as they are."""
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def ints(value: npt.ArrayLike) -> list[int]:
    """The entries of an integer operand."""
    return [int(entry) for entry in np.ravel(value)]


def sigmoid(x: Array) -> Array:
    """Logistic sigmoid, accurate also where it is close to zero."""
    shrunk = np.exp(-np.abs(x))  # never overflows
    return np.asarray(np.where(x >= 0, 1.0, shrunk) / (1.0 + shrunk))


def clamp_steps(seq_len_max: npt.ArrayLike, time: int) -> int:
    """Returns the number of steps to compute: `seq_len_max` within 0..T, as a lowered graph clamps it."""
    return min(max(int(np.asarray(seq_len_max).item()), 0), time)


def round_attribute(value: float, operand: npt.ArrayLike) -> float:
    """Rounds an attribute as the kernels do: stored as float32, converted to half if operands are half."""
    with np.errstate(over="ignore", under="ignore"):
        stored = np.float32(value)
        return float(np.float16(stored) if np.asarray(operand).dtype == np.float16 else stored)
