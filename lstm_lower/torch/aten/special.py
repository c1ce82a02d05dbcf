"""Special functions of single elements: the gamma function's kin and the error function's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas import error_functions, gamma
from lstm_lower.torch.aten.registry import Call, Formula, translates

aten = torch.ops.aten


def _computed(function: Callable[[Expr], Expr]) -> Formula:
    def formula(n: Call, x: Expr) -> Expr:
        return function(x.cast(n.dtype))

    return formula


_FORMULAS: dict[Any, Callable[[Expr], Expr]] = {
    aten.digamma: gamma.digamma,
    aten.erfc: error_functions.erfc,
    aten.erfinv: error_functions.erfinv,
    aten.lgamma: gamma.lgamma,
    aten.special_erfcx: error_functions.erfcx,
    aten.special_log_ndtr: error_functions.log_ndtr,
    aten.special_ndtr: error_functions.ndtr,
    aten.special_ndtri: error_functions.ndtri,
}
for _overload, _formula in _FORMULAS.items():
    translates(_overload.default)(_computed(_formula))


@translates(aten.erf.default)
def _erf(n: Call, x: Expr) -> Expr:
    x = x.cast(n.dtype)
    # onnxruntime has a kernel in float32 alone.
    return error_functions.erf(x) if x.dtype == ir.DataType.DOUBLE else n.b.op(std.Erf, x)


@translates(aten.polygamma.default)
def _polygamma(n: Call, order: int, x: Expr) -> Expr:
    x = x.cast(n.dtype)
    return gamma.digamma(x) if order == 0 else gamma.polygamma(x, order)


@translates(aten.mvlgamma.default)
def _mvlgamma(n: Call, x: Expr, rows: int) -> Expr:
    """The logarithm of the gamma function of matrices of so many rows."""
    x = x.cast(n.dtype)
    halves = x.unsqueeze(-1) - n.b.constant([row / 2 for row in range(rows)], x.dtype)
    return gamma.lgamma(halves).sum(len(x.shape or ())) + rows * (rows - 1) / 4 * math.log(math.pi)


@translates(aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar)
def _zeta(n: Call, x: Any, q: Any) -> Expr:
    return gamma.zeta(*n.promoted(x, q, dtype=n.dtype))
