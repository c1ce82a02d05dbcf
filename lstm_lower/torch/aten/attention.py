"""Attention: the scaled product of queries, keys and values (Vaswani et al., 2017)."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.layers import dropped, rank_of
from lstm_lower.torch.aten.registry import AtenCall, Size, translates

aten = torch.ops.aten


@translates(aten.scaled_dot_product_attention.default)
def _attention(
    n: AtenCall,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """Softmax(q k^T s + mask) v; a query that may look at nothing gets zeros."""
    b, rank = n.b, rank_of(query)
    sizes = [n.sizes(n.fake(place)) for place in range(3)]
    if enable_gqa:
        key, value = (_repeated(n, x, shape, sizes[0][-3]) for x, shape in ((key, sizes[1]), (value, sizes[2])))
    if scale is None:
        width = sizes[0][-1]
        factor = 1 / math.sqrt(width) if isinstance(width, int) else 1 / width.cast(query.dtype).sqrt()
    else:
        factor = scale
    turned = key.transpose(*range(rank_of(key) - 2), rank_of(key) - 1, rank_of(key) - 2)
    scores = (query * factor) @ turned
    if is_causal:
        rows, columns = (up_to(b, shape[-2]) for shape in sizes[:2])
        scores = b.where(columns.unsqueeze(0) <= rows.unsqueeze(1), scores, -math.inf)
    weights = _weights(n, scores, mask, rank)
    return dropped(weights, dropout) @ value if dropout else weights @ value


def _weights(n: AtenCall, scores: Expr, mask: Expr | None, rank: int) -> Expr:
    b, last = n.b, max(rank, rank_of(scores)) - 1
    if mask is None:
        return b.op(std.Softmax, scores, axis=last)
    added = mask
    seen = mask if mask.dtype == ir.DataType.BOOL else mask > -math.inf
    if mask.dtype == ir.DataType.BOOL:
        added = b.where(mask, scores.like(0), -math.inf)
    weights = b.op(std.Softmax, scores + added.cast(scores.dtype), axis=last)
    some = seen.cast(ir.DataType.INT32).reduce(std.ReduceMax, rank_of(seen) - 1) > 0
    return b.where(some, weights, 0)


def _repeated(n: AtenCall, x: Expr, shape: list[Size], heads: Size) -> Expr:
    """Keys or values of which several heads of queries share one (Ainslie et al., 2023)."""
    own = shape[-3]
    if isinstance(own, int) and isinstance(heads, int):
        times: Size = heads // own
    else:
        times = n.scalar(heads, ir.DataType.INT64) / n.scalar(own, ir.DataType.INT64)
    axis = rank_of(x) - 2
    wide = n.b.op(std.Expand, x.unsqueeze(axis), n.vector([*shape[: axis - 1], own, times, *shape[axis:]]))
    return n.reshape(wide, [*shape[: axis - 1], heads, *shape[axis:]])
