"""What a command's MODEL may be: an ONNX file, or a TensorFlow graph, which is imported first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lstm_lower.errors import InvalidInputError

if TYPE_CHECKING:
    import onnx_ir as ir

InputsOption = Annotated[
    str | None, typer.Option("--inputs", metavar="NAMES", help="Inputs of a TensorFlow graph, separated by commas.")
]
OutputsOption = Annotated[
    str | None, typer.Option("--outputs", metavar="NAMES", help="Outputs of a TensorFlow graph, separated by commas.")
]
SignatureOption = Annotated[str | None, typer.Option("--signature", metavar="NAME", help="Signature of a SavedModel.")]


def open_model(
    path: Path, inputs: str | None = None, outputs: str | None = None, signature: str | None = None
) -> ir.Model:
    """Reads an ONNX model, or imports a GraphDef or SavedModel.

    Raises:
        InvalidInputError: options of TensorFlow graphs are given for an ONNX file.
        FileNotFoundError: there is no such file.
        InvalidModelError, UnsupportedOpError: the model is malformed or cannot be imported.
    """
    from lstm_lower.records.model_files import is_tensorflow, load

    if not is_tensorflow(path):
        given = [name for name, value in (("inputs", inputs), ("outputs", outputs), ("signature", signature)) if value]
        if given:
            raise InvalidInputError(f"--{given[0]} requires a TensorFlow graph, got {path}")
        return load(path)
    path.stat()  # a file that is not there needs no TensorFlow
    from lstm_lower.tensorflow import from_tensorflow

    return load(from_tensorflow(path, inputs=_names(inputs), outputs=_names(outputs), signature=signature))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
