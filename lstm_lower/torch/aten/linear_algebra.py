"""Products, factorizations and solutions of linear systems, of matrices of any size: the last two axes of an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, detached
from lstm_lower.passes.formulas import linear_algebra
from lstm_lower.passes.formulas.linear_algebra import exponential
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten import open_sizes
from lstm_lower.torch.aten.arrays import broadcast_to, common_shape, rank_of, sizes_of
from lstm_lower.torch.aten.registry import AtenCall, Size, translates
from lstm_lower.torch.aten.tracing import traces

aten = torch.ops.aten

# Products.


@translates(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default)
def _matmul(n: AtenCall, x: Expr, y: Expr) -> Expr:
    return x @ y


@translates(aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
def _added_product(n: AtenCall, x: Expr, a: Expr, b: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    return _weighted(n, x, a @ b, beta, alpha)


@translates(aten.addbmm.default)
def _added_products(n: AtenCall, x: Expr, a: Expr, b: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    return _weighted(n, x, (a @ b).sum(0), beta, alpha)


@translates(aten.addr.default)
def _added_outer(n: AtenCall, x: Expr, a: Expr, b: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    return _weighted(n, x, a.unsqueeze(1) * b, beta, alpha)


def _weighted(n: AtenCall, x: Expr, product: Expr, beta: Any, alpha: Any) -> Expr:
    """A sum with factors; of the factor 0 not even what is no number counts."""
    product = product if _is(alpha, 1) else product * n.scalar(alpha, product.dtype)
    if _is(beta, 0):
        return product
    return product + (x if _is(beta, 1) else x * n.scalar(beta, x.dtype))


def _is(number: Any, value: int) -> bool:
    return not isinstance(number, Expr) and bool(number == value)


@translates(aten.einsum.default)
def _einsum(n: AtenCall, equation: str, operands: Sequence[Expr], **_: Any) -> Expr:
    """The products one after another, from left to right."""
    return n.b.op(std.Einsum, *operands, equation=equation.replace(" ", ""))


# Matrices.


def transposed(x: Expr) -> Expr:
    """Each matrix with rows as columns."""
    rank = rank_of(x)
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


def _identity(like: Expr, axis: int = -1) -> Expr:
    """A unit matrix [n, n] of the size of an axis."""
    numbers = up_to(like.builder, like.size(axis))
    return numbers.unsqueeze(1).equals(numbers).cast(like.dtype)


def _expanded(x: Expr, like: Expr) -> Expr:
    """A matrix, repeated for each of many."""
    if rank_of(like) == 2:
        return x
    batch = like.sizes().slice(0, -2, axis=0)
    return x.builder.op(std.Expand, x, x.builder.concat([batch, x.sizes().slice(-2, END, axis=0)], 0))


def _with_equal_batches(n: AtenCall, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if rank_of(a) == rank_of(b) == 2:
        return a, b
    shapes = [n.fake(place).shape for place in (0, 1)]
    if list(map(str, shapes[0][:-2])) == list(map(str, shapes[1][:-2])):
        return a, b
    batch = n.sizes(common_shape(shapes[0][:-2], shapes[1][:-2]))
    first, second = (broadcast_to(n, x, [*batch, *sizes_of(x)[-2:]]) for x in (a, b))
    return first, second


def _band(x: Expr, *, upper: bool, offset: int = 0) -> Expr:
    """One triangle, and zeros."""
    moved = [x.builder.constant(offset)] if offset else []
    return x.builder.op(std.Trilu, x, *moved, upper=int(upper))


def diagonal(x: Expr) -> Expr:
    """The elements [..., n] of a square matrix whose row and column are the same."""
    return (x * _identity(x)).sum(rank_of(x) - 1)


def _success(n: AtenCall, a: Expr) -> Expr:
    """Zeros for each matrix: what fails has no numbers as its result."""
    return (
        n.b.fill(0, n.vector(sizes_of(a)[:-2]), ir.DataType.INT32) if rank_of(a) > 2 else n.scalar(0, ir.DataType.INT32)
    )


# Linear systems.


def solved(a: Expr, right: Expr) -> Expr:
    """The x of a x = right."""
    result = linear_algebra.eliminate(a, right, pivoting=True)[1]
    assert result is not None
    return result


def _solved_for(n: AtenCall, a: Expr, right: Expr, *, left: bool) -> Expr:
    """The x of a x = right, or of x a = right; a right side with an axis less is of vectors."""
    shapes = [list(map(str, n.fake(place).shape)) for place in (0, 1)]
    if len(shapes[1]) == 1 or shapes[1] == shapes[0][:-1]:
        return solved(*_with_equal_batches(n, a, right.unsqueeze(-1))).squeeze(-1)
    a, right = _with_equal_batches(n, a, right)
    return solved(a, right) if left else transposed(solved(transposed(a), transposed(right)))


@translates(aten._linalg_solve_ex.default, aten.linalg_solve_ex.default)
def _solve_ex(n: AtenCall, a: Expr, right: Expr, *, left: bool = True, **_: Any) -> list[Expr | None]:
    whole = [_solved_for(n, a, right, left=left), None, None, _success(n, a)]
    return whole if len(n.results) == len(whole) else [whole[0], whole[-1]]


@translates(aten.linalg_solve.default)
def _solve(n: AtenCall, a: Expr, right: Expr, *, left: bool = True) -> Expr:
    return _solved_for(n, a, right, left=left)


def _inverted(a: Expr) -> Expr:
    return solved(a, _expanded(_identity(a), a))


@translates(aten.linalg_inv_ex.default)
def _inverse_ex(n: AtenCall, a: Expr, **_: Any) -> list[Expr]:
    return [_inverted(a), _success(n, a)]


@translates(aten.linalg_inv.default, aten.inverse.default)
def _inverse(n: AtenCall, a: Expr) -> Expr:
    return _inverted(a)


def _pivots(a: Expr) -> Expr:
    return linear_algebra.eliminate(a, None, pivoting=True)[0]


@translates(aten._linalg_det.default)
def _det(n: AtenCall, a: Expr) -> list[Expr | None]:
    """Of a size that is known ONNX has the operator, and onnxruntime a kernel in float32."""
    if isinstance(a.size(-1), int) and a.dtype == ir.DataType.FLOAT:
        return [n.b.op(std.Det, a), None, None]
    return [_pivots(a).reduce(std.ReduceProd, 0, keepdims=False), None, None]


@translates(aten._linalg_slogdet.default)
def _slogdet(n: AtenCall, a: Expr) -> list[Expr | None]:
    pivots = _pivots(a)
    sign = n.b.op(std.Sign, pivots).reduce(std.ReduceProd, 0, keepdims=False)
    return [sign, pivots.abs().log().sum(0), None, None]


def triangular_solved(a: Expr, right: Expr, *, upper: bool, left: bool = True, unit: bool = False) -> Expr:
    """The x of a x = right, or of x a = right, where one triangle of a is read, without its diagonal if that is 1."""
    if not left:
        return transposed(triangular_solved(transposed(a), transposed(right), upper=not upper, unit=unit))
    if unit:
        a = _band(a, upper=upper, offset=1 if upper else -1) + _identity(a)
    return linear_algebra.triangular_solve(a, right, lower=not upper)


@translates(aten.linalg_solve_triangular.default)
def _solve_triangular(
    n: AtenCall, a: Expr, right: Expr, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    a, right = _with_equal_batches(n, a, right)
    return triangular_solved(a, right, upper=upper, left=left, unit=unitriangular)


@translates(aten.triangular_solve.default)
def _old_triangular_solve(
    n: AtenCall, right: Expr, a: Expr, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> list[Expr]:
    right, a = _with_equal_batches(n, right, a)
    matrix = transposed(a) if transpose else a
    return [triangular_solved(matrix, right, upper=upper != transpose, unit=unitriangular), a]


# Cholesky's factors.


def _cholesky(a: Expr, *, upper: bool) -> Expr:
    """What is read is one triangle; the gradient is that of a symmetric matrix, as in PyTorch."""
    triangle = _band(a, upper=upper)
    symmetric = (a + transposed(a)) / 2
    whole = triangle + transposed(_band(a, upper=upper, offset=1 if upper else -1))
    symmetric = symmetric + detached(whole - symmetric)
    columns, rank = linear_algebra.cholesky(symmetric), rank_of(a)
    return columns.transpose(*range(1, rank - 1), 0, rank - 1) if upper else columns.transpose(*range(1, rank), 0)


@translates(aten.linalg_cholesky_ex.default)
def _cholesky_ex(n: AtenCall, a: Expr, *, upper: bool = False, check_errors: bool = False) -> list[Expr]:
    return [_cholesky(a, upper=upper), _success(n, a)]


@traces(torch.cholesky, Tensor.cholesky)
def _older_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """By its newer name: PyTorch 2.14 has no operator of the older one."""
    return torch.linalg.cholesky(input, upper=upper)


@translates(aten.linalg_cholesky.default)
def _cholesky_factor(n: AtenCall, a: Expr, upper: bool = False) -> Expr:
    return _cholesky(a, upper=upper)


def _cholesky_solved(factor: Expr, right: Expr, *, upper: bool) -> Expr:
    lower = transposed(factor) if upper else factor
    return triangular_solved(transposed(lower), triangular_solved(lower, right, upper=False), upper=True)


@translates(aten.cholesky_solve.default)
def _cholesky_solve(n: AtenCall, right: Expr, factor: Expr, upper: bool = False) -> Expr:
    right, factor = _with_equal_batches(n, right, factor)
    return _cholesky_solved(factor, right, upper=upper)


@translates(aten.cholesky_inverse.default)
def _cholesky_inverse(n: AtenCall, factor: Expr, upper: bool = False) -> Expr:
    return _cholesky_solved(factor, _expanded(_identity(factor), factor), upper=upper)


# Orthogonal factors.


def _orthogonal(a: Expr) -> tuple[Expr, Expr]:
    """Q [..., m, n] and R [..., n, n] of a matrix of full rank with m >= n."""
    q, r = map(detached, linear_algebra.qr(a, full=False))
    # Steps of Newton's method, which bring the gradients: one of them the first, two of them those of gradients, too.
    for _ in range(2):
        rest = triangular_solved(r, a - q @ r, upper=True, left=False)
        skewed = (_identity(a) - transposed(q) @ q) / 2
        aslant = transposed(q) @ rest
        low = _band(aslant - skewed, upper=False, offset=-1)
        both = low - transposed(low) + skewed
        q, r = q + rest - q @ (aslant - both), r + _band((aslant - both) @ r, upper=True)
    return q, r


def _is_tall(fake: Any) -> bool:
    return bool(fake.shape[-2] >= fake.shape[-1])


@translates(aten.linalg_qr.default)
def _qr(n: AtenCall, a: Expr, mode: str = "reduced") -> list[Expr | None]:
    if mode == "complete":
        raise n.refuse("mode='reduced' or 'r', got 'complete'", "the first is its part")
    if _is_tall(n.fake(0)):
        q, r = _orthogonal(a)
    else:
        rows, rank = a.size(-2), rank_of(a)
        q, r = _orthogonal(a.slice(0, rows, axis=rank - 1))
        r = n.b.concat([r, transposed(q) @ n.b.slice(a, rows, END, rank - 1)], rank - 1)
    return [q if mode == "reduced" else n.b.fill(0, [0], a.dtype), r]


@translates(aten.linalg_householder_product.default)
def _householder_product(n: AtenCall, a: Expr, tau: Expr) -> Expr:
    """The first columns of a product of reflections, whose vectors stand below the diagonal."""
    b, rank = n.b, rank_of(a)
    rows, columns = (up_to(b, a.size(axis)) for axis in (-2, -1))
    vectors = _band(a, upper=False, offset=-1) + rows.unsqueeze(1).equals(columns).cast(a.dtype)
    # A reflection by 0 is none.
    missing = n.b.sizes([a.size(-1)]) - n.b.sizes([tau.size(-1)])
    widths = b.concat([b.ints(*[0] * (2 * rank - 3)), missing], 0)
    return linear_algebra.product(vectors, b.op(std.Pad, tau, widths))


def _of_full_rank(b: Builder, r: Expr, rows: Size) -> Expr:
    """The triangle, of no numbers where its rank is not full, of which the formulas here know nothing."""
    sizes, rank = diagonal(r).abs(), rank_of(r)
    count = b.sizes([rows if isinstance(rows, int) else rows.reshape(1)]).cast(r.dtype)
    least = sizes.reduce(std.ReduceMax, rank - 2) * (count * float(np.finfo(r.dtype.numpy()).eps))
    full = ~((~(sizes > least)).cast(ir.DataType.INT32).sum(rank - 2, keepdims=True) > 0)
    return b.where(full.unsqueeze(rank - 1), r, math.nan)


def _least_squares(n: AtenCall, a: Expr, right: Expr, *, tall: bool) -> Expr:
    """The smallest x of all for which a x is closest to what is given, of a matrix of full rank."""
    if tall:
        q, r = _orthogonal(a)
        return triangular_solved(_of_full_rank(n.b, r, a.size(-2)), transposed(q) @ right, upper=True)
    q, r = _orthogonal(transposed(a))
    return q @ triangular_solved(transposed(_of_full_rank(n.b, r, a.size(-1))), right, upper=False)


@translates(open_sizes.least_squares)
def _lstsq(n: AtenCall, a: Expr, right: Expr) -> Expr:
    a, right = _with_equal_batches(n, a, right)
    return _least_squares(n, a, right, tall=_is_tall(n.fake(0)))


@translates(aten.linalg_pinv.atol_rtol_tensor, aten.linalg_pinv.default)
def _pinv(n: AtenCall, a: Expr, *args: Any, **options: Any) -> Expr:
    """Of a matrix of full rank."""
    if args or any(value is not None and value is not False for value in options.values()):
        raise n.refuse("a matrix of full rank and no options", "without them it is the same for such a matrix")
    tall = _is_tall(n.fake(0))
    matrix = a if tall else transposed(a)
    result = _least_squares(n, matrix, _expanded(_identity(matrix, -2), matrix), tall=True)
    return result if tall else transposed(result)


@translates(aten.linalg_matrix_exp.default, aten.matrix_exp.default)
def _matrix_exp(n: AtenCall, a: Expr) -> Expr:
    return exponential(a)


@translates(aten.trace.default)
def _trace(n: AtenCall, x: Expr) -> Expr:
    rows, columns = (up_to(x.builder, x.size(axis)) for axis in (0, 1))
    return x.builder.where(rows.unsqueeze(1).equals(columns), x, x.like(0)).sum((0, 1))
