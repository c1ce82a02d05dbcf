"""Oracles of the ops that round numbers to a grid: in float32, whose roundings decide which number is the nearest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

_F = np.float32


def _grid(low: npt.ArrayLike, high: npt.ArrayLike, num_bits: int, narrow_range: bool) -> tuple[Values, Values, Values]:
    """The grid's first and last number and its step, moved so that zero lies on it; NaN where both ends are 0."""
    least, most = np.asarray(low, _F), np.asarray(high, _F)
    first, last = _F(narrow_range), _F(2**num_bits - 1)
    with np.errstate(all="ignore"):
        step = (most - least) / (last - first)
        zero = np.floor(np.clip(first - least / step, first, last) + _F(0.5))
    return (first - zero) * step, (last - zero) * step, np.asarray(step)


@oracle("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def rounded(
    *,
    inputs: npt.ArrayLike,
    min: npt.ArrayLike = -6.0,
    max: npt.ArrayLike = 6.0,
    num_bits: int = 8,
    narrow_range: bool = False,
) -> dict[str, Values]:
    """The nearest number of the grid; 0 where it has none."""
    low, high, step = _grid(min, max, num_bits, narrow_range)
    with np.errstate(all="ignore"):
        inverse = _F(1) / step
        zero = np.floor(_F(0.5) - low * inverse)
        inside = np.clip(np.asarray(inputs, _F), low, high)
        made = np.floor((inside - low) * inverse - zero + _F(0.5)) * step
    return {"outputs": wide(np.where(np.isnan(low), _F(0), made))}


@oracle("FakeQuantWithMinMaxArgsGradient")
def fixed_gradient(
    *,
    gradients: npt.ArrayLike,
    inputs: npt.ArrayLike,
    min: float = -6.0,
    max: float = 6.0,
    num_bits: int = 8,
    narrow_range: bool = False,
) -> dict[str, Values]:
    """The gradient where numbers lie on the range."""
    low, high, _ = _grid(min, max, num_bits, narrow_range)
    x = np.asarray(inputs, _F)
    return {"backprops": wide(gradients) * ((x >= low) & (x <= high))}


@oracle("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def gradient(
    *,
    gradients: npt.ArrayLike,
    inputs: npt.ArrayLike,
    min: npt.ArrayLike,
    max: npt.ArrayLike,
    num_bits: int = 8,
    narrow_range: bool = False,
) -> dict[str, Values]:
    """The gradient where numbers lie on the range, and for its ends the sum of it beyond them."""
    low, high, _ = _grid(min, max, num_bits, narrow_range)
    x, dy = np.asarray(inputs, _F), wide(gradients)
    below, above = x < low, x > high
    axes = tuple(range(x.ndim - np.ndim(min)))
    return {
        "backprops_wrt_input": dy * ~(below | above),
        "backprop_wrt_min": np.asarray((dy * below).sum(axes)),
        "backprop_wrt_max": np.asarray((dy * above).sum(axes)),
    }
