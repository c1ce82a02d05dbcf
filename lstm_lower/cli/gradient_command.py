"""`lstm-lower gradient`: adds gradients to any ONNX model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption, ModelArgument, PluginOption
from lstm_lower.cli.sources import StateFormOption, settle_state
from lstm_lower.records.files import check_place

_LISTED = 12


def gradient(
    model: ModelArgument,
    of: Annotated[str, typer.Option("--of", metavar="NAME", help="The output to differentiate.")] = "loss",
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            "--wrt",
            metavar="NAME,...",
            help="Inputs or initializers, separated by commas; may be repeated [default: all weights that matter].",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Take the output's own gradient as an input, seed/<NAME>.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The result [default: <MODEL>.gradient.onnx].", show_default=False),
    ] = None,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Keep weights in a file of their own, <output>.<hash>.data.")
    ] = False,
    state: StateFormOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add outputs grad/<name> to any ONNX model: the gradients of one of its outputs.

    Loops, branches and recurrent layers are differentiated too. The result is an ordinary model, which can be
    differentiated again.
    The file is written only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    target = output if output is not None else model.parent / f"{model.stem}.gradient.onnx"
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.passes.differentiate import gradient as add_gradients
        from lstm_lower.records.model_files import load, save
        from lstm_lower.runtime.loadable import check_loadable

        check_place(target)
        start = time.perf_counter()
        source = load(model)
        check_place(target)  # now that it is known what else the model consists of
        names = None if wrt is None else [name for text in wrt for name in text.split(",")]
        result = add_gradients(source, of, names, seeds=seeds)
        seconds = time.perf_counter() - start
        settle_state(result, state)
        save(result, target, external_data=external_data or None, check=check_loadable)
        added = [str(value.name) for value in result.graph.outputs[len(source.graph.outputs) :]]
        nodes = [sum(1 for _ in graph.all_nodes()) for graph in (source.graph, result.graph)]
        if as_json:
            counts = {"before": nodes[0], "after": nodes[1]}
            console.print_json({"output": str(target), "seconds": seconds, "nodes": counts, "gradients": added})
            return
        count = f"{len(added)} gradient{'s' if len(added) > 1 else ''}"
        console.out().print(escape(f"{count} of {of}: {nodes[0]} -> {nodes[1]} nodes, {seconds:.2f} s"))
        listed = added if len(added) <= _LISTED else added[: _LISTED - 1]
        for name in listed:
            console.out().print(escape(f"  {name}"))
        if len(added) > len(listed):
            console.out().print(f"  and {len(added) - len(listed)} more, all of which --json lists")
        console.out().print(escape(f"wrote {target} ({console.bytes_text(target.stat().st_size)})"))
