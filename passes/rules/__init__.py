"""Lowering rules, one module per family; importing this package fills `registry.RULES`."""

from __future__ import annotations

from lstm_lower.passes.rules import (
    arrays,
    block,
    block_gru,
    convolution,
    ctc,
    cudnn,
    cudnn_params,
    elementwise,
    gradients,
    indexing,
    losses,
    normalization,
    pooling,
    random,
    segments,
    strided_slice,
)

__all__ = [
    "arrays",
    "block",
    "block_gru",
    "convolution",
    "ctc",
    "cudnn",
    "cudnn_params",
    "elementwise",
    "gradients",
    "indexing",
    "losses",
    "normalization",
    "pooling",
    "random",
    "segments",
    "strided_slice",
]
