"""Float64 oracles of greyscale dilation and of its gradients: window by window, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import finfo

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

Place = tuple[int, ...]


def _least(x: npt.ArrayLike) -> Any:
    """The least number of the operand's own dtype."""
    dtype = np.asarray(x).dtype
    return (np.iinfo if dtype.kind in "iu" else finfo)(dtype).min


def _placed(
    x: Values, kernel: Values, strides: Sequence[int], rates: Sequence[int], padding: str
) -> tuple[list[int], list[int]]:
    """The numbers of windows along rows and columns, and the padding before these."""
    counts, before = [], []
    for axis in (1, 2):
        size, stride, extent = x.shape[axis], strides[axis], (kernel.shape[axis - 1] - 1) * rates[axis] + 1
        count = -(-size // stride) if padding == "SAME" else (size - extent) // stride + 1
        counts.append(count)
        before.append(max((count - 1) * stride + extent - size, 0) // 2 if padding == "SAME" else 0)
    return counts, before


def _searched(
    x: Values, kernel: Values, least: Any, strides: Sequence[int], rates: Sequence[int], padding: str
) -> Iterator[tuple[Place, Any, Place, Place]]:
    """Each window's place, its largest sum, and where the elements of this stand in the image and in the filter."""
    counts, before = _placed(x, kernel, strides, rates, padding)
    for window in np.ndindex(len(x), *counts, x.shape[3]):
        n, p, q, c = window
        top, left = p * strides[1] - before[0], q * strides[2] - before[1]
        best, there, own = least, (n, max(top, 0), max(left, 0), c), (0, 0, c)
        for r, s in np.ndindex(*kernel.shape[:2]):
            row, column = top + r * rates[1], left + s * rates[2]
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                with np.errstate(over="ignore"):
                    value = x[n, row, column, c] + kernel[r, s, c]
                if value > best:
                    best, there, own = value, (n, row, column, c), (r, s, c)
        yield window, best, there, own


@oracle("Dilation2D")
def dilation(*, input: npt.ArrayLike, filter: npt.ArrayLike, **attributes: Any) -> dict[str, Values]:
    """The largest sum of each window."""
    x, kernel = wide(input), wide(filter)
    made = np.zeros((len(x), *_placed(x, kernel, **attributes)[0], x.shape[3]), x.dtype)
    for window, best, _, _ in _searched(x, kernel, _least(input), **attributes):
        made[window] = best
    return {"output": made}


def _added(given: dict[str, Any], like: str, place: int) -> Values:
    least = _least(given["input"])
    x, kernel, dy = (wide(given.pop(name)) for name in ("input", "filter", "out_backprop"))
    made = np.zeros_like({"input": x, "filter": kernel}[like])
    for found in _searched(x, kernel, least, **given):
        made[found[place]] += dy[found[0]]
    return made


@oracle("Dilation2DBackpropInput")
def dilation_backprop_input(**given: Any) -> dict[str, Values]:
    """To the element of the image that each window has its largest sum from."""
    return {"in_backprop": _added(given, "input", 2)}


@oracle("Dilation2DBackpropFilter")
def dilation_backprop_filter(**given: Any) -> dict[str, Values]:
    """To the element of the filter that each window has its largest sum from."""
    return {"filter_backprop": _added(given, "filter", 3)}
