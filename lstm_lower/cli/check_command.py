"""`lstm-lower check`: is the lowered model right?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lstm_lower.cli import console
from lstm_lower.cli.options import (
    DimOption,
    InputsOption,
    JsonOption,
    ModelArgument,
    OpsetOption,
    PluginOption,
    PrecisionOption,
    ProviderOption,
    ScheduleOption,
    SeedOption,
    parse_dims,
)

if TYPE_CHECKING:
    from lstm_lower.runtime.proof.check import Report


def check(
    model: ModelArgument,
    lowered: Annotated[
        Path | None, typer.Option("--lowered", help="The lowered model [default: lowered now].", show_default=False)
    ] = None,
    inputs: InputsOption = None,
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
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove a lowered model against the original, evaluated in float64.

    MODEL is the model with recurrent ops. It is evaluated in float64 with a numpy oracle for each of them. The lowered
    model runs in onnxruntime twice, with the graph optimiser off and at its default level. A .npz file whose entries
    are named in:<input> and out:<output> brings recorded results along, which are compared too. Exit code 1 when an
    output is out of tolerance.
    """
    with console.errors(as_json=as_json, plugins=plugin):
        from lstm_lower.runtime import feeds
        from lstm_lower.runtime.proof.check import check as run_check

        given, recorded = feeds.read_arrays(inputs) if inputs is not None else (None, {})
        report = run_check(
            model,
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
        if as_json:
            console.print_json(report_data(report))
        else:
            print_report(report)
    if not report.passed:
        raise typer.Exit(1)


def report_data(report: Report) -> dict[str, object]:
    """The report as JSON has it."""
    return {"passed": report.passed, **dataclasses.asdict(report)}


def print_report(report: Report) -> None:
    """Prints a row per output, a row per gradient, and the verdict."""
    recorded = any(row.recorded is not None for row in report.outputs)
    columns = ["output", "shape", "max abs error", "rel, not optimised", "rel, default"]
    columns += ["rel, recorded"] if recorded else []
    rows = []
    for row in report.outputs:
        cells = [row.name, console.shape_text(row.shape), _number(max(row.absolute.values(), default=None))]
        cells += [_number(row.relative.get(level)) for level in ("disabled", "default")]
        cells += [_number(row.recorded)] if recorded else []
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
                _number(row.absolute),
                _number(row.relative),
                row.verdict,
            ]
            for row in report.gradients
        ]
        console.table(*columns, "verdict", rows=rows, right=columns[3:])
    verdict = "[bold green]passed[/]" if report.passed else "[bold red]failed[/]"
    tolerance = f"tolerance {report.rtol:.2g} of an output's largest magnitude plus {report.atol:.2g}"
    console.out().print(f"\n{verdict}: errors against float64, {tolerance}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
