"""Rows of tables: which of them learn, and sums, means and maxima of bags of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.torch.functions import stopped


def _embedding(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # noqa: ARG001
    scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001
) -> Any:
    """Rows of a table; that of padding gets no gradient, which ONNX's Gather cannot say."""
    if max_norm is not None:
        # PyTorch changes the rows that are read, and updates what they became.
        raise UnsupportedOpError("embedding requires no max_norm, got one; scale the rows in forward instead")
    if padding_idx is None and not scale_grad_by_freq:
        return NotImplemented
    rows = functional.embedding(input, weight)
    if scale_grad_by_freq:
        # How often each row is read; the gradient of one read is divided by that.
        counts = torch.zeros(weight.shape[0], dtype=weight.dtype)
        counts = counts.index_add(0, input.flatten(), torch.ones_like(input.flatten(), dtype=weight.dtype))
        held = stopped(rows)
        rows = held + (rows - held) / counts[input].unsqueeze(-1)
    if padding_idx is None:
        return rows
    number = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
    return torch.where((input == number).unsqueeze(-1), stopped(rows), rows)


def _embedding_bag(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of rows; the exporter writes a loop over bags."""
    rows = _embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    rows = functional.embedding(input, weight) if rows is NotImplemented else rows
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if input.dim() == 2 and padding_idx is None and mode != "max":
        return rows.sum(1) if mode == "sum" else rows.mean(1)
    if input.dim() == 2:
        count, width = input.shape
        bags = torch.arange(count).unsqueeze(1).expand(count, width).flatten()
        input, rows = input.flatten(), rows.flatten(0, 1)  # noqa: A001
    else:
        assert offsets is not None
        starts = offsets[:-1] if include_last_offset else offsets
        count = starts.shape[0]
        bags = (torch.arange(input.shape[0]).unsqueeze(1) >= starts).to(torch.int64).sum(1) - 1
    kept = torch.ones_like(input, dtype=weight.dtype)
    if padding_idx is not None:
        kept = (input != padding_idx % weight.shape[0]).to(weight.dtype)
    counts = rows.new_zeros(count).index_add(0, bags, kept).unsqueeze(1)
    if mode == "max":
        least = rows.new_full((count, weight.shape[1]), -torch.inf)
        places = bags.unsqueeze(1).expand(rows.shape)
        candidates = torch.where(kept.unsqueeze(1) > 0, rows, -torch.inf)
        return torch.where(counts > 0, least.scatter_reduce(0, places, candidates, "amax"), 0.0)
    summed = kept
    if offsets is not None and include_last_offset:
        # What is behind the last bag counts in PyTorch, but is not summed.
        summed = kept * (torch.arange(input.shape[0]) < offsets[-1]).to(weight.dtype)
    sums = rows.new_zeros(count, weight.shape[1]).index_add(0, bags, rows * summed.unsqueeze(1))
    return sums if mode == "sum" else sums / counts.clamp(min=1)


EMBEDDINGS: dict[Any, Callable[..., Any]] = {
    functional.embedding: _embedding,
    functional.embedding_bag: _embedding_bag,
}
