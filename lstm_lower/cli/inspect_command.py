"""`lstm-lower inspect`: what is in a model, and what lowering makes of it."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption, ModelArgument, OpsetOption, PluginOption, ScheduleOption
from lstm_lower.cli.sources import (
    CheckpointOption,
    ImportOptions,
    InputsOption,
    OutputsOption,
    SignatureOption,
    names_of,
    open_model,
)
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.records.kinds import is_tensorflow

if TYPE_CHECKING:
    from lstm_lower.passes.summary import Composite, Summary

# Operands that tell a recurrent op's sizes.
_TELLING = ("x", "input", "w", "params", "h_prev", "input_h")


def inspect(
    model: ModelArgument,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    signature: SignatureOption = None,
    checkpoint: CheckpointOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which recurrent and unsupported ops a model holds, where, and its sizes before and after lowering.

    MODEL is an ONNX file, or a file of TensorFlow's: a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta) or the folder of
    a SavedModel. For these it shows the contents, likely losses, training
    steps and inputs, and the command to run next. The exit code is 1 for a file that is malformed or lacks external
    data, also where its contents can be shown.
    """  # fmt: skip
    with console.errors(as_json=as_json, plugins=plugin):
        if is_tensorflow(model):
            from lstm_lower.cli.inspect_graph import inspect_graph

            inspect_graph(model, names_of(inputs), names_of(outputs), signature, checkpoint, as_json=as_json)
            return
        if checkpoint is not None:
            raise InvalidInputError(f"--checkpoint requires a TensorFlow graph, got {model}")
        from lstm_lower.passes.lower import lower
        from lstm_lower.passes.shapes import InferShapesPass
        from lstm_lower.passes.summary import summarize

        source = open_model(model, ImportOptions(inputs, outputs, signature))
        broken, fault, after = False, None, None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lowered = lower(source, opset, schedule)
            after = summarize(lowered)
            InferShapesPass()(source)
        except (InvalidModelError, UnsupportedOpError) as error:
            broken, fault = isinstance(error, InvalidModelError), str(error)
        before = summarize(source)
    if as_json:
        data = {"lowerable": fault is None, "fault": fault, "before": dataclasses.asdict(before)}
        console.print_json({**data, "after": None if after is None else dataclasses.asdict(after)})
    else:
        _print(before, after, fault)
    if broken:
        raise typer.Exit(1)


def _print(before: Summary, after: Summary | None, fault: str | None) -> None:
    named = [("input", name, text) for name, text in before.inputs.items()]
    named += [("output", name, text) for name, text in before.outputs.items()]
    console.table("", "name", "type", rows=named)
    console.out().print()
    if before.composites:
        rows = [[c.op, c.node, c.where, _sizes(c), _attributes(c)] for c in before.composites]
        console.table("lowerable op", "node", "where", "sizes", "attributes", rows=rows)
    elif fault is None:
        console.out().print(nothing_to_lower(before))
    if before.composites or fault is None:
        console.out().print()
    if after is not None:
        console.table("", "before", "after", rows=_counts(before, after), right=("before", "after"))
    if fault is not None:
        console.out().print(f"[bold red]cannot be lowered:[/] {escape(fault)}")


def nothing_to_lower(before: Summary, after: Summary | None = None, *, imported: bool = False) -> str:
    """Says that a model needs no lowering, and of ONNX's own recurrent nodes what can be done with them.

    Args:
        before: the model.
        after: what lowering makes of it, where that is known.
        imported: whether an import has just made it, which writes most ops in standard operators at once.
    """
    from lstm_lower.graph import standard as std

    recurrent = (std.LSTM.op_type, std.GRU.op_type, std.RNN.op_type)
    found = [f"{before.operators[op]} {op}" for op in recurrent if op in before.operators]
    if not found and (imported or before.loops):
        loops = f", {before.loops} loop{'s' if before.loops > 1 else ''} among them" if before.loops else ""
        return f"in standard operators already{loops}"
    if not found:
        return "nothing to lower: no recurrent or gradient op"
    kept = after is None or any(op in after.operators for op in recurrent)
    done = "run as they are" if kept else "are written in simpler ones for the target"
    listed = ", ".join(found)
    return f"nothing to lower: ONNX's own nodes ({listed}) {done}; `lstm-lower gradient` differentiates them"


def _sizes(composite: Composite) -> str:
    shown = {name: text for name, text in composite.operands.items() if name in _TELLING} or composite.operands
    return " ".join(f"{name}:{text}" for name, text in shown.items())


def _attributes(composite: Composite) -> str:
    return " ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in composite.attributes.items()
        if not name.startswith("_")
    )


def _counts(before: Summary, after: Summary) -> list[tuple[object, ...]]:
    from lstm_lower.graph import standard as std

    rows: list[tuple[object, ...]] = [
        ("ai.onnx opset", before.opset, after.opset),
        ("nodes", before.nodes, after.nodes),
        ("to lower", len(before.composites), len(after.composites)),
        ("loops", before.loops, after.loops),
        ("weights", before.weights, after.weights),
        ("weight bytes", console.bytes_text(before.weight_bytes), console.bytes_text(after.weight_bytes)),
    ]
    heavy = (std.LSTM.op_type, std.GRU.op_type, std.RNN.op_type, std.MatMul.op_type, std.Gemm.op_type, std.Conv.op_type)
    rows += [
        (f"{op} nodes", before.operators.get(op, 0), after.operators.get(op, 0))
        for op in heavy
        if op in before.operators or op in after.operators
    ]
    return rows
