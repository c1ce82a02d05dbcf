"""Lowering rules, one module per family; importing this package fills `registry.RULES`."""

from __future__ import annotations

from lstm_lower.passes.rules import block, ctc, cudnn, cudnn_params, gradients, indexing, losses, strided_slice

__all__ = ["block", "ctc", "cudnn", "cudnn_params", "gradients", "indexing", "losses", "strided_slice"]
