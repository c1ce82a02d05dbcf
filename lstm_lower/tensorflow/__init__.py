"""Import of TensorFlow training graphs; files need the extra [tensorflow-files], functions and Keras [tensorflow]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lstm_lower.extras import needed_by
from lstm_lower.tensorflow.plugin import tf2onnx_ops

if TYPE_CHECKING:
    from lstm_lower.tensorflow.importer import from_tensorflow as from_tensorflow

__all__ = ["from_tensorflow", "tf2onnx_ops"]


def __getattr__(name: str) -> Any:
    if name != "from_tensorflow":
        raise AttributeError(f"module 'lstm_lower.tensorflow' has no attribute {name!r}")
    with needed_by("the import of a TensorFlow graph"):
        from lstm_lower.tensorflow.importer import from_tensorflow
    globals()[name] = from_tensorflow
    return from_tensorflow
