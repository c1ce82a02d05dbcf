"""`lstm-lower gradient`: adds gradients to any ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lstm_lower.cli.commands import Rewriting
from lstm_lower.cli.options import ModelArgument
from lstm_lower.cli.sources import StateFormOption, settle_state

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
        ),
    ] = None,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Take the output's own gradient as an input, seed/<NAME>.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.gradient.onnx].")
    ] = None,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Keep weights in a file of their own, <output>.<hash>.data.")
    ] = False,
    state: StateFormOption = None,
    *,
    as_json: bool,
) -> None:
    """Add outputs grad/<name> to any ONNX model: the gradients of one of its outputs.

    Loops, branches and recurrent layers are differentiated too. The result is an ordinary model, which can be
    differentiated again.
    The file is written only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    from lstm_lower.passes.differentiate import gradient as add_gradients

    rewriting = Rewriting(model, output, "gradient.onnx")
    source = rewriting.read(model)
    names = None if wrt is None else [name for text in wrt for name in text.split(",")]
    result = add_gradients(source, of, names, seeds=seeds)
    settle_state(result, state)
    rewriting.write(result, external_data or None)
    added = [str(value.name) for value in result.graph.outputs[len(source.graph.outputs) :]]
    nodes = [sum(1 for _ in graph.all_nodes()) for graph in (source.graph, result.graph)]
    count = f"{len(added)} gradient{'s' if len(added) > 1 else ''}"
    listed = added if len(added) <= _LISTED else added[: _LISTED - 1]
    lines = [f"{count} of {of}: {nodes[0]} -> {nodes[1]} nodes, {rewriting.seconds:.2f} s"]
    lines += [f"  {name}" for name in listed]
    if len(added) > len(listed):
        lines.append(f"  and {len(added) - len(listed)} more, all of which --json lists")
    data = {"nodes": {"before": nodes[0], "after": nodes[1]}, "gradients": added}
    rewriting.tell(data, lines, as_json=as_json)
