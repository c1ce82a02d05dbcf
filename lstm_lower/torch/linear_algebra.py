"""Systems of linear equations of any size: elimination and Cholesky's decomposition, in loops over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lstm_lower.torch.functions import broadcast, node, stopped
from lstm_lower.torch.nodes import DOMAIN


def _eliminated(matrix: Tensor, right: Tensor | None, *, pivoting: bool = True) -> tuple[Tensor, Tensor]:
    """What solves matrix [..., n, n] @ x = right [..., n, m], and the pivots [n, ...], with signs for swapped rows."""
    outputs = [(matrix, (matrix.shape[-1], *matrix.shape[:-2]))]
    if right is not None:
        outputs.append((right, right.shape))
    pivots, *solved = node(f"{DOMAIN}::Eliminate", [matrix, right], {"pivoting": int(pivoting)}, outputs)
    return (solved[0] if solved else pivots), pivots


def _with_equal_batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.dim() == b.dim() == 2:
        return a, b
    shape = broadcast(a.shape[:-2], b.shape[:-2])
    return a.expand(*shape, *a.shape[-2:]), b.expand(*shape, *b.shape[-2:])


def _solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    if vector or left:
        x = _eliminated(*_with_equal_batches(A, right))[0]
        return x.squeeze(-1) if vector else x
    return _solve(A.mT, right.mT).mT


def _inverse(A: Tensor) -> Tensor:
    return _eliminated(A, torch.eye(A.shape[-1], dtype=A.dtype).expand(A.shape))[0]


def _det(A: Tensor) -> Any:
    """Of a size that is known ONNX has the operator."""
    size: Any = A.shape[-1]
    return NotImplemented if isinstance(size, int) else _eliminated(A, None)[1].prod(0)


def _slogdet(A: Tensor) -> Any:
    pivots = _eliminated(A, None)[1]
    kinds: Any = torch.return_types
    return kinds.linalg_slogdet((pivots.sign().prod(0), pivots.abs().log().sum(0)))


def _logdet(input: Tensor) -> Tensor:  # noqa: A002
    sign, logarithm = _slogdet(input)
    return torch.where(sign < 0, torch.nan, logarithm)


def _solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """Elimination without swaps; an upper triangle is a lower one from its end."""
    if not left:
        return _solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    A, B = _with_equal_batches(A, B)
    if upper:
        A, B = A.flip(-1, -2), B.flip(-2)
    lower = A.tril(-1) + torch.eye(A.shape[-1], dtype=A.dtype) if unitriangular else A.tril()
    x = _eliminated(lower, B, pivoting=False)[0]
    return x.flip(-2) if upper else x


def _cholesky(A: Tensor, upper: bool = False) -> Tensor:
    """What is read is one triangle; the gradient is that of a symmetric matrix, as in PyTorch."""
    triangle = A.triu() if upper else A.tril()
    symmetric = (A + A.mT) / 2
    symmetric = symmetric + stopped(triangle + triangle.mT - torch.diag_embed(triangle.diagonal(0, -1, -2)) - symmetric)
    columns = node(f"{DOMAIN}::Cholesky", [symmetric], {}, [(A, (A.shape[-1], *A.shape[:-1]))])[0]
    return columns.movedim(0, -2 if upper else -1)


def _cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    lower = L.mT if upper else L
    return _solve_triangular(lower.mT, _solve_triangular(lower, B, upper=False), upper=True)


def _cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    return _cholesky_solve(torch.eye(L.shape[-1], dtype=L.dtype).expand(L.shape), L, upper)


LINEAR_ALGEBRA: dict[Any, Callable[..., Any]] = {
    torch.cholesky_inverse: _cholesky_inverse,
    torch.cholesky_solve: _cholesky_solve,
    torch.det: _det,
    torch.inverse: _inverse,
    torch.linalg.cholesky: _cholesky,
    torch.linalg.det: _det,
    torch.linalg.inv: _inverse,
    torch.linalg.slogdet: _slogdet,
    torch.linalg.solve: _solve,
    torch.linalg.solve_triangular: _solve_triangular,
    torch.logdet: _logdet,
    torch.slogdet: _slogdet,
    Tensor.cholesky_inverse: _cholesky_inverse,
    Tensor.cholesky_solve: _cholesky_solve,
    Tensor.det: _det,
    Tensor.inverse: _inverse,
    Tensor.logdet: _logdet,
    Tensor.slogdet: _slogdet,
}
