"""Does a model file hold together: onnx's checker accepts it and onnxruntime loads it."""

from __future__ import annotations

import os

import onnx
import onnxruntime as ort

from lstm_lower.errors import InvalidModelError


def check_loadable(path: str | os.PathLike[str]) -> None:
    """Checks a model file.

    Raises:
        InvalidModelError: onnx's checker or onnxruntime refuses it.
    """
    try:
        onnx.checker.check_model(os.fspath(path), full_check=True)
    except Exception as error:
        raise InvalidModelError(f"onnx's checker refuses the model: {error}") from error
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what is wrong is in the exception
    try:
        ort.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidModelError(f"onnxruntime refuses the model: {error}") from error
