"""`lstm-lower lower`: make a model of standard operators."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.progress
import typer

from lstm_lower.cli import console
from lstm_lower.cli.check_command import print_report, report_data
from lstm_lower.cli.commands import Rewriting, before_and_after
from lstm_lower.cli.inspect_command import nothing_to_lower
from lstm_lower.cli.options import (
    ModelArgument,
    OpsetOption,
    RepairOption,
    ScheduleOption,
    SizeOption,
    TargetOption,
    parse_dims,
)
from lstm_lower.cli.sources import LoweringOptions, open_model, settle_state
from lstm_lower.records.files import own_path, write_text

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.passes.model_pass import Pass
    from lstm_lower.passes.trace import Trace
    from lstm_lower.runtime.proof.check import Report


def lower(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The lowered model [default: <MODEL>.lowered.onnx].")
    ] = None,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    target: TargetOption = None,
    dim: SizeOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the result against float64 on random feeds before writing it.")
    ] = False,
    dump_passes: Annotated[
        Path | None, typer.Option("--dump-passes", metavar="DIR", help="Folder for the graph's text after every pass.")
    ] = None,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Keep weights in a file of their own, <output>.<hash>.data.")
    ] = False,
    verify_each: Annotated[bool, typer.Option("--verify-each", help="Verify the graph after every pass.")] = False,
    repair_v2_gradient: RepairOption = False,
    *,
    graph: LoweringOptions,
    as_json: bool,
) -> None:
    """Lower every recurrent op of a model to standard ai.onnx operators.

    MODEL is an ONNX file or a file of TensorFlow's, which is imported first: a GraphDef (.pb, .pbtxt), a MetaGraphDef
    (.meta) or the folder of a SavedModel. `lstm-lower inspect` tells what is in it and which names to give.
    The result is written only after onnx's checker has accepted it and onnxruntime has loaded it (and, under --check,
    its outputs are within tolerance). A failure leaves no file, and an existing one untouched.
    """
    rewriting, report = Rewriting(model, output, "lowered.onnx"), None
    options, form = graph.with_form_of_state()
    source = rewriting.read(lambda: open_model(model, options, opset))
    steps = _Steps(opset, schedule, target, parse_dims(dim), repair_v2_gradient, verify_each)
    lowered = _lower(source, steps, dump_passes)
    if check:
        from lstm_lower.runtime.proof.check import check as run_check

        report = run_check(source, lowered, sizes=steps.sizes)
    settle_state(lowered, form)
    if report is None or report.passed:
        rewriting.write(lowered, external_data or None)
    _print_result(source, lowered, rewriting, report, as_json=as_json)
    if report is not None and not report.passed:
        console.err().print("[bold red]error:[/] the lowered model is out of tolerance; nothing is written")
        raise typer.Exit(1)


@dataclasses.dataclass(frozen=True)
class _Steps:
    """Options of the lowering."""

    opset: int | None
    schedule: str
    target: str | None
    sizes: dict[str, int]
    repair_v2_gradient: bool
    verify_each: bool


def _lower(source: ir.Model, asked: _Steps, dump_passes: Path | None) -> ir.Model:
    """Lowers as `passes.lower` does, with progress and dumps."""
    from lstm_lower.passes.driver import run_passes
    from lstm_lower.passes.lower import lowering_passes
    from lstm_lower.passes.trace import Trace

    trace = Trace(dump=dump_passes is not None)
    steps = lowering_passes(trace=trace, **dataclasses.asdict(asked))
    dumps = None if dump_passes is None else _Dumps(dump_passes, trace)
    return run_passes(source, _progress(steps), None if dumps is None else dumps.add)


class _Dumps:
    """Writes the text of the graph after every pass that changed it, numbered in order."""

    def __init__(self, folder: Path, trace: Trace) -> None:
        self.folder = folder
        self.trace = trace
        self.count = 0
        self.hashes: dict[int, Any] = {}
        self.seen = 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, step: Pass, result: ir.passes.PassResult) -> None:
        """Writes what one pass did; for the optimiser, what each of its passes did."""
        inner = self.trace.changes[self.seen :]
        self.seen = len(self.trace.changes)
        for change in inner:
            self._write(f"{change.pass_name}-{change.round}", change.after or "")
        # The first pass is the verifier.
        if (result.modified and not inner) or not self.count:
            self._write(step.name if self.count else "input", self._text(result.model))

    def _text(self, model: ir.Model) -> str:
        from lstm_lower.graph.dump import dump

        return dump(model, hashes=self.hashes)

    def _write(self, name: str, text: str) -> None:
        plain = "".join(character if character.isalnum() or character in "-_" else "-" for character in name)
        write_text(own_path(self.folder, f"{self.count:03d}-{plain}.txt"), text)
        self.count += 1


def _progress(steps: Sequence[Pass]) -> Iterator[Pass]:
    """A progress bar on standard error, where that is a terminal."""
    display = console.err()
    with rich.progress.Progress(console=display, transient=True, disable=not display.is_terminal) as progress:
        task = progress.add_task("", total=len(steps))
        for step in steps:
            progress.update(task, description=step.name)
            yield step
            progress.advance(task)


def _print_result(
    source: ir.Model, lowered: ir.Model, rewriting: Rewriting, report: Report | None, *, as_json: bool
) -> None:
    from lstm_lower.passes.summary import summarize
    from lstm_lower.records import origin

    before, after = summarize(source), summarize(lowered)
    if report is not None and not as_json:
        print_report(report)
    counts = collections.Counter(composite.op for composite in before.composites)
    data = {"opset": after.opset, "lowered": counts, **before_and_after(before, after)}
    data["check"] = None if report is None else report_data(report)
    ops = ", ".join(f"{count} {op}" for op, count in sorted(counts.items())) or nothing_to_lower(
        before, after, imported=origin.METADATA_KEY in source.metadata_props
    )
    sizes = (
        f"{before.nodes} -> {after.nodes} nodes, {after.loops} loops, opset {after.opset}, {rewriting.seconds:.2f} s"
    )
    lines = [f"{ops}: {sizes}"] if counts else [ops, sizes]
    rewriting.tell(data, lines, as_json=as_json)
