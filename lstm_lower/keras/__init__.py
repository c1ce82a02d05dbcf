"""Export of Keras models as training steps; needs the extra [tensorflow]."""

from __future__ import annotations

from typing import Any

from lstm_lower.extras import needed_by

__all__ = ["from_keras"]


def __getattr__(name: str) -> Any:
    if name != "from_keras":
        raise AttributeError(f"module 'lstm_lower.keras' has no attribute {name!r}")
    with needed_by("the export of a Keras model"):
        from lstm_lower.keras.exporter import from_keras
    globals()[name] = from_keras
    return from_keras
