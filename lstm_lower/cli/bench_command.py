"""`lstm-lower bench`: a model's forms side by side: right, how fast, and where time goes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstm_lower.cli import console
from lstm_lower.cli.options import DimOption, InputsOption, ModelArgument, SeedOption, parse_dims
from lstm_lower.cli.sources import FedImportOptions, open_model
from lstm_lower.errors import InvalidInputError
from lstm_lower.records.files import check_place

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.runtime.measuring.forms import Form
    from lstm_lower.runtime.measuring.results import Result


# Most of each contestant, times the processors.
_THREADS = 8


def bench(
    model: ModelArgument,
    feeds: InputsOption = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    form: Annotated[
        list[str] | None,
        typer.Option("--form", help="original, lowered or optimised; may be repeated, all of them without it."),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            help="Schedule of the optimised form: auto, scan, unroll, chunk:K; may be repeated [default: the first 3].",
        ),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            "-p",
            help="Execution provider; may be repeated, each runs every form [default: cpu, or what --precision needs].",
        ),
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            "--precision",
            help="Precision, if the provider offers it, such as bfloat16; may be repeated [default: float32].",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads of each contestant [default: all processors].")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Time for each contestant.")] = 3.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of each contestant; slow ones have fewer.")] = 6,
    proof: Annotated[
        bool, typer.Option(help="Prove results against float64; without it they are compared with the first's.")
    ] = True,
    fix_sizes: Annotated[
        bool, typer.Option("--fix-sizes", help="Lower for the sizes of the feeds, where the model leaves them open.")
    ] = False,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend",
            help="Time the model on every provider that is installed, say which one is the fastest, and keep that for "
            "providers='fastest'.",
        ),
    ] = False,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="CONTESTANT", help="Contestant whose time is shown by op and loop [default: the fastest]."
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many operators are shown.")] = 8,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the times as .png or .svg.")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a run of each contestant as a Chrome trace for Perfetto.")
    ] = None,
    *,
    graph: FedImportOptions,
    as_json: bool,
) -> None:
    """Time a model as it is, lowered, and optimised under several schedules.

    MODEL is what `lstm-lower lower` takes. Its forms run on one set of feeds, from a .npz file or random, each in a
    process of its own with the same number of threads, in turns. Each one's results are compared with the model
    evaluated in float64 before it is timed; one that is wrong is not timed, and the exit code is 1. Then onnxruntime's
    profile tells where time goes, by operator and by loop.
    """  # fmt: skip
    from lstm_lower.cli.bench_tables import bench_data, print_bench
    from lstm_lower.runtime import chrome_trace
    from lstm_lower.runtime.feeds import drawn_sizes, drawn_sizes_explained, random_feeds, read_arrays
    from lstm_lower.runtime.measuring.bench import SCHEDULES, usual_providers
    from lstm_lower.runtime.measuring.bench import bench as run_bench

    if plot is not None:
        from lstm_lower.cli.plots import check_plot, draw_times

        check_plot(plot)
    check_place(plot, trace)
    source = open_model(model, graph)
    check_place(plot, trace)  # now that it is known what else the model consists of
    sizes = parse_dims(dim)
    if recommend:
        unread = {"--provider": provider, "--form": form, "--schedule": schedule, "--of": of}
        _recommend(
            source,
            sizes,
            {} if feeds is None else read_arrays(feeds)[0],
            _alone(precision, {**unread, "--plot": plot, "--trace": trace}),
            threads=_threads(threads),
            seconds=seconds,
            in_float64=proof,
            fix_sizes=fix_sizes,
            as_json=as_json,
        )
        return
    arrays = read_arrays(feeds)[0] if feeds is not None else random_feeds(source, sizes, seed)
    drawn = drawn_sizes(source, sizes) if feeds is None else {}
    with _told() as say:
        timings = run_bench(
            model,
            source,
            arrays,
            forms=_forms(form),
            schedules=schedule or SCHEDULES,
            providers=provider or usual_providers(precision or ()),
            precisions=precision or [],
            threads=_threads(threads),
            seconds=seconds,
            rounds=rounds,
            in_float64=proof,
            fixed_sizes=fix_sizes,
            say=say,
        )
    if all(result.absence is not None for result in timings.results):
        reasons = "; ".join(f"{result.name}: {result.absence}" for result in timings.results)
        with drawn_sizes_explained(source, sizes, drawn=feeds is None):
            raise InvalidInputError(f"bench requires a contestant that runs, got none: {reasons}")
    shown = timings.fastest if of is None else _named(of, [result for result, _ in timings.timed])
    if trace is not None:
        chrome_trace.write(trace, {result.name: figures.shortest for result, figures in timings.timed})
    if plot is not None:
        draw_times(timings, plot, model.name)
    if as_json:
        console.print_json({**bench_data(timings), "sizes": drawn})
    else:
        print_bench(timings, shown, top, drawn)
    if not timings.passed:
        raise typer.Exit(1)


def _alone(precisions: list[str] | None, unread: dict[str, object]) -> str | None:
    """The one precision of a recommendation, which has a use for few options.

    Raises:
        InvalidInputError: there are several, or options that it would not read.
    """
    if given := [option for option, value in unread.items() if value]:
        raise InvalidInputError(f"--recommend times all providers with the model as it is, and takes no {given[0]}")
    if len(precisions or []) > 1:
        raise InvalidInputError(f"--recommend requires one --precision, got {precisions}")
    return precisions[0] if precisions else None


def _recommend(
    source: ir.Model,
    sizes: dict[str, int],
    given: Mapping[str, Any],
    precision: str | None,
    *,
    threads: int,
    seconds: float,
    in_float64: bool,
    fix_sizes: bool,
    as_json: bool,
) -> None:
    """Measures which provider is the fastest, and says so."""
    from lstm_lower.passes.targets.fixed_sizes import FixedSizesPass, open_sizes
    from lstm_lower.runtime.feeds import DEFAULT_SIZE
    from lstm_lower.runtime.measuring.bench import sizes_of
    from lstm_lower.runtime.measuring.fastest import as_trained, choose

    model, state = as_trained(source)
    if fix_sizes:
        sizes = {**sizes_of(model, given), **sizes}
        FixedSizesPass({name: sizes.get(name, DEFAULT_SIZE) for name in open_sizes(model)})(model)
        sizes = {}
    with _told() as say:
        choice = choose(
            model, sizes, values={**state, **given}, precision=precision, threads=threads,
            fresh=True, in_float64=in_float64, seconds=seconds, say=say,
        )  # fmt: skip
    if as_json:
        console.print_json({**dataclasses.asdict(choice), "provider": choice.provider, "chosen": choice.chosen.name})
        return
    columns = ["provider", "min ms", "load s", "not chosen, since"]
    rows = [
        [timing.name, "", "", timing.absence or ""]
        if timing.run is None
        else [timing.name, f"{1e3 * timing.run:.3f}", f"{timing.load:.2f}", ""]
        for timing in choice.timings
    ]
    console.table(*columns, rows=rows, right=columns[1:3])
    console.out().print(f"\n{choice}", markup=False)


def _forms(names: list[str] | None) -> list[Form]:
    from lstm_lower.runtime.measuring.forms import FORMS

    for name in names or []:
        if name not in FORMS:
            raise InvalidInputError(f"--form requires one of {', '.join(FORMS)}, got {name!r}")
    return [form for form in FORMS if not names or form in names]


def _threads(asked: int | None) -> int:
    """The number asked for, or else that of the processors that this process may use."""
    from lstm_lower.runtime.processor import processors

    there = processors()
    if asked is not None and asked > (most := _THREADS * there):
        # Waiting threads take turns on the processors, so that a run hardly comes to an end.
        raise InvalidInputError(f"--threads requires 1 to {most} on {there} processors, got {asked}")
    return asked or there


def _named(name: str, results: list[Result]) -> Result:
    for result in results:
        if result.name == name:
            return result
    raise InvalidInputError(f"--of requires one of {[result.name for result in results]}, got {name!r}")


@contextlib.contextmanager
def _told() -> Iterator[Callable[[str], object]]:
    """Says on standard error what is going on, where that is a terminal."""
    display = console.err()
    if not display.is_terminal:
        yield lambda _: None
        return
    with display.status("") as status:
        yield status.update
