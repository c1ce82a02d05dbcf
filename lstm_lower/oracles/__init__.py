"""Float64 numpy oracles: what each op computes, written as its equations.

Importing the package fills `registry.ORACLES` and `finite_differences.PAIRINGS`.
"""

from __future__ import annotations

from lstm_lower.oracles import (
    block,
    block_gru,
    block_pairs,
    ctc,
    cudnn,
    cudnn_pairs,
    cudnn_params,
    gradients,
    indexing,
    losses,
)

__all__ = [
    "block",
    "block_gru",
    "block_pairs",
    "ctc",
    "cudnn",
    "cudnn_pairs",
    "cudnn_params",
    "gradients",
    "indexing",
    "losses",
]
