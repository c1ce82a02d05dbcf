"""`lstm-lower report`: a model's lowering as one page for a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.commands import Rewriting, before_and_after
from lstm_lower.cli.options import (
    DimOption,
    ModelArgument,
    OpsetOption,
    ProviderOption,
    ScheduleOption,
    SeedOption,
    parse_dims,
)
from lstm_lower.cli.sources import ImportOptions, open_model
from lstm_lower.errors import InvalidInputError, LstmLowerError
from lstm_lower.records.files import atomic_files, write_text

if TYPE_CHECKING:
    from lstm_lower.report.analysis import Analysis, Feeds


def report(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page [default: <MODEL>.report.html].")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-i", help="Feeds in a .npz file [default: random ones].")
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
        ),
    ] = None,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    *,
    graph: ImportOptions,
    as_json: bool,
) -> None:
    """Write a page for a browser: a model's graph before and after every pass, errors, times and inputs.

    MODEL is what `lower` takes. The page is one file that opens in any browser without a network. It is written
    even if an output is out of tolerance, which the page then shows; use `check` for an exit code. A failure leaves no
    file, and an existing one untouched.
    """
    from lstm_lower.report.analysis import analyse, measured
    from lstm_lower.report.contents import contents
    from lstm_lower.report.page import page

    if node_data is not None and not run:
        raise InvalidInputError("--node-data requires a run, got --no-run")
    if node_data is not None and node_data.exists() and not node_data.is_dir():
        raise InvalidInputError(f"--node-data requires a folder, got the file {node_data}")
    if graph.inputs is not None and graph.inputs.endswith(".npz"):
        raise InvalidInputError(
            f"--inputs requires names of a TensorFlow graph's inputs, got {graph.inputs}; --data takes feeds"
        )
    rewriting = Rewriting(model, output, "report.html")
    feeds = _feeds(data, dim, seed, provider, run=run)
    options, _ = graph.with_form_of_state()
    source = rewriting.read(lambda: open_model(model, options, opset))
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
    write_text(rewriting.path, text)
    _print(analysis, rewriting.path, as_json=as_json)


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
                **before_and_after(before, after),
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
