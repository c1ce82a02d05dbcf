"""Elementwise arithmetic."""

from __future__ import annotations

from typing import Any

import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.torch.aten.registry import Call, translates

aten = torch.ops.aten


@translates(aten.add.Tensor, aten.add.Scalar)
def _add(n: Call, x: Expr, y: Any, alpha: Any = 1) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x + (y if alpha == 1 else y * n.scalar(alpha, n.dtype))


@translates(aten.sub.Tensor, aten.sub.Scalar)
def _sub(n: Call, x: Expr, y: Any, alpha: Any = 1) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x - (y if alpha == 1 else y * n.scalar(alpha, n.dtype))


@translates(aten.mul.Tensor, aten.mul.Scalar)
def _mul(n: Call, x: Expr, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x * y


@translates(aten.div.Tensor, aten.div.Scalar)
def _div(n: Call, x: Expr, y: Any) -> Expr:
    x, y = n.promoted(x, y, dtype=n.dtype)
    return x / y


@translates(aten.neg.default)
def _neg(n: Call, x: Expr) -> Expr:
    return -x


@translates(aten.clone.default, aten.alias.default, aten.contiguous.default)
def _same(n: Call, x: Expr) -> Expr:
    return x


@translates(aten._to_copy.default)
def _to_copy(n: Call, x: Expr, dtype: Any = None) -> Expr:
    return n.b.op(std.Cast, x, to=int(n.dtype)) if x.dtype != n.dtype else x
