"""Float64 oracles of the elementwise ops around losses. Integers stay integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.indexing import widen
from lstm_lower.runtime.proof.oracles.numerics import Array, float64
from lstm_lower.runtime.proof.oracles.registry import oracle

Values = npt.NDArray[Any]


@oracle("L2Loss")
def l2_loss(*, t: npt.ArrayLike) -> dict[str, Array]:
    """Half the sum of squares."""
    return {"output": np.asarray(np.square(float64(t)).sum() / 2)}


@oracle("Log1p")
def log1p(*, x: npt.ArrayLike) -> dict[str, Array]:
    """log(1 + x)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"y": np.asarray(np.log1p(float64(x)))}


@oracle("Expm1")
def expm1(*, x: npt.ArrayLike) -> dict[str, Array]:
    """exp(x) - 1."""
    with np.errstate(over="ignore"):
        return {"y": np.asarray(np.expm1(float64(x)))}


@oracle("Inv")
def inv(*, x: npt.ArrayLike) -> dict[str, Array]:
    """1 / x."""
    with np.errstate(divide="ignore"):
        return {"y": np.asarray(1 / float64(x))}


@oracle("Snapshot")
def snapshot(*, input: npt.ArrayLike) -> dict[str, Values]:
    """The input."""
    return {"output": np.asarray(input)}


def _where_nonzero(condition: Array, value: Array) -> dict[str, Array]:
    return {"z": np.asarray(np.where(condition == 0, 0, value))}


@oracle("Xdivy")
def xdivy(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Array]:
    """The quotient, and 0 where x is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _where_nonzero(float64(x), float64(x) / float64(y))


@oracle("Xlogy")
def xlogy(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Array]:
    """The product of x and log(y), and 0 where x is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _where_nonzero(float64(x), float64(x) * np.log(float64(y)))


@oracle("Xlog1py")
def xlog1py(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Array]:
    """The product of x and log(1 + y), and 0 where x is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _where_nonzero(float64(x), float64(x) * np.log1p(float64(y)))


@oracle("MulNoNan")
def mul_no_nan(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Array]:
    """The product, and 0 where y is 0."""
    with np.errstate(invalid="ignore"):
        return _where_nonzero(float64(y), float64(x) * float64(y))


@oracle("TruncateMod", "Mod")
def truncate_mod(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Values]:
    """The remainder with x's sign."""
    return {"z": np.asarray(np.fmod(widen(x), widen(y)))}


@oracle("FloorMod")
def floor_mod(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Values]:
    """The remainder with y's sign."""
    return {"z": np.asarray(np.mod(widen(x), widen(y)))}


@oracle("FloorDiv")
def floor_div(*, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Values]:
    """The quotient, rounded down: of floating-point numbers the rounded quotient, as kernels have it."""
    numbers = np.asarray(x)
    if numbers.dtype.kind == "i":
        return {"z": np.asarray(numbers // np.asarray(y))}
    exact = widen(x) / widen(y)
    return {"z": np.asarray(np.floor(exact.astype(numbers.dtype).astype(np.float64)))}


@oracle("SelectV2")
def select_v2(*, condition: npt.ArrayLike, t: npt.ArrayLike, e: npt.ArrayLike) -> dict[str, Values]:
    """The one where the condition holds, the other elsewhere."""
    return {"output": np.asarray(np.where(np.asarray(condition), widen(t), widen(e)))}


@oracle("Select")
def select(*, condition: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> dict[str, Values]:
    """The same; a vector chooses rows."""
    chosen = np.asarray(condition)
    if chosen.ndim == 1:
        chosen = chosen.reshape(-1, *[1] * (np.ndim(x) - 1))
    return select_v2(condition=chosen, t=x, e=y)
