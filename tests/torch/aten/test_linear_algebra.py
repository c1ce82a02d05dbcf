"""Products, factors and systems of equations next to PyTorch, of matrices of any size."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.aten import ARRAYS, check_together  # noqa: E402


def definite(x: Any) -> Any:
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


CASES: dict[str, Any] = {
    "products": lambda x: (
        x @ x.mT,
        x[0] @ x[0, 0],
        torch.bmm(x, x.mT),
        torch.mm(x[0], x[0].T),
        torch.dot(x[0, 0], x[0, 1]),
        torch.inner(x[0], x[1]),
        torch.tensordot(x, x, dims=([1], [1])),
        torch.linalg.multi_dot([x[0].mT, x[0], x[0].mT]),
        torch.kron(x[0], x[0, 0]),
        torch.trace(x[0]),
        torch.linalg.vander(x),
    ),
    "added": lambda x: (
        torch.addmm(x[0, :2, :2], x[0, :2], x[1, :2].T, alpha=2, beta=0.5),
        torch.baddbmm(x[:, :2, :2], x[:, :2], x[:, :2].mT),
        torch.addmv(x[0, :2, 0], x[0, :2], x[0, 0]),
        torch.addr(x[0], x[0, :, 0], x[0, 0]),
        torch.addbmm(x[0, :2, :2], x[:, :2], x[:, :2].mT, beta=0),
    ),
    "einsum": lambda x: (
        torch.einsum("bti,bsi->bts", x, x),
        torch.einsum("bti->it", x),
        torch.einsum("b t i, i", x, x[0, 0]),
        torch.einsum("...i,...j->...ij", x, x),
        torch.einsum("bij,bjk,bkl->bil", x, x.mT, x),
    ),
    "solve": lambda x: (
        torch.linalg.inv(definite(x)),
        torch.linalg.solve(definite(x) + x[..., :1], x),
        torch.linalg.solve(definite(x), x[..., 0]),
        torch.linalg.solve(definite(x), x.mT, left=False),
        torch.linalg.solve(definite(x[0]), x),
    ),
    "determinants": lambda x: (*torch.linalg.slogdet(definite(x)), torch.det(definite(x)), torch.logdet(definite(x))),
    "small_determinant": lambda x: torch.det(x[:, :2, :2]),
    "cholesky": lambda x: (
        torch.linalg.cholesky(definite(x)),
        torch.linalg.cholesky(definite(x), upper=True),
        torch.cholesky_solve(x, torch.linalg.cholesky(definite(x))),
        torch.linalg.cholesky_ex(definite(x)).L,
    ),
    "triangles": lambda x: (
        torch.linalg.solve_triangular(definite(x), x, upper=True),
        torch.linalg.solve_triangular(definite(x), x.mT, upper=False, left=False),
        torch.linalg.solve_triangular(definite(x), x, upper=False, unitriangular=True),
    ),
    "qr": lambda x: torch.linalg.qr(x * 2),
    "pinv": torch.linalg.pinv,
    "lstsq": lambda x: torch.linalg.lstsq(x, x.cos()).solution,
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    check_together(CASES[name], *ARRAYS, tolerance=2e-5, dtypes=(torch.float32,))


FIXED: dict[str, Any] = {
    "householder": lambda x: (
        torch.linalg.householder_product(x, x[..., 0, :].sin()),
        torch.linalg.householder_product(x, x[..., 0, :2].sin()),
    ),
    "exponential": lambda x: (
        torch.matrix_exp(x[:, :3]),
        torch.matrix_exp(x[0, :3] * 3),
        torch.matrix_exp(x[0, :3] * 1e-9),
    ),
    "wide_qr": lambda x: torch.linalg.qr(x.mT * 2),
}


@pytest.mark.parametrize("name", FIXED)
def test_at_the_example_s_size(name: str) -> None:
    check_together(FIXED[name], ARRAYS[0], tolerance=2e-5, dtypes=(torch.float32,))


def test_double_precision() -> None:
    check_together(
        lambda x: (torch.linalg.solve(definite(x), x), torch.linalg.cholesky(definite(x))),
        *ARRAYS,
        dtypes=(torch.float64,),
    )
