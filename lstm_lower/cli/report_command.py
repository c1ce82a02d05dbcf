"""`lstm-lower report`: a model's lowering as one page for a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import (
    DimOption,
    JsonOption,
    ModelArgument,
    OpsetOption,
    PluginOption,
    ProviderOption,
    ScheduleOption,
    SeedOption,
    parse_dims,
)
from lstm_lower.cli.sources import (
    CheckpointOption,
    ImportOptions,
    InputsOption,
    OutputsOption,
    ShapesOption,
    SignatureOption,
    StateOption,
    WeightsOption,
    open_model,
    state_form,
)
from lstm_lower.errors import InvalidInputError, LstmLowerError
from lstm_lower.records.files import atomic_files, check_place, write_text

if TYPE_CHECKING:
    from lstm_lower.report.analysis import Analysis, Feeds


def report(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page [default: <MODEL>.report.html].", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", "-i", help="Feeds in a .npz file [default: random ones].", show_default=False),
    ] = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the lowered model: errors against float64, times.")
    ] = True,
    provider: ProviderOption = None,
    only_optimize: Annotated[
        bool, typer.Option("--optimize", help="Do what `optimize` does, for loops of a model with nothing to lower.")
    ] = False,
    node_data: Annotated[
        Path | None,
        typer.Option(
            "--node-data",
            metavar="DIR",
            help="Also write the lowered model, times.json and errors.json for Model Explorer there.",
            show_default=False,
        ),
    ] = None,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    signature: SignatureOption = None,
    weights: WeightsOption = None,
    checkpoint: CheckpointOption = None,
    shapes: ShapesOption = None,
    state: StateOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page for a browser: a model's graph before and after every pass, errors, times and inputs.

    MODEL is what `lower` takes. The page is one file that opens in any browser without a network. It is written
    even if an output is out of tolerance, which the page then shows; use `check` for an exit code. A failure leaves no
    file, and an existing one untouched.
    """
    target = output if output is not None else model.parent / f"{model.stem}.report.html"
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.report.analysis import analyse, measured
        from lstm_lower.report.contents import contents
        from lstm_lower.report.page import page

        if node_data is not None and not run:
            raise InvalidInputError("--node-data requires a run, got --no-run")
        if node_data is not None and node_data.exists() and not node_data.is_dir():
            raise InvalidInputError(f"--node-data requires a folder, got the file {node_data}")
        if inputs is not None and inputs.endswith(".npz"):
            raise InvalidInputError(
                f"--inputs requires names of a TensorFlow graph's inputs, got {inputs}; --data takes feeds"
            )
        check_place(target)
        feeds = _feeds(data, dim, seed, provider, run=run)
        _, pairs = state_form(state)
        source = open_model(model, ImportOptions(inputs, outputs, signature, weights, checkpoint, shapes, pairs, opset))
        check_place(target)  # now that it is known what else the model consists of
        analysis = analyse(source, opset, schedule, only_optimize=only_optimize)
        if feeds is not None:
            try:
                analysis = measured(analysis, feeds)
            except LstmLowerError as error:
                raise InvalidInputError(f"{error}; --no-run writes a report without errors and times") from error
        lowered = f"{model.stem}.lowered.onnx"
        text = page(contents(analysis, model.name, lowered))
        if node_data is not None:
            _write_node_data(node_data, lowered, analysis)
        write_text(target, text)
        _print(analysis, target, as_json=as_json)


def _feeds(
    data: Path | None, dim: list[str] | None, seed: int, provider: list[str] | None, *, run: bool
) -> Feeds | None:
    from lstm_lower.report.analysis import Feeds
    from lstm_lower.runtime import feeds, providers

    if not run:
        if data is not None or dim or provider:
            raise InvalidInputError("--no-run requires none of --data, --dim and --provider, which say what to run on")
        return None
    providers.resolve(provider)
    arrays, recorded = feeds.read_arrays(data) if data is not None else (None, {})
    return Feeds(arrays, recorded, parse_dims(dim), seed, provider)


def _write_node_data(folder: Path, model: str, analysis: Analysis) -> None:
    from lstm_lower.records.model_files import save
    from lstm_lower.report.node_data import errors, times

    texts = {"times.json": times(analysis), "errors.json": errors(analysis)}
    with atomic_files(folder) as written:
        for name, values in texts.items():
            write_text(written / name, json.dumps(values, indent=2) + "\n")
        save(analysis.lowered, written / model)


def _print(analysis: Analysis, target: Path, *, as_json: bool) -> None:
    before, after, check = analysis.before, analysis.after, analysis.check
    size = target.stat().st_size
    if as_json:
        console.print_json(
            {
                "output": str(target),
                "bytes": size,
                "seconds": analysis.seconds,
                "nodes": {"before": before.nodes, "after": after.nodes},
                "loops": {"before": before.loops, "after": after.loops},
                "passes": [step.pass_name for step in analysis.history.steps[1:]],
                "passed": None if check is None else check.passed,
                "verdict": None if check is None else check.verdict,
            }
        )
        return
    verdict = "not run" if check is None else f"check {console.verdict_text(check.verdict)}"
    passes = len(analysis.history.steps) - 1
    console.out().print(
        f"{before.nodes} -> {after.nodes} nodes, {after.loops} loops, {passes} passes changed something, {verdict}"
    )
    console.out().print(escape(f"wrote {target} ({console.bytes_text(size)})"))
