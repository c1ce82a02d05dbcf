"""Definitions of the composite ops; importing this package fills `lstm_lower.opdef.REGISTRY`."""

from __future__ import annotations

from lstm_lower.ops import (
    arrays,
    block,
    convolution,
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
)

__all__ = [
    "arrays",
    "block",
    "convolution",
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
]
