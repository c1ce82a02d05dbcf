"""`lstm-lower merge`: trained weights in a model or in the model of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lstm_lower.cli.commands import Rewriting


def merge(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or the folder of a bundle.")],
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER", help="An adapter, a checkpoint, or any .safetensors file of weights.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.merged.onnx].")
    ] = None,
    *,
    as_json: bool,
) -> None:
    """Put trained weights into the model that they belong to.

    MODEL may be the whole model of which `lstm-lower split` made a head that was trained alone. The file is written
    only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    from lstm_lower.records.model_files import load
    from lstm_lower.runtime.training.adapters import merge as merged

    rewriting = Rewriting(model, output, "merged.onnx")
    rewriting.write(load(merged(model, adapter)))
    rewriting.tell({}, [], as_json=as_json)
