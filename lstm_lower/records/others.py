"""Model files that are neither ONNX nor TensorFlow graphs: what they are, and how to convert them."""

from __future__ import annotations

import io
import zipfile

_KERAS = "a Keras model; ll.from_keras(keras.models.load_model(path), loss, optimizer) makes a training step of it"
_TORCH = "a file of PyTorch's; ll.from_torch takes the module, ll.from_onnx what torch.onnx.export makes of it"
# What bytes begin with, from a place on.
_BEGINNINGS = (
    (0, b"\x89HDF\r\n\x1a\n", f"{_KERAS} (tf_keras.models.load_model, where Keras 2 wrote it)"),
    (4, b"TFL3", "a TensorFlow Lite model; `python -m tf2onnx.convert --tflite` converts it"),
    (4, b"ORTM", "a model in onnxruntime's own format; the .onnx file that it was made from is required"),
)
# A file in a zip archive whose name ends like this.
_MEMBERS = (("model.weights.h5", _KERAS), ("data.pkl", _TORCH), (".npy", "arrays of numpy"))


def named(data: bytes) -> str | None:
    """What bytes that are no ONNX model are, and what to do with them; `None` where that is not known."""
    for place, beginning, what in _BEGINNINGS:
        if data[place : place + len(beginning)] == beginning:
            return what
    if not data.startswith(b"PK\x03\x04"):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, LookupError):
        return None
    return next((what for end, what in _MEMBERS if any(name.endswith(end) for name in names)), None)
