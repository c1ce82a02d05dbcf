"""`lstm-lower check`: is the lowered model right?"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import (
    DimOption,
    InputsOption,
    ModelArgument,
    OpsetOption,
    PrecisionOption,
    ProviderOption,
    ScheduleOption,
    SeedOption,
    parse_dims,
)
from lstm_lower.cli.sources import FedImportOptions, ImportOptions, chosen, import_arguments, open_model
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.content_kinds import is_tensorflow

if TYPE_CHECKING:
    import numpy as np

    from lstm_lower.records.origin import Origin
    from lstm_lower.runtime.proof.check import Report
    from lstm_lower.tensorflow.against_tensorflow import Comparison, Lowering


def check(
    model: ModelArgument,
    lowered: Annotated[Path | None, typer.Option("--lowered", help="The lowered model [default: lowered now].")] = None,
    feeds: InputsOption = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    rtol: Annotated[
        float | None, typer.Option("--rtol", min=0, help="Tolerance relative to an output's largest magnitude.")
    ] = None,
    atol: Annotated[float | None, typer.Option("--atol", min=0, help="Absolute tolerance on top.")] = None,
    finite_differences: Annotated[
        bool, typer.Option("--finite-differences", help="Also compare backward oracles with central differences.")
    ] = False,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    provider: ProviderOption = None,
    precision: PrecisionOption = None,
    against: Annotated[
        Literal["float64", "tensorflow"],
        typer.Option(
            help="What to compare with; with tensorflow MODEL is a graph of TensorFlow's, imported and lowered."
        ),
    ] = "float64",
    *,
    graph: FedImportOptions,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="Runs next to TensorFlow, each on the state before.")
    ] = 3,
    as_json: bool,
) -> None:
    """Prove a lowered model against the original, evaluated in float64 or run by TensorFlow.

    MODEL is the model with recurrent ops. It is evaluated in float64 with a numpy oracle for each of them. The lowered
    model runs in onnxruntime twice, with the graph optimiser off and at its default level. A .npz file whose entries
    are named in:<input> and out:<output> also contains recorded results, which are compared too. Exit code 1 if an
    output is out of tolerance. Without --rtol and --atol an error is accepted if it is no larger than that of MODEL
    itself in onnxruntime.

    With `--against tensorflow` MODEL is a GraphDef, a .meta file or a SavedModel, which TensorFlow itself runs on the
    same feeds and weights: outputs and new values of variables are compared. The names in the .npz file are tensors of
    the graph; inputs that it leaves out are random, as are weights without values.
    """
    from lstm_lower.runtime.feeds import read_arrays

    verdict: Report | Comparison
    given, recorded = read_arrays(feeds) if feeds is not None else (None, {})
    if against == "tensorflow":
        if lowered is not None or finite_differences:
            option = "--finite-differences" if lowered is None else "--lowered"
            raise InvalidInputError(f"{option} requires --against float64, got tensorflow")
        from lstm_lower.tensorflow.against_tensorflow import Lowering

        verdict = compared = compare_file(
            model,
            graph,
            given or {},
            parse_dims(dim),
            opset=opset,
            seed=seed,
            steps=steps,
            tolerances=(rtol, atol),
            lowering=Lowering(schedule, provider, precision),
        )
        show = functools.partial(print_comparison, compared)
    else:
        from lstm_lower.runtime.proof.check import check as run_check

        verdict = report = run_check(
            open_model(model, graph, opset),
            lowered,
            given,
            recorded=recorded,
            sizes=parse_dims(dim),
            seed=seed,
            rtol=rtol,
            atol=atol,
            opset=opset,
            schedule=schedule,
            providers=provider,
            precision=precision,
            finite_differences=finite_differences,
        )
        show = functools.partial(print_report, report)
    if as_json:
        console.print_json(report_data(verdict))
    else:
        show()
    if not verdict.passed:
        raise typer.Exit(1)


def _coverage(origin: Origin) -> str:
    """A note on what a float64 check of an imported model proves, and what proves the rest."""
    covered = "covers: the lowering of this ONNX model; not "
    match origin.source:
        case "tensorflow":
            ops = "" if origin.translated is None else f" ({origin.translated} ops of TensorFlow were translated)"
            return f"{covered}the import{ops}: lstm-lower check GRAPH --against tensorflow"
        case "torch":
            return f"{covered}the export from PyTorch, nor the gradients: from_torch compares those with PyTorch's own"
        case _:
            return f"{covered}the gradients and updates, which ll.from_onnx has derived"


def report_data(report: Report | Comparison) -> dict[str, object]:
    """The report as JSON has it."""
    return {"passed": report.passed, "verdict": report.verdict, **dataclasses.asdict(report)}


def print_report(report: Report) -> None:
    """Prints a row per output, a row per gradient, and the verdict."""
    from lstm_lower.runtime.proof.comparison import NOT_DECIDED, NOTHING_FINITE

    recorded = any(row.recorded is not None for row in report.outputs)
    original = any(row.original is not None for row in report.outputs)
    columns = ["output", "shape", "max abs error", "rel, not optimised", "rel, default"]
    columns += ["rel, recorded"] if recorded else []
    columns += ["rel, original"] if original else []
    rows = []
    for row in report.outputs:
        cells = [row.name, console.shape_text(row.shape), console.error_text(max(row.absolute.values(), default=None))]
        cells += [console.error_text(row.relative.get(level)) for level in ("disabled", "default")]
        cells += [console.error_text(row.recorded)] if recorded else []
        cells += [console.error_text(row.original)] if original else []
        rows.append([*cells, row.verdict])
    console.table(*columns, "verdict", rows=rows, right=columns[2:])
    if report.gradients:
        console.out().print("\nBackward oracles against central differences of the forward oracles")
        columns = ["op", "operand", "shape", "max abs error", "rel"]
        rows = [
            [
                row.op,
                row.operand,
                console.shape_text(row.shape),
                console.error_text(row.absolute),
                console.error_text(row.relative),
                row.verdict,
            ]
            for row in report.gradients
        ]
        console.table(*columns, "verdict", rows=rows, right=columns[3:])
    if any(row.verdict == NOTHING_FINITE for row in report.outputs):
        told = "on these feeds the original itself gives no finite number, which proves nothing; try other feeds"
        console.out().print(f"\n{told}: --inputs FILE.npz, --seed, --dim")
    if any(row.verdict == NOT_DECIDED for row in report.outputs):
        told = (
            "the original itself is farther than 1e-2 from float64 there, so that nothing is proven (an optimizer that "
        )
        told += "divides by gradients near zero does that); other feeds may tell more"
        console.out().print(f"\nnot decided: {told}")
    if report.disagreement is not None:
        told = "from the same operands onnxruntime and the float64 reference compute otherwise"
        console.out().print(f"\n{told}: {report.disagreement}")
    if report.origin is not None:
        console.out().print(f"\n{_coverage(report.origin)}")
    verdict = console.verdict_text(report.verdict)
    tolerance = f"tolerance {report.rtol:.2g} of an output's largest magnitude plus {report.atol:.2g}"
    console.out().print(f"\n{verdict}: errors against float64, {tolerance}")


# `lstm-lower check --against tensorflow`: a graph's runs here next to TensorFlow's.


def compare_file(
    path: Path,
    options: ImportOptions,
    given: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int],
    *,
    opset: int | None = None,
    seed: int,
    steps: int,
    tolerances: tuple[float | None, float | None],
    lowering: Lowering,
) -> Comparison:
    """Compares the graph in a file, imported as the other commands import it.

    Raises:
        InvalidInputError: the file is not a TensorFlow graph, names or feeds do not fit, or TensorFlow cannot run it.
        InvalidModelError, UnsupportedOpError: as `from_tensorflow`'s and `lower`'s.
    """
    if not is_tensorflow(path):
        raise InvalidInputError(f"--against tensorflow requires a TensorFlow graph, got {path}")
    from lstm_lower.tensorflow.against_tensorflow import Import, compare_with_tensorflow
    from lstm_lower.tensorflow.opening import open_source

    options = chosen(path, options, list(given))
    imported = Import(
        lambda: open_source(path, signature=options.signature, checkpoint=options.checkpoint),
        **import_arguments(options, opset),
    )
    return compare_with_tensorflow(
        imported, given, sizes, seed=seed, steps=steps, tolerances=tolerances, lowering=lowering
    )


def print_comparison(found: Comparison) -> None:
    """Prints a row per output and variable, and the verdict."""
    columns = ["", "shape", "from TensorFlow", "TensorFlow's own error", "from float64"]
    rows = [
        [
            row.name,
            console.shape_text(row.shape),
            *map(console.error_text, (row.relative, row.own, row.float64)),
            row.verdict,
        ]
        for row in sorted(found.rows, key=lambda row: (row.kind, -(row.relative or 0)))
    ]
    console.table(*columns, "verdict", rows=rows, right=columns[1:])
    if found.float64 is not None:
        console.out().print(
            "\nTensorFlow's own error: between numbers that differ by a unit in the last place, since it does not run "
            f"the graph in float64 ({escape(found.float64)})"
        )
    if found.draws:
        console.out().print(f"\nthe same fixed numbers instead of random ones for both: {escape(some(found.draws))}")
    if found.races:
        told = "of which none waits for the other; --outputs with one training step may tell more"
        console.out().print(f"\nnot decided: updates race for {escape(some(found.races))}, {told}")
    first = [row.name for row in found.rows if row.steps < found.steps]
    if first:
        told = "from there on TensorFlow's own results are no numbers, or depend on the last place of the weights"
        console.out().print(f"\nafter the first run alone: {escape(some(first))}; {told}")
    fed = [f"{name} {console.shape_text(tuple(shape))}" for name, shape in found.feeds.items()]
    console.out().print(f"\nfed: {escape(some(fed, 12))}" if fed else "\nnothing is fed")
    verdict = console.verdict_text(found.verdict)
    tolerance = f"tolerance {found.rtol:.2g} of the largest magnitude plus {found.atol:.2g}"
    console.out().print(f"\n{verdict}: {found.steps} runs next to TensorFlow, {tolerance}")
