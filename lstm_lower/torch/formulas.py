"""What needs a loop over an axis, or a formula that stands elsewhere already, as ONNX."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas import cumulative, elimination, special_functions
from lstm_lower.passes.formulas.special_functions import digamma, expm1_of, lgamma, log1p_of, polygamma
from lstm_lower.passes.training.losses import CTC
from lstm_lower.torch import front_indices
from lstm_lower.torch.matrices import MATRICES
from lstm_lower.torch.nodes import Formula, Traced

INT64 = ir.DataType.INT64


def rolling_product(n: Traced) -> list[Expr | None]:
    """Products of all elements up to each one along an axis."""
    return [cumulative.product(n.operand(0), n.attribute("axis"))]


def running_place(n: Traced) -> list[Expr | None]:
    """Where the largest or smallest element up to each one along an axis is."""
    return [cumulative.extreme_place(n.operand(0), n.attribute("axis"), largest=bool(n.attribute("largest")))]


def running_log_sum_exp(n: Traced) -> list[Expr | None]:
    """The logarithm of the sum of the exponentials of all elements up to each one."""
    return [cumulative.log_sum_exp(n.operand(0), n.attribute("axis"))]


def eliminate(n: Traced) -> list[Expr | None]:
    """Pivots [n, ...], and x of a x = b."""
    right = n.operand(1) if len(n.operands) > 1 else None
    pivots, solved = elimination.eliminate(n.operand(0), right, pivoting=bool(n.attribute("pivoting")))
    return [pivots] if right is None else [pivots, solved]


def cholesky(n: Traced) -> list[Expr | None]:
    """The columns [n, ..., n] of a lower triangle."""
    return [elimination.cholesky(n.operand(0))]


def ctc(n: Traced) -> list[Expr | None]:
    """The loss of `ll.from_torch`'s table."""
    options = {name: n.attribute(name) for name in ("blank", "reduction")}
    loss = CTC(zero_infinity=bool(n.attribute("zero_infinity")), **options)
    return [loss.value(*(n.operand(index) for index in range(4)))]


def _polygamma(n: Traced) -> list[Expr | None]:
    x = n.operand(0)
    return [polygamma(x, n.attribute("order")).cast(x.dtype)]


def _elementwise(function: Callable[[Expr], Expr]) -> Formula:
    def formula(n: Traced) -> list[Expr | None]:
        x = n.operand(0)
        return [function(x).cast(x.dtype)]

    return formula


FORMULAS: dict[str, Formula] = {
    "CTC": ctc,
    "Cholesky": cholesky,
    "Digamma": _elementwise(digamma),
    "Eliminate": eliminate,
    "Erfc": _elementwise(special_functions.erfc),
    "Erfcx": _elementwise(special_functions.erfcx),
    "Erfinv": _elementwise(special_functions.erfinv),
    "ErrorFunction": _elementwise(special_functions.erf),
    "Expm1": _elementwise(expm1_of),
    "GaussianGate": _elementwise(special_functions.gelu),
    "Lgamma": _elementwise(lgamma),
    "Log1p": _elementwise(log1p_of),
    "LogNdtr": _elementwise(special_functions.log_ndtr),
    "Ndtr": _elementwise(special_functions.ndtr),
    "Ndtri": _elementwise(special_functions.ndtri),
    "Polygamma": _polygamma,
    "RollingProduct": rolling_product,
    "RunningLogSumExp": running_log_sum_exp,
    "RunningPlace": running_place,
    **MATRICES,
    **front_indices.FORMULAS,
}
