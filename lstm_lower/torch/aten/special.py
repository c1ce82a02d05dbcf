"""Special functions of single elements: the gamma function's kin and the error function's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas import special_functions
from lstm_lower.torch.aten.registry import AtenCall, Formula, translates

aten = torch.ops.aten


def _computed(function: Callable[[Expr], Expr]) -> Formula:
    def formula(n: AtenCall, x: Expr) -> Expr:
        return function(x.cast(n.dtype))

    return formula


_FORMULAS: dict[Any, Callable[[Expr], Expr]] = {
    aten.digamma: special_functions.digamma,
    aten.erfc: special_functions.erfc,
    aten.erfinv: special_functions.erfinv,
    aten.lgamma: special_functions.lgamma,
    aten.special_erfcx: special_functions.erfcx,
    aten.special_log_ndtr: special_functions.log_ndtr,
    aten.special_ndtr: special_functions.ndtr,
    aten.special_ndtri: special_functions.ndtri,
}
for _overload, _formula in _FORMULAS.items():
    translates(_overload.default)(_computed(_formula))


@translates(aten.erf.default)
def _erf(n: AtenCall, x: Expr) -> Expr:
    x = x.cast(n.dtype)
    # onnxruntime has a kernel in float32 alone.
    return special_functions.erf(x) if x.dtype == ir.DataType.DOUBLE else n.b.op(std.Erf, x)


@translates(aten.polygamma.default)
def _polygamma(n: AtenCall, order: int, x: Expr) -> Expr:
    x = x.cast(n.dtype)
    return special_functions.digamma(x) if order == 0 else special_functions.polygamma(x, order)


@translates(aten.mvlgamma.default)
def _mvlgamma(n: AtenCall, x: Expr, rows: int) -> Expr:
    """The logarithm of the gamma function of matrices of so many rows."""
    x = x.cast(n.dtype)
    halves = x.unsqueeze(-1) - n.b.constant([row / 2 for row in range(rows)], x.dtype)
    return special_functions.lgamma(halves).sum(len(x.shape or ())) + rows * (rows - 1) / 4 * math.log(math.pi)


@translates(aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar)
def _zeta(n: AtenCall, x: Any, q: Any) -> Expr:
    return special_functions.zeta(*n.promoted(x, q, dtype=n.dtype))
