"""How far apart two results are: one notion for every proof."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lstm_lower.runtime.proof.comparison import distance, errors, magnitude

INFINITE = float("inf")


@pytest.mark.parametrize(
    ("actual", "expected", "far"),
    [
        (np.float32([1, 2]), np.float64([1, 2.5]), 0.5),
        (np.zeros((2, 0)), np.zeros((2, 0)), 0),
        (np.zeros(2), np.zeros(3), INFINITE),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array([1, np.nan]), np.array([1, np.nan]), 0),
        (np.array([1, np.inf]), np.array([2, -np.inf]), INFINITE),
        (np.array([1, np.inf]), np.array([2, 3.0]), INFINITE),
        (np.array([1, 2.0]), np.array([1, np.nan]), INFINITE),
        # The difference is no half.
        (np.float16([65504]), np.float16([-65504]), 131008),
        (np.array([1, 2], ml_dtypes.bfloat16), np.float64([1, 4]), 2),
        (np.array([1 + 1j]), np.array([1 + 3j]), 2),
    ],
)
def test_distance(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], far: float) -> None:
    assert distance(actual, expected) == far


def test_every_element_of_large_arrays_counts() -> None:
    expected = np.zeros((3, 1 << 16))
    actual = expected.copy()
    actual[2, -1] = 5
    assert distance(actual, expected) == 5
    assert magnitude(actual) == 5


def test_the_error_is_relative_to_what_is_finite() -> None:
    assert errors(np.array([3, np.inf]), np.array([4, np.inf])) == (1, 1 / 4)
    assert errors(np.array([1, 2]), np.array([1, 3])) == (1, 1 / 2)


def test_nothing_finite_proves_nothing() -> None:
    assert errors(np.array([np.nan]), np.array([np.nan])) == (INFINITE, INFINITE)


def test_changes_are_measured_from_the_start() -> None:
    assert magnitude(np.array([5.0, 7.0]), np.array([4.0, 7.5])) == 1
