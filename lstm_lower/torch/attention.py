"""Attention in the forms that the exporter refuses, or gives other numbers for."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.replacement import replaced


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Softmax(q k^T s + mask) v (Vaswani et al., 2017); a query that may look at nothing gets zeros."""
    if query.dim() == 4 and attn_mask is None and not dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -math.inf
        added = torch.where(attn_mask, 0.0, -math.inf) if attn_mask.dtype == torch.bool else attn_mask
        weights = torch.where(seen.any(-1, keepdim=True), (scores + added.to(scores.dtype)).softmax(-1), 0.0)
    return functional.dropout(weights, dropout_p) @ value if dropout_p else weights @ value


def dropout_in_attention() -> contextlib.AbstractContextManager[None]:
    """Has attention's dropout, which the exporter leaves out; functions of PyTorch call it where no mode is asked."""
    before = functional.scaled_dot_product_attention

    def attention(*args: Any, **options: Any) -> Any:
        dropout = options.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        return _attention(*args, **options) if dropout else before(*args, **options)

    return replaced(functional, "scaled_dot_product_attention", attention)


ATTENTION: dict[Any, Callable[..., Any]] = {functional.scaled_dot_product_attention: _attention}
