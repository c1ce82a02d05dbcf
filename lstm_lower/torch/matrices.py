"""Factors and functions of matrices of any size, in loops, as ONNX."""

from __future__ import annotations

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.matrix_functions import exponential
from lstm_lower.passes.formulas.reflections import product, qr
from lstm_lower.torch.nodes import Formula, Traced


def _householder(n: Traced) -> list[Expr | None]:
    """Q [..., m, n] and R [..., n, n] of a matrix with m >= n."""
    return list(qr(n.operand(0), full=False))


def _reflections(n: Traced) -> list[Expr | None]:
    return [product(n.operand(0), n.operand(1))]


def _exponential(n: Traced) -> list[Expr | None]:
    return [exponential(n.operand(0))]


MATRICES: dict[str, Formula] = {
    "Householder": _householder,
    "MatrixExponential": _exponential,
    "Reflections": _reflections,
}
