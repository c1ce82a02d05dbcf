"""`python -m benchmarks device`: LSTM and GRU on a GPU, their training steps too, next to cuDNN through PyTorch."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape

from benchmarks import torch_step
from benchmarks.block import Case
from benchmarks.device_runs import CAPTURED, OurRun, Place, StepRun, TorchRun
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from benchmarks.race_command import DEFAULT_SHAPES
from benchmarks.worker import absence
from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.measuring.worker import Worker, take_turns

VARIANTS = ("lstm", "gru")
# Sums on a GPU are ordered otherwise than on a processor; tf32 has 11 bits.
TOLERANCES = {"float32": 1e-4, "tf32": 2e-2}


@dataclasses.dataclass(frozen=True)
class Row:
    """One contestant's figures for one case, in seconds.

    Attributes:
        what: `layer`, forward and backward pass, or `training step`.
        contestant: `scan`, `unroll`, `unroll, CUDA graph` of ours; `pytorch`, `floor-pytorch`.
        variant: `lstm` or `gru`.
        shape: T, B, I, H.
        minimum_s: the fastest run; `None` for one that cannot take part.
        median_s: the median run.
        error: of ours, a layer's against onnxruntime's processor, a step's first loss against PyTorch's.
        lower_s: time for lowering.
        load_s: time to make the session.
        on_host: nodes of ours that run on the processor; `None` where nobody looked.
        absence: why there are no figures.
    """

    what: str
    contestant: str
    variant: str
    shape: tuple[int, int, int, int]
    minimum_s: float | None
    median_s: float | None
    error: float | None
    lower_s: float | None
    load_s: float | None
    on_host: Sequence[str] | None
    absence: str | None


def contestants_of(case: Case, place: Place) -> Iterator[tuple[str, Callable[[], Worker]]]:
    """What starts each contestant, in a process of its own."""
    start = partial(partial, Worker, threads=place.threads)
    if case.op == "torch":
        ours = ("scan", "unroll", *((CAPTURED,) if place.provider == "cuda" else ()))
        for name in (*ours, "pytorch"):
            yield name, start(StepRun, name, case, place)
        return
    yield "scan", start(OurRun, case, "scan", place, as_graph=False)
    yield "unroll", start(OurRun, case, "unroll", place, as_graph=False)
    if place.provider == "cuda":
        yield CAPTURED, start(OurRun, case, "unroll", place, as_graph=True)
    for name in ("pytorch", "floor-pytorch"):
        yield name, start(TorchRun, name, case, place)


def measured(case: Case, place: Place, seconds: float) -> list[Row]:
    """Times one case.

    Raises:
        InvalidInputError: results of ours are wrong.
    """
    with contextlib.ExitStack() as stack:
        names, starts = zip(*contestants_of(case, place), strict=True)
        # A GPU takes seconds to get ready, for all of them at once as long as for one.
        with ThreadPoolExecutor(len(starts)) as pool:
            workers = [pool.submit(start) for start in starts]
        field = []
        for name, worker in zip(names, (started.result() for started in workers), strict=True):
            stack.callback(worker.close)
            error = worker.facts.get("error")
            if error is not None and not error <= TOLERANCES[place.precision or "float32"]:
                raise InvalidInputError(
                    f"device requires right results of {name} {case.shape}, got an error of {error}"
                )
            field.append((name, worker))
        times = take_turns([worker for _, worker in field if worker.refusal is None], seconds=seconds)
        return [
            Row(
                _what(case),
                name,
                case.variant,
                case.shape,
                min(times[worker]) if worker in times else None,
                statistics.median(times[worker]) if worker in times else None,
                worker.facts.get("error"),
                worker.facts.get("lower_s"),
                worker.facts.get("load_s"),
                worker.facts.get("on_host"),
                absence(worker),
            )
            for name, worker in field
        ]


def device(
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="T,B,I,H", help="Steps, batch, inputs, units; may be repeated."),
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="lstm or gru; may be repeated, both without it.")
    ] = None,
    provider: Annotated[str, typer.Option("--provider", "-p", help="onnxruntime's provider.")] = "cuda",
    torch_device: Annotated[str, typer.Option("--torch-device", help="PyTorch's name of the same device.")] = "cuda",
    precision: Annotated[
        str, typer.Option("--precision", help="Of products, of all contestants: float32 or tf32.")
    ] = "float32",
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads on the host.")] = 2,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Time for each contestant.")] = 3.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time forward and backward pass, and whole training steps, on a GPU, next to cuDNN through PyTorch.

    Ours as a Scan, unrolled, and unrolled as a CUDA graph; operands and results stay on the device. Nodes that
    onnxruntime places on the processor are listed. The training steps are those of `python -m benchmarks torch`.
    Needs a GPU, onnxruntime-gpu and PyTorch with CUDA; with --provider cpu --torch-device cpu the same is measured on
    the processor.
    """
    with console.errors(as_json=as_json):
        _one_of("--precision", [precision], list(TOLERANCES))
        variants = _one_of("--variant", variant or list(VARIANTS), VARIANTS)
        cases = [
            Case(op, parse_shape(text), name)
            for op, shapes in (("CudnnRNN", DEFAULT_SHAPES), ("torch", [torch_step.SHAPES[0]]))
            for name in variants
            for text in shape or shapes
        ]
        # A processor knows no coarser products.
        place = Place(provider, torch_device, None if precision == "float32" else precision, threads)
        place.check()
        rows: list[Row] = []
        for case in cases:
            found = measured(case, place, seconds)
            rows += found
            if not as_json:
                _print(case, place, found)
        hand_out([dataclasses.asdict(row) for row in rows], output, as_json=as_json)


def _one_of(option: str, given: Sequence[str], allowed: Sequence[str]) -> list[str]:
    for name in given:
        if name not in allowed:
            raise InvalidInputError(f"{option} requires one of {', '.join(allowed)}, got {name!r}")
    return list(given)


def _what(case: Case) -> str:
    return "training step" if case.op == "torch" else "layer"


def _print(case: Case, place: Place, rows: Sequence[Row]) -> None:
    """A table of one case; ratios are against PyTorch, by minimum."""
    rival = next((row.minimum_s for row in rows if row.contestant == "pytorch"), None)
    cells: list[list[Any]] = []
    for row in rows:
        if row.minimum_s is None or row.median_s is None:
            cells.append([row.contestant, "-", "", "", "", "", ""])
            continue
        cells.append(
            [
                row.contestant,
                f"{1e3 * row.minimum_s:.3f}",
                f"{1e3 * row.median_s:.3f}",
                "" if rival is None else f"{row.minimum_s / rival:.2f}",
                "" if row.error is None else f"{row.error:.1e}",
                "" if row.lower_s is None else f"{row.lower_s:.1f} + {row.load_s or 0:.1f}",
                "" if row.on_host is None else len(row.on_host),
            ]
        )
    columns = ["contestant", "min ms", "median ms", "/ pytorch", "error", "lower + load s", "nodes on host"]
    shape, precision = ",".join(map(str, case.shape)), place.precision or "float32"
    title = f"{_what(case)}, {case.variant}, T,B,I,H = {shape}, {place.provider}, {precision}"
    console.table(*columns, rows=cells, title=title, right=columns[1:])
    for row in rows:
        if row.absence is not None:
            console.out().print(escape(f"{row.contestant}: {row.absence}"))
        if row.on_host:
            console.out().print(escape(f"{row.contestant} on the host: {', '.join(row.on_host)}"))
    console.out().print()
