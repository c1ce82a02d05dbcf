"""What normalizations share: mean and variance, and vectors of a number for each channel."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr


def moments(x: Expr, axes: Sequence[int]) -> tuple[Expr, Expr, Expr]:
    """X without its mean, its mean and its variance, the mean square of what is left; reduced axes stay."""
    mean = x.reduce(std.ReduceMean, axes)
    centered = x - mean
    return centered, mean, (centered * centered).reduce(std.ReduceMean, axes)


def per_channel(vector: Expr, rank: int) -> Expr:
    """A vector [C] in a shape that goes with [N, C, ...]."""
    return vector.unsqueeze(*range(1, rank - 1))
