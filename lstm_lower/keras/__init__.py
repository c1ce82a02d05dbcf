"""Export of Keras models as training steps; needs the extra [tensorflow]."""

from __future__ import annotations

from typing import Any

__all__ = ["from_keras"]


def __getattr__(name: str) -> Any:
    if name != "from_keras":
        raise AttributeError(f"module 'lstm_lower.keras' has no attribute {name!r}")
    try:
        from lstm_lower.keras.exporter import from_keras
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "tf2onnx", "keras"):
            raise
        raise ImportError(
            "from_keras requires TensorFlow, Keras and tf2onnx: pip install lstm-lower[tensorflow]"
        ) from error
    globals()[name] = from_keras
    return from_keras
