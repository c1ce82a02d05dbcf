"""`lstm-lower bench`: how fast is it, next to TensorFlow, PyTorch and the bare matrix products?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption
from lstm_lower.errors import InvalidInputError

if TYPE_CHECKING:
    from lstm_lower.runtime.bench import Result

DEFAULT_SHAPES = ("10,1,32,32", "50,32,128,128", "100,32,256,256", "100,64,512,512", "500,16,256,256")


def bench(
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
            help="textbook, floor, tensorflow, pytorch or floor-pytorch (the bare products in PyTorch); of "
            "CudnnRNNBackprop also sequential, which leaves its operand output unread. All of them without it.",
        ),
    ] = None,
    threads: Annotated[list[int] | None, typer.Option("--threads", min=1, help="Threads; may be repeated.")] = None,
    schedule: Annotated[
        list[str] | None, typer.Option("--schedule", help="Our schedule; may be repeated to compare several.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Time for each contestant.")] = 3.0,
    memory: Annotated[bool, typer.Option("--memory", help="Also measure memory beyond the inputs.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the figures as JSON.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw them as .png or .svg (needs matplotlib).", show_default=False)
    ] = None,
    lowering: Annotated[
        bool, typer.Option("--lowering", help="Time lowering itself instead, on 20,000 nodes with 2,000 recurrent ops.")
    ] = False,
    importing: Annotated[
        bool, typer.Option("--import", help="Time the import of a TensorFlow graph instead (needs TensorFlow).")
    ] = False,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes of the graph that --import makes, about.")] = 5000,
    as_json: JsonOption = False,
) -> None:
    """Time one op side by side with others.

    Contestants take turns, each in a process of its own with the same number of threads. `floor` is the matrix products
    that nobody can leave out, timed in onnxruntime; `textbook` is our lowering without the loop optimiser. A contestant
    whose library is not installed is left out.
    """
    if lowering:
        _bench_lowering(as_json=as_json)
        return
    if importing:
        _bench_import(nodes, as_json=as_json)
        return
    with console.errors(as_json=as_json):
        from lstm_lower.passes.pipeline import parse_schedule
        from lstm_lower.runtime import bench_cases, bench_cudnn
        from lstm_lower.runtime.bench import CONTESTANTS, race
        from lstm_lower.runtime.bench_cases import Case

        _choose("--op", [op], ("BlockLSTMGrad", "BlockLSTM", *bench_cudnn.RIVALS))
        known = (bench_cudnn if op in bench_cudnn.RIVALS else bench_cases).VARIANTS
        variants = _choose("--variant", variant or known[:1], known)
        opponents = bench_cudnn.RIVALS.get(op, CONTESTANTS[1:])
        rivals = _choose("--against", against or opponents, opponents)
        schedules = schedule or ["auto"]
        for text in schedules:
            parse_schedule(text)
        results: list[Result] = []
        for count in threads or [2]:
            for sizes in map(_parse_shape, shape or DEFAULT_SHAPES):
                for name in variants:
                    results += race(
                        Case(op, sizes, name),
                        ["lstm-lower", *rivals],
                        threads=count,
                        schedules=schedules,
                        seconds=seconds,
                        memory=memory,
                    )
                    if not as_json:
                        _print(results[-len(rivals) - len(schedules) :])
        data = [_plain(result) for result in results]
        if output is not None:
            output.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        if plot is not None:
            from lstm_lower.runtime.bench_plot import draw

            draw(results, plot)
        if as_json:
            console.print_json(data)


def _bench_lowering(*, as_json: bool) -> None:
    from lstm_lower.runtime.bench_compile import measure

    times = measure()
    if as_json:
        console.print_json(dataclasses.asdict(times))
        return
    rows = [
        ["lower, onnx_ir in and out", f"{times.lower_s:.2f} s"],
        ["lower and optimise, onnx_ir in and out", f"{times.lower_and_optimize_s:.2f} s"],
        ["lower and optimise, protobuf in and out", f"{times.protobuf_s:.2f} s"],
        ["peak memory of the last", f"{times.peak_mb:.0f} MB"],
    ]
    title = f"{times.nodes} nodes, {times.composites} recurrent: {times.nodes_after} nodes after"
    console.table(title, "", rows=rows)


def _bench_import(nodes: int, *, as_json: bool) -> None:
    with console.errors(as_json=as_json):
        from lstm_lower.runtime.bench_import import measure

        times = measure(nodes)
    if as_json:
        console.print_json(dataclasses.asdict(times) | {"import_s": times.import_s})
        return
    rows = [
        ["load TensorFlow and tf2onnx", f"{times.load_s:.2f} s"],
        ["read, inline, make state explicit, check", f"{times.plan_s:.2f} s"],
        ["TensorFlow's own optimiser", f"{times.fold_s:.2f} s"],
        ["tf2onnx", f"{times.convert_s:.2f} s"],
        ["name, complete, verify", f"{times.finish_s:.2f} s"],
        ["import, the last four", f"{times.import_s:.2f} s"],
        ["lower and optimise", f"{times.lower_s:.2f} s"],
        ["peak memory with TensorFlow loaded", f"{times.load_peak_mb:.0f} MB"],
        ["peak memory of the import", f"{times.import_peak_mb:.0f} MB"],
        ["peak memory with lowering", f"{times.peak_mb:.0f} MB"],
    ]
    counts = f"{times.composites} of {times.imported_nodes} for our rules ({times.recurrent} recurrent)"
    title = f"{times.nodes} TensorFlow nodes; imported, {counts}; {times.lowered_nodes} after lowering"
    console.table(title, "", rows=rows)


def _choose(option: str, given: Sequence[str], allowed: Sequence[str]) -> list[str]:
    for name in given:
        if name not in allowed:
            raise InvalidInputError(f"{option} requires one of {', '.join(allowed)}, got {name!r}")
    return list(given)


def _parse_shape(text: str) -> tuple[int, int, int, int]:
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise InvalidInputError(f"--shape requires T,B,I,H, four sizes above 0, got {text!r}")
    T, B, I, H = (int(part) for part in parts)  # noqa: E741
    return T, B, I, H


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
            rows.append([label, "not installed", "", "", "", ""])
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
