"""What workers exchange in every step: gradients and statistics, in one vector."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Gradients and statistics in one vector of one dtype, so that they travel and are summed at once.

    Attributes:
        dtype: float64 where one of them is, else float32, in which halves add up, too.
        gradients: output -> shape and dtype, in order.
        statistics: output -> shape and dtype, behind them.
    """

    dtype: np.dtype[Any]
    gradients: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
    statistics: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

    @property
    def gradient_size(self) -> int:
        """Number of elements of all gradients."""
        return sum(int(np.prod(shape)) for shape, _ in self.gradients.values())

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.gradient_size + sum(int(np.prod(shape)) for shape, _ in self.statistics.values())

    def parts(self, vector: Array) -> dict[str, Array]:
        """Views of a vector in each one's shape, in the vector's dtype."""
        found, start = {}, 0
        for name, (shape, _) in (*self.gradients.items(), *self.statistics.items()):
            size = int(np.prod(shape))
            found[name] = vector[start : start + size].reshape(shape)
            start += size
        return found

    def bounds(self, chunks: int) -> list[tuple[int, int]]:
        """Where each of some chunks of the vector begins and ends."""
        edges = [self.size * number // chunks for number in range(chunks + 1)]
        return list(itertools.pairwise(edges))
