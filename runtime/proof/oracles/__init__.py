"""Float64 numpy oracles: what each op computes, written as its equations.

Importing the package fills `registry.ORACLES` and `finite_differences.PAIRINGS`.
"""

from __future__ import annotations

from lstm_lower.runtime.proof.oracles import (
    arrays,
    block,
    block_gru,
    block_pairs,
    convolution,
    ctc,
    cudnn,
    cudnn_pairs,
    cudnn_params,
    elementwise,
    gradients,
    indexing,
    losses,
    normalization,
    random,
    segments,
)

__all__ = [
    "arrays",
    "block",
    "block_gru",
    "block_pairs",
    "convolution",
    "ctc",
    "cudnn",
    "cudnn_pairs",
    "cudnn_params",
    "elementwise",
    "gradients",
    "indexing",
    "losses",
    "normalization",
    "random",
    "segments",
]
