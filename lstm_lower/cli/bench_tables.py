"""Results of `lstm-lower bench` as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.errors import brief
from lstm_lower.runtime.node_times import LoopTime, NodeTime, OpTime, by_loop, by_op, node_times

if TYPE_CHECKING:
    from lstm_lower.runtime.measuring.results import Bench, Result

# Longer names of loops are cut in front, so that a row fits into 100 columns.
_WIDTH = 44


def print_bench(found: Bench, shown: Result | None, top: int, drawn: Mapping[str, int]) -> None:
    """Prints a row per contestant, who takes no part and why, and where one contestant's time goes.

    Args:
        found: what was measured.
        shown: whose time is shown by operator and by loop.
        top: how many operators are shown.
        drawn: sizes of random feeds that the model leaves open; none where the feeds were given.
    """
    _print_contestants(found)
    if drawn:
        listed = ", ".join(f"{name}={size}" for name, size in drawn.items())
        console.out().print(escape(f"random feeds of {listed}; --dim NAME=SIZE chooses other sizes"))
    if shown is not None and shown.figures is not None:
        nodes = node_times(shown.figures.profile)
        total = sum(row.seconds for row in by_op(nodes)) or 1.0
        times = f"{_ms(total)} ms in nodes, {_ms(shown.figures.median)} ms a run without the profiler"
        console.out().print(escape(f"\nWhere the time of {shown.name} goes: {times}\n"))
        _print_ops(by_op(nodes), total, top)
        _print_loops(by_loop(nodes), total)


def _print_contestants(found: Bench) -> None:
    first = found.timed[0][1].minimum if found.timed else 1.0
    columns = ["contestant", "min ms", "median ms", "ratio", "error", "arena", "resident", "lower s", "load s"]
    rows = []
    for result in found.results:
        if result.absence is not None:
            continue
        figures, verdict = result.figures, result.verdict
        cells = [result.name]
        cells += [_ms(figures.minimum), _ms(figures.median)] if figures else ["wrong", ""]
        cells += [f"{figures.minimum / first:.2f}" if figures else ""]
        cells += ["-" if verdict is None or verdict.error is None else f"{verdict.error:.1e}"]
        cells += [_bytes(size) for size in ((figures.arena, figures.resident) if figures else (None, None))]
        cells += [_seconds(value) for value in (result.lower_seconds, result.load_seconds)]
        rows.append(cells)
    if rows:
        console.table(*columns, rows=rows, right=columns[1:])
        console.out().print()
    absent: dict[str, list[str]] = {}
    for result in found.results:
        if result.absence is not None:
            absent.setdefault(brief(result.absence), []).append(result.name)
        elif result.verdict is not None and result.verdict.fault is not None:
            console.out().print(f"[bold red]wrong:[/] {escape(f'{result.name}: {result.verdict.fault}')}")
    for reason, names in absent.items():
        console.out().print(escape(f"{', '.join(names)}: {reason}"))
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''} each"
    console.out().print(escape(f"results compared with {found.proof.source}; {threads}"))
    if random := sorted(found.proof.random):
        console.out().print(escape(f"not compared, since random numbers are in them: {', '.join(random)}"))


def _print_ops(ops: Sequence[OpTime], total: float, top: int) -> None:
    rows = [
        [row.op, f"{row.calls:.0f}", _ms(row.seconds), f"{100 * row.seconds / total:.1f}", _bytes(row.written)]
        for row in ops[:top]
    ]
    if rest := ops[top:]:
        calls, seconds, written = (sum(getattr(row, key) for row in rest) for key in ("calls", "seconds", "written"))
        name = f"{len(rest)} other{'s' if len(rest) > 1 else ''}"
        rows.append([name, f"{calls:.0f}", _ms(seconds), f"{100 * seconds / total:.1f}", _bytes(written)])
    columns = ["op", "calls", "ms", "%", "written"]
    console.table(*columns, rows=rows, right=columns[1:])
    console.out().print()


def _print_loops(loops: Sequence[LoopTime], total: float) -> None:
    rows = []
    for row in loops:
        cells = ["  " * len(row.place) + _place(row.place), f"{row.iterations:.0f}", f"{row.calls:.0f}"]
        cells += [_ms(row.seconds), f"{100 * row.seconds / total:.1f}"]
        each = row.iterations or 1
        cells += [f"{1e6 * row.seconds / each:.0f}", _bytes(row.written / each)]
        rows.append(cells)
    columns = ["in", "steps", "calls", "ms", "%", "us a step", "written a step"]
    console.table(*columns, rows=rows, right=columns[1:])


def _place(place: Sequence[str]) -> str:
    name = place[-1] if place else "main graph"
    return name if len(name) <= _WIDTH else f"…{name[1 - _WIDTH :]}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}" if seconds < 0.1 else f"{1e3 * seconds:.1f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _bytes(count: float | None) -> str:
    return "-" if count is None else console.bytes_text(round(count))


def bench_data(found: Bench) -> dict[str, Any]:
    """Measured figures as JSON has them; times in seconds, sizes in bytes."""
    first = found.timed[0][1].minimum if found.timed else None
    return {
        "passed": found.passed,
        "threads": found.threads,
        "proof": found.proof.source,
        "random_outputs": sorted(found.proof.random),
        "fastest": None if found.fastest is None else found.fastest.name,
        "contestants": [_result_data(result, first) for result in found.results],
    }


def _result_data(result: Result, first: float | None) -> dict[str, Any]:
    figures, verdict = result.figures, result.verdict
    data: dict[str, Any] = {
        "name": result.name,
        "form": result.form,
        "schedule": result.schedule,
        "provider": result.engine.provider,
        "precision": result.engine.precision,
        "absence": result.absence,
        "fault": None if verdict is None else verdict.fault,
        "error": None if verdict is None else verdict.error,
        "lower_seconds": result.lower_seconds,
        "load_seconds": result.load_seconds,
    }
    if figures is None or first is None:
        return data
    nodes = node_times(figures.profile)
    return {
        **data,
        "minimum_seconds": figures.minimum,
        "median_seconds": figures.median,
        "runs": figures.runs,
        "ratio": figures.minimum / first,
        "arena_bytes": figures.arena,
        "resident_bytes": figures.resident,
        "ops": [dataclasses.asdict(row) for row in by_op(nodes)],
        "loops": [dataclasses.asdict(row) for row in by_loop(nodes)],
        "nodes": [_node_data(node) for node in nodes],
    }


def _node_data(node: NodeTime) -> dict[str, Any]:
    return {**dataclasses.asdict(node), "holds_bodies": node.holds_bodies}
