"""Definitions of the composite ops; importing this package fills `lstm_lower.opdef.REGISTRY`."""

from __future__ import annotations

from lstm_lower.ops import block

__all__ = ["block"]
