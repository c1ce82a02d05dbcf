"""`lstm-lower optimize`: the loop optimiser on any ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lstm_lower.cli.commands import Rewriting, before_and_after
from lstm_lower.cli.options import ModelArgument, ScheduleOption
from lstm_lower.cli.sources import StateFormOption, settle_state
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.records.files import own_path, write_text

if TYPE_CHECKING:
    from lstm_lower.passes.trace import Trace


def optimize(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The result [default: <MODEL>.optimized.onnx].")
    ] = None,
    schedule: ScheduleOption = "auto",
    dump_passes: Annotated[
        Path | None,
        typer.Option("--dump-passes", metavar="DIR", help="Folder for the graph's text before and after every pass."),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option("--passes", metavar="NAME,...", help="Passes in your order, in place of the loop optimiser."),
    ] = None,
    external_data: Annotated[
        bool | None,
        typer.Option(
            "--external-data/--no-external-data",
            help="Keep weights in a file of their own, <output>.<hash>.data [default: if MODEL's are in one].",
        ),
    ] = None,
    verify_each: Annotated[bool, typer.Option("--verify-each", help="Verify the graph after every pass.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print what was left unchanged, and why.")] = False,
    state: StateFormOption = None,
    *,
    as_json: bool,
) -> None:
    """Take work out of the Scan loops of any ONNX model.

    The loops may come from any exporter or automatic differentiation. Results agree up to rounding. The file is written
    only after onnx's checker has accepted it and onnxruntime has loaded it.
    """
    from lstm_lower.passes.pipeline import optimize as run_optimizer
    from lstm_lower.passes.summary import summarize
    from lstm_lower.passes.trace import Trace
    from lstm_lower.records.model_files import has_external_data

    rewriting = Rewriting(model, output, "optimized.onnx")
    source = rewriting.read(model)
    trace = Trace(dump=dump_passes is not None)
    chosen = None if passes is None else [name.strip() for name in passes.split(",") if name.strip()]
    optimized = run_optimizer(source, schedule, passes=chosen, trace=trace, verify_each=verify_each)
    if dump_passes is not None:
        _write_dumps(dump_passes, trace)
    before, after = summarize(source), summarize(optimized)
    if after.composites:
        # onnxruntime does not know them: the file would be of no use.
        raise UnsupportedOpError("\n".join(trace.notes))
    settle_state(optimized, state)
    external = has_external_data(optimized) or None if external_data is None else external_data
    rewriting.write(optimized, external)
    sizes = f"{before.nodes} -> {after.nodes} nodes, {before.loops} -> {after.loops} loops"
    left = [str(refusal) for refusal in trace.refusals]
    lines = [f"{sizes}, {rewriting.seconds:.2f} s", *trace.notes]
    lines += [f"left alone: {text}" for text in left if explain]
    data = {
        **before_and_after(before, after),
        "passes": [change.pass_name for change in trace.changes],
        "notes": trace.notes,
        "left_alone": left,
    }
    rewriting.tell(data, lines, as_json=as_json)


def _write_dumps(folder: Path, trace: Trace) -> None:
    """One file before the first pass, and one after every pass that changed something."""
    folder.mkdir(parents=True, exist_ok=True)
    if trace.changes:
        write_text(own_path(folder, "000-input.txt"), trace.changes[0].before or "")
    for number, change in enumerate(trace.changes, 1):
        write_text(own_path(folder, f"{number:03d}-{change.pass_name}-{change.round}.txt"), change.after or "")
