"""Systems of linear equations of any size: elimination, Cholesky's factors and reflections, in loops over columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.functions import broadcast, node, rolling_product, stopped
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


def _orthogonal(A: Tensor) -> tuple[Tensor, Tensor]:
    """Q [..., m, n] and R [..., n, n] of a matrix of full rank with m >= n."""
    size = A.shape[-1]
    Q, R = node(f"{DOMAIN}::Householder", [A], {}, [(A, A.shape), (A, (*A.shape[:-2], size, size))])
    Q, R = stopped(Q), stopped(R)
    # Steps of Newton's method, which bring the gradients: one of them the first, two of them those of gradients, too.
    for _ in range(2):
        rest = _solve_triangular(R, A - Q @ R, upper=True, left=False)
        skewed = (torch.eye(size, dtype=A.dtype) - Q.mT @ Q) / 2
        turned = Q.mT @ rest
        low = (turned - skewed).tril(-1)
        both = low - low.mT + skewed
        Q, R = Q + rest - Q @ (turned - both), R + ((turned - both) @ R).triu()
    return Q, R


def _householder_product(input: Tensor, tau: Tensor) -> Tensor:  # noqa: A002
    """The first columns of a product of reflections, whose vectors stand below the diagonal."""
    vectors = input.tril(-1) + torch.eye(*input.shape[-2:], dtype=input.dtype)
    # A reflection by 0 is none.
    tau = functional.pad(tau, (0, input.shape[-1] - tau.shape[-1]))
    return node(f"{DOMAIN}::Reflections", [vectors, tau], {}, [(input, input.shape)])[0]


def _qr(A: Tensor, mode: str = "reduced") -> Any:
    if mode == "complete":
        raise UnsupportedOpError(
            "torch.linalg.qr requires mode='reduced' or 'r', got 'complete'; the first is its part"
        )
    rows, columns = A.shape[-2:]
    kinds: Any = torch.return_types
    if mode == "r":
        return kinds.linalg_qr((A.new_zeros(0), _qr(A)[1]))
    if rows >= columns:
        return kinds.linalg_qr(_orthogonal(A))
    Q, R = _orthogonal(A[..., :rows])
    return kinds.linalg_qr((Q, torch.cat([R, Q.mT @ A[..., rows:]], -1)))


def _known(R: Tensor, rows: Any) -> Tensor:
    """The triangle, of no numbers where it shows a rank that is not full, of which the formulas here know nothing."""
    sizes = R.diagonal(0, -1, -2).abs()
    least = sizes.amax(-1, keepdim=True) * (torch.finfo(R.dtype).eps * rows)
    full = (sizes > least).all(-1, keepdim=True).unsqueeze(-1)
    return torch.where(full, R, torch.nan)


def _least_squares(A: Tensor, B: Tensor) -> Tensor:
    """The smallest x of all for which A @ x is closest to B, of a matrix of full rank."""
    rows, columns = A.shape[-2:]
    if rows >= columns:
        Q, R = _orthogonal(A)
        return _solve_triangular(_known(R, rows), Q.mT @ B, upper=True)
    Q, R = _orthogonal(A.mT)
    return Q @ _solve_triangular(_known(R, columns).mT, B, upper=False)


def _lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:  # noqa: ARG001
    """The solution of a matrix of full rank, and beside it what the driver of LAPACK tells."""
    if driver not in (None, "gelsy", "gels"):
        raise UnsupportedOpError(
            f"torch.linalg.lstsq requires a driver that finds no singular values, got {driver!r}; 'gelsy' finds the "
            "same solution of a matrix of full rank"
        )
    vector = B.dim() == 1
    x = _least_squares(*_with_equal_batches(A, B.unsqueeze(-1) if vector else B))
    rows, columns = A.shape[-2:]
    rest = A @ x - (B.unsqueeze(-1) if vector else B)
    residuals, rank = A.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    if driver != "gels":
        rank = torch.full(A.shape[:-2], min(rows, columns), dtype=torch.int64)
    elif rows > columns:
        residuals = (rest * rest).sum(-2)
    x = x.squeeze(-1) if vector else x
    kinds: Any = torch.return_types
    return kinds.linalg_lstsq((x, residuals, rank, A.new_zeros(0)))


def _pinv(A: Tensor, *args: Any, **options: Any) -> Tensor:
    """Of a matrix of full rank."""
    if args or options:
        raise UnsupportedOpError(
            f"torch.linalg.pinv requires a matrix of full rank and no options, got {sorted(options) or args}; without "
            "them it is the same for such a matrix"
        )
    if A.shape[-2] >= A.shape[-1]:
        return _least_squares(A, torch.eye(A.shape[-2], dtype=A.dtype).expand(*A.shape[:-1], A.shape[-2]))
    return _pinv(A.mT).mT


def _with_success(function: Callable[..., Tensor], kind: str) -> Callable[..., Any]:
    """A function of matrices, and beside its result zeros: what fails has no numbers as its result."""

    def called(A: Tensor, *args: Any, check_errors: bool = False, **options: Any) -> Any:  # noqa: ARG001
        success = torch.zeros(A.shape[:-2], dtype=torch.int32)
        return getattr(torch.return_types, kind)((function(A, *args, **options), success))

    return called


def _tensor_inverse(A: Tensor, ind: int = 2) -> Tensor:
    return _inverse(A.flatten(ind).flatten(0, ind - 1)).reshape(*A.shape[ind:], *A.shape[:ind])


def _tensor_solve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    moved = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    rest = moved.shape[B.dim() :]
    return _solve(moved.reshape(B.numel(), -1), B.flatten()).reshape(rest)


def _vandermonde(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers of each number, from 0 on."""
    count = x.shape[-1] if N is None else N
    powers = rolling_product(x.unsqueeze(-1).expand(*x.shape, count - 1), -1)
    return torch.cat([torch.ones_like(x).unsqueeze(-1), powers], -1)


def _vandermonde_down(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The same, as NumPy has it."""
    powers = _vandermonde(x, N=N)
    return powers if increasing else powers.flip(-1)


def _matrix_exp(A: Tensor) -> Tensor:
    return node(f"{DOMAIN}::MatrixExponential", [A], {}, [(A, A.shape)])[0]


def _kron(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Each element times a whole matrix, one behind the other along all axes."""
    dims = max(input.dim(), other.dim())
    shapes: list[list[Any]] = [[1] * (dims - x.dim()) + list(x.shape) for x in (input, other)]
    first, second = (
        x.reshape([size for pair in zip(*sides, strict=True) for size in pair])
        for x, sides in ((input, (shapes[0], [1] * dims)), (other, ([1] * dims, shapes[1])))
    )
    return (first * second).reshape([a * b for a, b in zip(*shapes, strict=True)])


def _matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, **options: Any) -> Any:  # noqa: A002
    """The largest or least sum of magnitudes of rows or columns; PyTorch's own fixes sizes."""
    if ord not in (1, -1, math.inf, -math.inf) or options or isinstance(ord, str):
        return NotImplemented
    rows, columns = (axis % A.dim() for axis in dim)
    summed, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(summed, keepdim=True)
    found = sums.amax(rest, keepdim=True) if ord > 0 else sums.amin(rest, keepdim=True)
    return found if keepdim else found.squeeze((rows, columns))


def _multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """From left to right; which order is best depends on sizes."""
    return functools.reduce(torch.matmul, tensors)


def _block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along a diagonal."""
    blocks = [x.reshape(1, -1) if x.dim() < 2 else x for x in tensors]
    widths: list[Any] = [x.shape[1] for x in blocks]
    return torch.cat(
        [functional.pad(x, (sum(widths[:place]), sum(widths[place + 1 :]))) for place, x in enumerate(blocks)]
    )


LINEAR_ALGEBRA: dict[Any, Callable[..., Any]] = {
    torch.block_diag: _block_diag,
    torch.cholesky: _cholesky,
    torch.cholesky_inverse: _cholesky_inverse,
    torch.cholesky_solve: _cholesky_solve,
    torch.det: _det,
    torch.inverse: _inverse,
    torch.linalg.cholesky: _cholesky,
    torch.linalg.cholesky_ex: _with_success(_cholesky, "linalg_cholesky_ex"),
    torch.linalg.det: _det,
    torch.linalg.inv: _inverse,
    torch.linalg.inv_ex: _with_success(_inverse, "linalg_inv_ex"),
    torch.linalg.householder_product: _householder_product,
    torch.linalg.lstsq: _lstsq,
    torch.linalg.matrix_norm: _matrix_norm,
    torch.linalg.matrix_exp: _matrix_exp,
    torch.kron: _kron,
    torch.linalg.multi_dot: _multi_dot,
    torch.linalg.pinv: _pinv,
    torch.linalg.qr: _qr,
    torch.linalg.slogdet: _slogdet,
    torch.linalg.solve: _solve,
    torch.linalg.solve_ex: _with_success(_solve, "linalg_solve_ex"),
    torch.linalg.solve_triangular: _solve_triangular,
    torch.linalg.tensorinv: _tensor_inverse,
    torch.linalg.tensorsolve: _tensor_solve,
    torch.linalg.vander: _vandermonde,
    torch.logdet: _logdet,
    torch.matrix_exp: _matrix_exp,
    torch.orgqr: _householder_product,
    torch.pinverse: _pinv,
    torch.slogdet: _slogdet,
    torch.vander: _vandermonde_down,
    Tensor.cholesky_inverse: _cholesky_inverse,
    Tensor.cholesky_solve: _cholesky_solve,
    Tensor.det: _det,
    Tensor.inverse: _inverse,
    Tensor.logdet: _logdet,
    Tensor.matrix_exp: _matrix_exp,
    Tensor.pinverse: _pinv,
    Tensor.slogdet: _slogdet,
}
