"""Definitions of the composite ops; importing this package fills `lstm_lower.opdef.REGISTRY`."""

from __future__ import annotations

from lstm_lower.ops import block, cudnn, cudnn_params, gradients, indexing, losses

__all__ = ["block", "cudnn", "cudnn_params", "gradients", "indexing", "losses"]
