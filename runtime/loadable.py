"""Whether onnx's checker accepts a model file and onnxruntime loads it."""

from __future__ import annotations

import os

import onnx
import onnxruntime as ort

from lstm_lower.errors import InvalidModelError

_WAY = "; declare one for it or, where it is a seed, for the output, whose sizes may be open"
NO_OUTPUTS = "onnxruntime requires a model with outputs, got one without any"


def check_loadable(path: str | os.PathLike[str]) -> None:
    """Checks a model file.

    Raises:
        InvalidModelError: onnx's checker or onnxruntime refuses it.
    """
    try:
        onnx.checker.check_model(os.fspath(path), full_check=True)
    except Exception as error:
        unknown = _without_rank(path) if "Field 'shape'" in str(error) else None
        told = f"it requires a rank of '{unknown}', got a declaration without a shape{_WAY}" if unknown else str(error)
        raise InvalidModelError(f"onnx's checker refuses the model: {told}") from error
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what is wrong is in the exception
    # Weights in external data are mapped: a copy for the kernels would read them, and stand in memory beside them.
    options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        ort.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        graph = onnx.load(os.fspath(path), load_external_data=False).graph
        raise InvalidModelError(f"onnxruntime refuses the model: {error}" if graph.output else NO_OUTPUTS) from error


def _without_rank(path: str | os.PathLike[str]) -> str | None:
    """The first input or output that is declared without a shape, which the checker refuses without its name."""
    graph = onnx.load(os.fspath(path), load_external_data=False).graph
    declared = [value for value in (*graph.input, *graph.output) if value.type.HasField("tensor_type")]
    return next((value.name for value in declared if not value.type.tensor_type.HasField("shape")), None)
