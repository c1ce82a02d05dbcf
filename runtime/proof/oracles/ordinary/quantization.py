"""Oracles of the ops that round numbers to a grid: in the operands' dtype, whose roundings decide which is nearest."""

from __future__ import annotations

from typing import Any

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


def _per_place(x: Values, ends: npt.ArrayLike, axis: int) -> Values:
    """Ends as what broadcasts with x."""
    return np.asarray(ends, x.dtype).reshape(
        [-1 if place == axis else 1 for place in range(x.ndim)] if axis >= 0 else ()
    )


@oracle("QuantizeAndDequantizeV3")
def quantized_and_dequantized_by_operand(*, range_given: bool = True, **given: Any) -> dict[str, Values]:
    """With a range, unless it is said that there is none."""
    return quantized_and_dequantized(range_given=range_given, **given)


@oracle("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantized_and_dequantized(
    *,
    input: npt.ArrayLike,
    input_min: npt.ArrayLike,
    input_max: npt.ArrayLike,
    signed_input: bool = True,
    num_bits: npt.ArrayLike = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int = -1,
) -> dict[str, Values]:
    """The multiple of the step that is nearest."""
    x, bits = np.asarray(input), int(np.asarray(num_bits))
    least, most = (_per_place(x, end, axis) for end in (input_min, input_max)) if range_given else _ends(x, axis)
    counts = range(-(2 ** (bits - 1)) + narrow_range, 2 ** (bits - 1)) if signed_input else range(2**bits)
    first, last = x.dtype.type(counts[0]), x.dtype.type(counts[-1])
    with np.errstate(all="ignore"):
        scales = [np.where(n * end > 0, n / end, np.finfo(x.dtype).max) for n, end in ((first, least), (last, most))]
        lower = scales[0] < scales[1]
        step = np.where(lower, least / first, most / last)
        if range_given:
            x = np.maximum(np.minimum(x, np.where(lower, last * step, most)), np.where(lower, least, first * step))
        scaled = x * np.where(lower, *scales)
        made = (np.floor(scaled + x.dtype.type(0.5)) if round_mode == "HALF_UP" else np.rint(scaled)) * step
    return {"output": wide(made)}


def _ends(x: Values, axis: int) -> tuple[Values, Values]:
    others = tuple(place for place in range(x.ndim) if place != axis)
    there, kept = ~np.isnan(x), axis >= 0
    least = np.min(x, axis=others, keepdims=kept, initial=np.inf, where=there)
    return np.asarray(least), np.asarray(np.max(x, axis=others, keepdims=kept, initial=-np.inf, where=there))


@oracle("QuantizeAndDequantizeV4Grad")
def quantized_and_dequantized_grad(
    *,
    gradients: npt.ArrayLike,
    input: npt.ArrayLike,
    input_min: npt.ArrayLike,
    input_max: npt.ArrayLike,
    axis: int = -1,
) -> dict[str, Values]:
    """The gradient where numbers lie on the range; none for its ends."""
    x, shape = np.asarray(input), np.shape(input_min)
    inside = (x >= _per_place(x, input_min, axis)) & (x <= _per_place(x, input_max, axis))
    ends = {f"input_{end}_backprop": np.zeros(shape) for end in ("min", "max")}
    return {"input_backprop": wide(gradients) * inside, **ends}
