"""Whether onnx's checker accepts a model file and onnxruntime loads it."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnxruntime as ort
from onnx.external_data_helper import uses_external_data
from onnx.helper import make_tensor_value_info

from lstm_lower.errors import InvalidModelError

_WAY = "; declare one for it or, where it is a seed, for the output, whose sizes may be open"
# Bytes of a weight from which on nothing is computed of it in advance.
_LARGE = 1 << 20
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
        ort.InferenceSession(_with_weights_apart(path, options), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        graph = onnx.load(os.fspath(path), load_external_data=False).graph
        raise InvalidModelError(f"onnxruntime refuses the model: {error}" if graph.output else NO_OUTPUTS) from error


def _with_weights_apart(path: str | os.PathLike[str], options: ort.SessionOptions) -> str | bytes:
    """The file, or its model where large weights lie beside it: they are inputs that have these as defaults.

    onnxruntime computes in advance what follows from constants alone, and holds that beside them.
    """
    model = onnx.load(os.fspath(path), load_external_data=False)
    large = [tensor for tensor in model.graph.initializer if uses_external_data(tensor) and _bytes(tensor) >= _LARGE]
    if not large:
        return os.fspath(path)
    named = {value.name for value in model.graph.input}
    values = [make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in large]
    model.graph.input.extend(value for value in values if value.name not in named)
    folder = Path(path).absolute().parent
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    content: bytes = model.SerializeToString()
    return content


def _bytes(tensor: onnx.TensorProto) -> int:
    return next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), 0)


def _without_rank(path: str | os.PathLike[str]) -> str | None:
    """The first input or output that is declared without a shape, which the checker refuses without its name."""
    graph = onnx.load(os.fspath(path), load_external_data=False).graph
    declared = [value for value in (*graph.input, *graph.output) if value.type.HasField("tensor_type")]
    return next((value.name for value in declared if not value.type.tensor_type.HasField("shape")), None)
