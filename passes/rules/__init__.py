"""Lowering rules, one module per family; importing this package fills `registry.RULES`."""

from __future__ import annotations

from lstm_lower.passes.rules import (
    block,
    block_gru,
    ctc,
    cudnn,
    cudnn_params,
    gradients,
    indexing,
    losses,
    random,
    strided_slice,
)

__all__ = [
    "block",
    "block_gru",
    "ctc",
    "cudnn",
    "cudnn_params",
    "gradients",
    "indexing",
    "losses",
    "random",
    "strided_slice",
]
