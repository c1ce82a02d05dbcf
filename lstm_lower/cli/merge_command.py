"""`lstm-lower merge`: trained weights in a model or in the model of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption, PluginOption
from lstm_lower.records.files import check_place


def merge(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file, or the folder of a bundle.", show_default=False)
    ],
    adapter: Annotated[
        Path,
        typer.Argument(
            metavar="ADAPTER", help="An adapter, a checkpoint, or any .safetensors file of weights.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The result [default: <MODEL>.merged.onnx].", show_default=False),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put trained weights into the model that they belong to.

    MODEL may be the whole model of which `lstm-lower split` made a head that was trained alone. The file is written
    only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    target = output if output is not None else model.parent / f"{model.stem}.merged.onnx"
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.records.model_files import load, save
        from lstm_lower.runtime.loadable import check_loadable
        from lstm_lower.runtime.training.adapters import merge as merged

        check_place(target)
        save(load(merged(model, adapter)), target, check=check_loadable)
        if as_json:
            console.print_json({"output": str(target)})
            return
        console.out().print(escape(f"wrote {target} ({console.bytes_text(target.stat().st_size)})"))
