"""Float64 oracles of products of matrices. Integers stay integers, and wrap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lstm_lower.dtypes import DType
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _turned(x: npt.ArrayLike, transposed: bool) -> Values:
    values = wide(x)
    return np.swapaxes(values, -1, -2) if transposed else values


@oracle("MatMul")
def mat_mul(
    *,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    grad_a: bool = False,
    grad_b: bool = False,
) -> dict[str, Values]:
    """The product."""
    with np.errstate(all="ignore"):
        return {"product": np.asarray(_turned(a, transpose_a) @ _turned(b, transpose_b))}


@oracle("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul(
    *,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    adj_x: bool = False,
    adj_y: bool = False,
    grad_x: bool = False,
    grad_y: bool = False,
    Tout: int | None = None,
) -> dict[str, Values]:
    """The products of the last two axes."""
    first, second = (np.conj(_turned(z, turned)) if turned else wide(z) for z, turned in ((x, adj_x), (y, adj_y)))
    if Tout is not None:
        dtype = wide(np.zeros(0, DType(Tout).numpy())).dtype
        first, second = first.astype(dtype), second.astype(dtype)
    with np.errstate(all="ignore"):
        return {"output": np.asarray(first @ second)}


@oracle("Einsum")
def einsum(*, inputs: Sequence[npt.ArrayLike], equation: str, N: int = 0) -> dict[str, Values]:
    """The summation."""
    return {"output": np.asarray(np.einsum(equation, *(wide(part) for part in inputs)))}
