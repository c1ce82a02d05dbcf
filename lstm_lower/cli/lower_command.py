"""`lstm-lower lower`: make a model of standard operators."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.progress
import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.check_command import print_report, report_data
from lstm_lower.cli.inspect_command import nothing_to_lower
from lstm_lower.cli.options import (
    JsonOption,
    ModelArgument,
    OpsetOption,
    PluginOption,
    RepairOption,
    ScheduleOption,
    SizeOption,
    TargetOption,
    parse_dims,
)
from lstm_lower.cli.sources import (
    CheckpointOption,
    ImportOptions,
    InputsOption,
    LoweredStateOption,
    OutputsOption,
    ShapesOption,
    SignatureOption,
    WeightsOption,
    open_model,
    settle_state,
    state_form,
)
from lstm_lower.records.files import check_place, own_path, write_text

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.passes.model_pass import Pass
    from lstm_lower.passes.trace import Trace
    from lstm_lower.runtime.proof.check import Report


def lower(
    model: ModelArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The lowered model [default: <MODEL>.lowered.onnx].", show_default=False),
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
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    signature: SignatureOption = None,
    weights: WeightsOption = None,
    checkpoint: CheckpointOption = None,
    shapes: ShapesOption = None,
    state: LoweredStateOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lower every recurrent op of a model to standard ai.onnx operators.

    MODEL is an ONNX file or a file of TensorFlow's, which is imported first: a GraphDef (.pb, .pbtxt), a MetaGraphDef
    (.meta) or the folder of a SavedModel. `lstm-lower inspect` tells what is in it and which names to give.
    The result is written only after onnx's checker has accepted it and onnxruntime has loaded it (and, under --check,
    its outputs are within tolerance). A failure leaves no file, and an existing one untouched.
    """
    path = output if output is not None else model.parent / f"{model.stem}.lowered.onnx"
    report = None
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.records.model_files import save
        from lstm_lower.runtime.loadable import check_loadable

        check_place(path)
        start = time.perf_counter()
        form, pairs = state_form(state)
        source = open_model(model, ImportOptions(inputs, outputs, signature, weights, checkpoint, shapes, pairs, opset))
        check_place(path)  # now that it is known what else the model consists of
        steps = _Steps(opset, schedule, target, parse_dims(dim), repair_v2_gradient, verify_each)
        lowered = _lower(source, steps, dump_passes)
        if check:
            from lstm_lower.runtime.proof.check import check as run_check

            report = run_check(source, lowered, sizes=steps.sizes)
        seconds = time.perf_counter() - start
        settle_state(lowered, form)
        if report is None or report.passed:
            save(lowered, path, external_data=external_data or None, check=check_loadable)
        _print_result(source, lowered, path, seconds, report, as_json)
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
    source: ir.Model, lowered: ir.Model, target: Path, seconds: float, report: Report | None, as_json: bool
) -> None:
    from lstm_lower.passes.summary import summarize
    from lstm_lower.records import origin

    before, after = summarize(source), summarize(lowered)
    written = report is None or report.passed
    if as_json:
        data = {
            "output": str(target) if written else None,
            "opset": after.opset,
            "seconds": seconds,
            "lowered": collections.Counter(composite.op for composite in before.composites),
            "nodes": {"before": before.nodes, "after": after.nodes},
            "loops": {"before": before.loops, "after": after.loops},
            "check": None if report is None else report_data(report),
        }
        console.print_json(data)
        return
    if report is not None:
        print_report(report)
    counts = collections.Counter(composite.op for composite in before.composites)
    ops = ", ".join(f"{count} {op}" for op, count in sorted(counts.items())) or nothing_to_lower(
        before, after, imported=origin.METADATA_KEY in source.metadata_props
    )
    sizes = f"{before.nodes} -> {after.nodes} nodes, {after.loops} loops, opset {after.opset}, {seconds:.2f} s"
    for line in [f"{ops}: {sizes}"] if counts else [ops, sizes]:
        console.out().print(escape(line))
    if written:
        console.out().print(escape(f"wrote {target} ({console.bytes_text(target.stat().st_size)})"))
