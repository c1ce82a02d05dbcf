"""Float64 oracles of reductions, and of what is accumulated along an axis. Integers stay integers, and wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.dtypes import DType
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _axes(axis: npt.ArrayLike) -> tuple[int, ...]:
    return tuple(int(entry) for entry in np.asarray(axis).reshape(-1))


def _reduction(op: str, function: Callable[..., Any]) -> None:
    @oracle(op)
    def reduce(*, input: npt.ArrayLike, axis: npt.ArrayLike, keep_dims: bool = False) -> dict[str, Values]:
        with np.errstate(all="ignore"):
            return {"output": np.asarray(function(wide(input), _axes(axis), keep_dims))}


def _sum(x: Values, axes: tuple[int, ...], keep: bool) -> Values:
    return np.asarray(x.sum(axis=axes, keepdims=keep, dtype=x.dtype))


def _mean(x: Values, axes: tuple[int, ...], keep: bool) -> Values:
    total = _sum(x, axes, keep)
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    if x.dtype.kind in "fc":
        return np.asarray(total / count if count else total * np.nan)
    whole = np.abs(total.astype(object)) // max(count, 1) * np.sign(total.astype(object))
    return np.asarray(whole, x.dtype)


def _extreme(function: Callable[..., Any], lowest: bool) -> Callable[..., Values]:
    def reduce(x: Values, axes: tuple[int, ...], keep: bool) -> Values:
        if x.dtype.kind in "fc":
            start: Any = -np.inf if lowest else np.inf
        else:
            start = np.iinfo(x.dtype).min if lowest else np.iinfo(x.dtype).max
        return np.asarray(function(x, axis=axes, keepdims=keep, initial=start))

    return reduce


_reduction("Sum", _sum)
_reduction("Mean", _mean)
_reduction("Prod", lambda x, axes, keep: x.prod(axis=axes, keepdims=keep, dtype=x.dtype))
_reduction("Max", _extreme(np.max, lowest=True))
_reduction("Min", _extreme(np.min, lowest=False))
_reduction("All", lambda x, axes, keep: x.all(axis=axes, keepdims=keep))
_reduction("Any", lambda x, axes, keep: x.any(axis=axes, keepdims=keep))


@oracle("ArgMax")
def arg_max(
    *, input: npt.ArrayLike, dimension: npt.ArrayLike, output_type: int = int(DType.INT64)
) -> dict[str, Values]:
    """The first place of the largest number."""
    return {"output": _place(np.argmax, input, dimension, -np.inf, output_type)}


@oracle("ArgMin")
def arg_min(
    *, input: npt.ArrayLike, dimension: npt.ArrayLike, output_type: int = int(DType.INT64)
) -> dict[str, Values]:
    """The first place of the smallest number."""
    return {"output": _place(np.argmin, input, dimension, np.inf, output_type)}


def _place(
    function: Callable[..., Any], x: npt.ArrayLike, dimension: npt.ArrayLike, least: float, output_type: int
) -> Values:
    values = wide(x)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), least, values)
    return np.asarray(function(values, axis=int(np.asarray(dimension))), DType(output_type).numpy())


def _cumulative(op: str, function: Any, neutral: int) -> None:
    @oracle(op)
    def accumulate(
        *, x: npt.ArrayLike, axis: npt.ArrayLike, exclusive: bool = False, reverse: bool = False
    ) -> dict[str, Values]:
        values, along = wide(x), int(np.asarray(axis))
        steps = np.moveaxis(values, along, 0)
        steps = steps[::-1] if reverse else steps
        result = function(steps, axis=0, dtype=values.dtype)
        if exclusive and len(result):
            result = np.concatenate([np.full_like(result[:1], neutral), result[:-1]])
        return {"out": np.moveaxis(result[::-1] if reverse else result, 0, along)}


_cumulative("Cumsum", np.cumsum, 0)
_cumulative("Cumprod", np.cumprod, 1)
