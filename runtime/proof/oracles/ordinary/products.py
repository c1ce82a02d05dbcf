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
    """The summation; where the result has a label several times, by what selects the diagonal."""
    text, values = equation.replace(" ", ""), [wide(part) for part in inputs]
    terms, _, output = text.partition("->")
    operands, written = [*terms.split(",")], ""
    for place, label in enumerate(output):
        if label in written and label != ".":
            size = next(
                part.shape[term.index(label)]
                for term, part in zip(terms.split(","), values, strict=False)
                if label in term
            )
            new = next(letter for letter in "ABCDEFGHIJ" if letter not in text and letter not in written)
            operands.append(label + new)
            values.append(np.eye(size, dtype=values[0].dtype))
            written += new
        else:
            written += output[place]
    return {"output": np.asarray(np.einsum(f"{','.join(operands)}->{written}", *values))}
