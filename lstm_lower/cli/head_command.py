"""`lstm-lower head`: a new last layer for an ONNX model. `lstm-lower split`: a model cut before its last layer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.commands import Rewriting
from lstm_lower.cli.options import ModelArgument
from lstm_lower.records.files import check_place


def head(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.head.onnx].")
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Size of the first output's last axis [default: open until training starts]."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the new weights.")] = 0,
    *,
    as_json: bool,
) -> None:
    """Put a new linear layer in place of an ONNX model's last one, for other classes.

    The file is written only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    from lstm_lower.onnx.heads import replace_head

    rewriting = Rewriting(model, output, "head.onnx")
    rewriting.write(replace_head(rewriting.read(model), classes, seed=seed))
    later = "" if classes is not None else " --dim classes=5"
    then = (
        f", {rewriting.seconds:.2f} s; `lstm-lower train {rewriting.path} --loss ... --optimizer ... --trainable "
        f"'head.*'{later}` trains the new layer"
    )
    rewriting.tell({"classes": classes}, [], as_json=as_json, then=then)


def split(
    model: ModelArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder [default: <MODEL>.split].")] = None,
    *,
    as_json: bool,
) -> None:
    """Cut an ONNX model before its last layer: features.onnx makes features of data, head.onnx is trained on them.

    `lstm-lower run features.onnx --keep target` computes features once, `lstm-lower merge` puts the trained layer into
    MODEL. The files are written only after onnx's checker has accepted them and onnxruntime has loaded them.
    """
    folder = output if output is not None else model.parent / f"{model.stem}.split"
    from lstm_lower.onnx.heads import split_head
    from lstm_lower.records.files import atomic_files
    from lstm_lower.records.model_files import load, write
    from lstm_lower.runtime.loadable import check_loadable

    start = time.perf_counter()
    names = ["features.onnx", "head.onnx"]
    halves = split_head(load(model))
    check_place(*(folder / name for name in names if folder.exists()))
    with atomic_files(folder) as written:
        for name, half in zip(names, halves, strict=True):
            write(half, written / name)
            check_loadable(written / name)
    seconds = time.perf_counter() - start
    if as_json:
        console.print_json({"output": str(folder), "seconds": seconds, "files": names})
        return
    for name in names:
        console.out().print(escape(f"  {name} ({console.bytes_text((folder / name).stat().st_size)})"))
    console.out().print(escape(f"wrote {folder}, {seconds:.2f} s"))
