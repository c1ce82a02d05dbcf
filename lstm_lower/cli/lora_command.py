"""`lstm-lower lora`: low-rank matrices beside the weights of any ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lstm_lower.cli.commands import Rewriting
from lstm_lower.cli.options import ModelArgument
from lstm_lower.cli.sources import names_of


def lora(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.lora.onnx].")
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rows of each first matrix.")] = 8,
    alpha: Annotated[
        float | None, typer.Option(help="The products are scaled by ALPHA / RANK [default: the rank].")
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Modules or weights that get matrices: names, their last parts or patterns, separated by commas "
            "[default: all].",
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder of PEFT's, whose rank, alpha and matrices are taken."),
    ] = None,
    *,
    as_json: bool,
) -> None:
    """Add low-rank matrices to the weights of an ONNX model, which `export` and `train` then train alone.

    The file is written only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    from lstm_lower.records import adaptation
    from lstm_lower.runtime.training.low_rank import lora as add_matrices

    rewriting = Rewriting(model, output, "lora.onnx")
    result = add_matrices(rewriting.read(model), rank, names_of(targets), alpha, adapter=adapter)
    rewriting.write(result)
    held = adaptation.parse(result.metadata_props)
    assert held is not None
    numbers = sum(weight.size for name in held.weights if (weight := result.graph.initializers[name].const_value))
    then = (
        f": {numbers} numbers to train, {rewriting.seconds:.2f} s; "
        f"`lstm-lower export {rewriting.path} --loss ... --optimizer ...` makes a bundle"
    )
    lines = [f"  {name} ({kind})" for name, kind in held.modules.items()]
    rewriting.tell({"modules": dict(held.modules), "numbers": numbers}, lines, as_json=as_json, then=then)
