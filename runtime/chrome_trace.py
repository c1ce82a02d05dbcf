"""Runs as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing draw: loops as slices that hold others.

The format is the JSON Array Format of Google's "Trace Event Format": complete events (`ph` is `X`) with beginning and
duration in microseconds, nested by time, and metadata events that name processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lstm_lower.records.files import write_text
from lstm_lower.runtime.profile import ProfiledBody, ProfiledRun

_MICROSECONDS = 1e6


def write(path: str | os.PathLike[str], runs: Mapping[str, ProfiledRun]) -> None:
    """Writes runs side by side, a process of the trace each, all of which begin at 0.

    Args:
        path: the file, replaced whole or not at all.
        runs: name -> one run.

    Raises:
        OSError: nothing can be written there.
    """
    events = [event for number, (name, run) in enumerate(runs.items(), 1) for event in trace_events(run, name, number)]
    write_text(Path(path), "[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")


def trace_events(run: ProfiledRun, name: str, number: int) -> Iterator[dict[str, Any]]:
    """The events of one run.

    Args:
        run: the run.
        name: what the trace calls it.
        number: of its process in the trace.
    """
    yield {"name": "process_name", "ph": "M", "pid": number, "tid": 1, "args": {"name": name}}
    yield {"name": "process_sort_index", "ph": "M", "pid": number, "tid": 1, "args": {"sort_index": number}}
    end = run.seconds * _MICROSECONDS
    yield _slice("run", "run", number, 0.0, end, {})
    yield from _inside(run, run.start, number, (0.0, end))


def _inside(body: ProfiledBody, origin: float, number: int, limits: tuple[float, float]) -> Iterator[dict[str, Any]]:
    """The events of what a body calls, kept inside its limits: whole microseconds would overlap by one."""
    since, until = limits
    for call in body.calls:
        start = max(since, (call.start - origin) * _MICROSECONDS)
        end = max(start, min(until, (call.start + call.seconds - origin) * _MICROSECONDS))
        about = {"op": call.op, "provider": call.provider, "written bytes": call.written}
        yield _slice(call.name, call.op, number, start, end, about)
        place = start
        for index, inner in enumerate(call.bodies):
            first = max(place, (inner.start - origin) * _MICROSECONDS)
            place = max(first, min(end, (inner.start + inner.seconds - origin) * _MICROSECONDS))
            yield _slice(f"iteration {index}", "body", number, first, place, {})
            yield from _inside(inner, origin, number, (first, place))
        since = end


def _slice(name: str, kind: str, number: int, start: float, end: float, about: Mapping[str, Any]) -> dict[str, Any]:
    # Tenths keep what nesting needs and leave out the noise of binary fractions.
    begun = round(start, 1)
    timed = {"ts": begun, "dur": round(round(end, 1) - begun, 1)}
    return {"name": name, "cat": kind, "ph": "X", **timed, "pid": number, "tid": 1, "args": dict(about)}
