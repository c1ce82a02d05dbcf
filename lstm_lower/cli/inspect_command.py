"""`lstm-lower inspect`: what is in a model, and what lowering makes of it."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import ModelArgument, OpsetOption, ScheduleOption
from lstm_lower.cli.sources import GraphOptions, ImportOptions, choice, names_of, open_model
from lstm_lower.errors import InvalidModelError, UnsupportedOpError, some
from lstm_lower.records.content_kinds import is_tensorflow

if TYPE_CHECKING:
    from lstm_lower.passes.summary import Composite, Summary
    from lstm_lower.tensorflow.anatomy import Anatomy


# Operands that tell a recurrent op's sizes.
_TELLING = ("x", "input", "w", "params", "h_prev", "input_h")


def inspect(
    model: ModelArgument,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    *,
    graph: GraphOptions,
    as_json: bool,
) -> None:
    """Show which recurrent and unsupported ops a model holds, where, and its sizes before and after lowering.

    MODEL is an ONNX file, or a file of TensorFlow's: a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta) or the folder of
    a SavedModel. For these it shows the contents, likely losses, training
    steps and inputs, and the command to run next. The exit code is 1 for a file that is malformed or lacks external
    data, also where its contents can be shown.
    """  # fmt: skip
    if is_tensorflow(model):
        inspect_graph(model, graph, as_json=as_json)
        return
    from lstm_lower.passes.lower import lower
    from lstm_lower.passes.shapes import InferShapesPass
    from lstm_lower.passes.summary import summarize

    source = open_model(model, ImportOptions(**vars(graph)))
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
    counts = [f"{before.operators[op]} {op}" for op in recurrent if op in before.operators]
    if not counts and (imported or before.loops):
        loops = f", {before.loops} loop{'s' if before.loops > 1 else ''} among them" if before.loops else ""
        return f"in standard operators already{loops}"
    if not counts:
        return "nothing to lower: no recurrent or gradient op"
    kept = after is None or any(op in after.operators for op in recurrent)
    done = "run as they are" if kept else "are written in simpler ones for the target"
    listed = ", ".join(counts)
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


# `lstm-lower inspect` of TensorFlow's files: what is in them, and the command to go on with.


# Rows of each part, so that all of it fits on a screen.
_ROWS = 6


def inspect_graph(path: Path, options: GraphOptions, *, as_json: bool) -> None:
    """Prints what is in a file.

    Raises:
        InvalidModelError, InvalidInputError: the file is broken, or the names are not in it.
        OSError: it cannot be read.
    """
    from lstm_lower.tensorflow.anatomy import anatomy
    from lstm_lower.tensorflow.files.graph_files import NOTHING_SAVED, read_file

    file, asked = read_file(path, options.checkpoint), (names_of(options.inputs), names_of(options.outputs))
    contents = anatomy(file, options.signature, *asked)
    command = None if file.is_empty else _command(contents, path, *asked, options.signature)
    if as_json:
        console.print_json({**dataclasses.asdict(contents), "command": command})
        return
    _print_graph(contents, command or f"nothing to import: {NOTHING_SAVED}")


def _print_graph(found: Anatomy, command: str) -> None:
    by = f", by TensorFlow {found.tensorflow}" if found.tensorflow else ""
    out = console.out()
    out.print(escape(f"{found.kind}{by} (producer {found.producer}): {found.nodes} nodes, {found.functions} functions"))
    out.print()
    if found.recurrent:
        kinds = [
            [r.op, len(r.nodes), " ".join(f"{name}:{text}" for name, text in r.sizes.items()), r.nodes[0]]
            for r in found.recurrent[:_ROWS]
        ]
        console.table("recurrent op", "nodes", "sizes", "the first", rows=kinds, right=("nodes",))
        _more(len(found.recurrent))
        out.print()
    elif not found.loops:
        out.print("no recurrent op")
        out.print()
    rows = [*_control_flow(found), *_variables(found), *_step(found)]
    width = max(len(title) for title, _ in rows) + 2
    for title, text in rows:
        out.print(escape(f"{title:<{width}}{text}"))
    if found.unsupported:
        out.print()
        names = [f"{op} ({some(nodes, 1)})" for op, nodes in found.unsupported.items()]
        out.print(f"[bold red]would stop an import:[/] {escape(some(names, 2 * _ROWS))}")
    out.print()
    out.print(escape(command))


def _more(count: int) -> None:
    if count > _ROWS:
        console.out().print(f"and {count - _ROWS} more")


def _control_flow(found: Anatomy) -> list[tuple[str, str]]:
    loops = [f"{name} ({count} nodes): {found.loop_texts[name]}" for name, count in found.loops.items()]
    rows = [("loops" if number == 0 else "", text) for number, text in enumerate(loops[:_ROWS])]
    more = [("", f"and {len(loops) - _ROWS} more")] if len(loops) > _ROWS else []
    return [*(rows or [("loops", "none")]), *more, ("branches", str(found.branches or "none"))]


def _variables(found: Anatomy) -> list[tuple[str, str]]:
    count = len(found.variables)
    if not count:
        return [("variables", "none")]
    have = "none has a value" if not found.with_value else f"{found.with_value} have values, in {found.checkpoint}"
    texts = [f"{name} {text}" for name, text in found.variables.items()]
    return [
        ("variables", f"{count}, of which {found.trained} are trained ({found.parameters:,} elements); {have}"),
        ("", some(texts, _ROWS)),
    ]


def _step(found: Anatomy) -> list[tuple[str, str]]:
    rows = []
    for name, entry in list(found.signatures.items())[:_ROWS]:
        rows.append((f"signature {name}", f"{_typed(entry['inputs'])} -> {_typed(entry['outputs'])}"))
    for title, key, texts in (
        ("loss", "losses", [f"{name} {text}" for name, text in found.losses.items()]),
        ("training step", "train_ops", found.train_ops),
    ):
        if texts:
            rows.append((title if key in found.recorded else f"likely {title}", some(texts, 3)))
    if found.cut is not None:
        rows.append(("of many one", found.cut))
    if found.losses or found.train_ops:
        rows.append(("nodes needed", str(found.needed)))
    for number, (name, text) in enumerate(list(found.inputs.items())[: 2 * _ROWS]):
        rows.append(("data comes in at" if number == 0 else "", f"{name} {text}"))
    if len(found.inputs) > 2 * _ROWS:
        rows.append(("", f"and {len(found.inputs) - 2 * _ROWS} more"))
    return rows


def _typed(entries: dict[str, str]) -> str:
    return f"({some([f'{name} {text}' for name, text in entries.items()], 4)})"


def _command(
    found: Anatomy, path: Path, inputs: Sequence[str] | None, outputs: Sequence[str] | None, signature: str | None
) -> str:
    """The command to go on with."""
    words = ["lstm-lower", "lower", str(path)]
    for option, text in zip(("signature", "inputs", "outputs"), choice(found, inputs, outputs, signature), strict=True):
        words += [f"--{option}", text] if text else []
    return shlex.join(words)
