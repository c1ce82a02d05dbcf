"""`python -m benchmarks race`: how fast is it, next to TensorFlow, PyTorch and the bare matrix products?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from benchmarks import block, contestants, cudnn, dynamic_rnn, plot, torch_step
from benchmarks.block import Case
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from benchmarks.race import Result
from benchmarks.race import race as run_race
from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.pipeline import parse_schedule

DEFAULT_SHAPES = ("10,1,32,32", "50,32,128,128", "100,32,256,256", "100,64,512,512", "500,16,256,256")

ThreadsOption = Annotated[list[int] | None, typer.Option("--threads", min=1, help="Threads; may be repeated.")]
SecondsOption = Annotated[float, typer.Option("--seconds", min=0.1, help="Time for each contestant.")]


def race(
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="T,B,I,H", help="Steps, batch, inputs, units; may be repeated."),
    ] = None,
    op: Annotated[
        str,
        typer.Option(
            "--op", help="BlockLSTMGrad (backward), BlockLSTM (forward), CudnnRNN (both) or CudnnRNNBackprop."
        ),
    ] = "BlockLSTMGrad",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="plain, peephole, v2, half, short, dynamic or vanishing; of the cuDNN ops lstm, gru, lstm-2x2 or "
            "gru-2x2 (layers, directions). May be repeated.",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            help="openvino, openvino-bfloat16 (ours unrolled, on its plug-in), textbook, floor, tensorflow, pytorch, "
            "autocast (PyTorch's in bfloat16) or floor-pytorch (the bare products in PyTorch); of "
            "CudnnRNNBackprop also sequential, which leaves its operand output unread. All of them without it.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    schedule: Annotated[
        list[str] | None, typer.Option("--schedule", help="Our schedule; may be repeated to compare several.")
    ] = None,
    seconds: SecondsOption = 3.0,
    memory: Annotated[bool, typer.Option("--memory", help="Also measure memory beyond the inputs.")] = False,
    output: OutputOption = None,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw them as .png or .svg (needs matplotlib).", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time one op side by side with others.

    Contestants take turns, each in a process of its own with the same number of threads. `floor` is the matrix products
    alone, which every implementation computes; `textbook` is our lowering without the loop optimiser. A contestant
    whose library is not installed is left out.
    """
    with console.errors(as_json=as_json):
        _choose("--op", [op], [*block.RIVALS, *cudnn.RIVALS, *dynamic_rnn.RIVALS, *torch_step.RIVALS])
        known = contestants.family(op)
        variants = _choose("--variant", variant or known.VARIANTS[:1], known.VARIANTS)
        opponents = known.RIVALS[op]
        rivals = _choose("--against", against or opponents, opponents)
        schedules = schedule or ["auto"]
        for text in schedules:
            parse_schedule(text)
        results: list[Result] = []
        for count in threads or [2]:
            for sizes in map(parse_shape, shape or DEFAULT_SHAPES):
                for name in variants:
                    results += run_race(
                        Case(op, sizes, name),
                        ["lstm-lower", *rivals],
                        threads=count,
                        schedules=schedules,
                        seconds=seconds,
                        memory=memory,
                    )
                    if not as_json:
                        _print(results[-len(rivals) - len(schedules) :])
        if picture is not None:
            plot.draw(results, picture)
        hand_out([_plain(result) for result in results], output, as_json=as_json)


def step_race(module: ModuleType) -> Callable[..., None]:
    """The race of a training step: one op, in all its variants where none is named.

    Args:
        module: what makes the step, with its `RIVALS`, `SHAPES` and `VARIANTS`.
    """
    (op,) = module.RIVALS

    def step(
        shape: Annotated[
            list[str] | None,
            typer.Option("--shape", metavar="T,B,I,H", help="Steps, batch, inputs, units [default: the page's]."),
        ] = None,
        variant: Annotated[
            list[str] | None, typer.Option("--variant", help="May be repeated [default: all there are].")
        ] = None,
        against: Annotated[
            list[str] | None, typer.Option("--against", help="May be repeated [default: all there are].")
        ] = None,
        threads: ThreadsOption = None,
        seconds: SecondsOption = 3.0,
        output: OutputOption = None,
        as_json: JsonOption = False,
    ) -> None:
        race(
            shape=shape or list(module.SHAPES), op=op, variant=variant or list(module.VARIANTS), against=against,
            threads=threads, seconds=seconds, output=output, as_json=as_json,
        )  # fmt: skip

    return step


def _choose(option: str, given: Sequence[str], allowed: Sequence[str]) -> list[str]:
    for name in given:
        if name not in allowed:
            raise InvalidInputError(f"{option} requires one of {', '.join(allowed)}, got {name!r}")
    return list(given)


def _plain(result: Result) -> dict[str, object]:
    return {
        "contestant": result.contestant,
        "schedule": result.schedule,
        "op": result.case.op,
        "shape": list(result.case.shape),
        "variant": result.case.variant,
        "threads": result.threads,
        "minimum_s": result.minimum,
        "median_s": result.median,
        "memory_bytes": result.memory,
        "lower_s": result.lower,
        "load_s": result.load,
        "absence": result.absence,
    }


def _print(results: Sequence[Result]) -> None:
    """A table of one race; ratios are against our first schedule, by minimum."""
    first = results[0]
    case = first.case
    title = f"{case.op} {case.variant}, T,B,I,H = {','.join(map(str, case.shape))}, {first.threads} threads"
    rows = []
    for result in results:
        label = f"{result.contestant} ({result.schedule})" if result.schedule else result.contestant
        if result.minimum is None or result.median is None or first.minimum is None:
            rows.append([label, result.absence or "", "", "", "", ""])
            continue
        rows.append(
            [
                label,
                f"{result.minimum * 1e3:.3f}",
                f"{result.median * 1e3:.3f}",
                f"{result.minimum / first.minimum:.2f}",
                "" if result.memory is None else console.bytes_text(result.memory),
                "" if result.lower is None else f"{result.lower:.2f} + {result.load or 0:.2f}",
            ]
        )
    columns = ["contestant", "min ms", "median ms", "ratio", "memory", "lower + load s"]
    console.table(*columns, rows=rows, title=title, right=columns[1:])
    console.out().print()
