"""`lstm-lower lora`: low-rank matrices beside the weights of any ONNX model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption, ModelArgument, PluginOption
from lstm_lower.cli.sources import names_of
from lstm_lower.records.files import check_place


def lora(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.lora.onnx].", show_default=False)
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rows of each first matrix.")] = 8,
    alpha: Annotated[
        float | None,
        typer.Option(help="The products are scaled by ALPHA / RANK [default: the rank].", show_default=False),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Modules or weights that get matrices: names, their last parts or patterns, separated by commas "
            "[default: all].",
            show_default=False,
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A folder of PEFT's, whose rank, alpha and matrices are taken.", show_default=False
        ),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add low-rank matrices to the weights of an ONNX model, which `export` and `train` then train alone.

    The file is written only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    target = output if output is not None else model.parent / f"{model.stem}.lora.onnx"
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.records import adaptation
        from lstm_lower.records.model_files import load, save
        from lstm_lower.runtime.loadable import check_loadable
        from lstm_lower.runtime.training.low_rank import lora as add_matrices

        check_place(target)
        start = time.perf_counter()
        source = load(model)
        check_place(target)  # now that it is known what else the model consists of
        result = add_matrices(source, rank, names_of(targets), alpha, adapter=adapter)
        save(result, target, check=check_loadable)
        seconds = time.perf_counter() - start
        held = adaptation.parse(result.metadata_props)
        assert held is not None
        numbers = sum(weight.size for name in held.weights if (weight := result.graph.initializers[name].const_value))
        if as_json:
            modules = dict(held.modules)
            console.print_json({"output": str(target), "seconds": seconds, "modules": modules, "numbers": numbers})
            return
        for name, kind in held.modules.items():
            console.out().print(escape(f"  {name} ({kind})"))
        console.out().print(
            escape(
                f"wrote {target} ({console.bytes_text(target.stat().st_size)}): {numbers} numbers to train, "
                f"{seconds:.2f} s; `lstm-lower export {target} --loss ... --optimizer ...` makes a bundle"
            )
        )
