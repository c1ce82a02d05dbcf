"""onnxruntime's profile of a run as a tree of calls, bodies of loops and branches inside them.

onnxruntime writes an event for every call of a kernel at the moment in which it returns. What a Scan, Loop or If runs
comes before the event of the node itself, closed by an event of the executor for each iteration:

    Add, Exp, Execute, Add, Exp, Execute, Scan, MatMul, Execute, model_run

so that one pass over the file, from the innermost events outwards, gives the tree. Names are those of the optimised
graph: nodes that onnxruntime fused carry new names, one without a name is called `<op>_<index>`.

Times are whole microseconds. What onnxruntime needs to write an event (5 to 10 microseconds) counts as time of the
loops around a node: compare calls without bodies, as the tables of `node_times` do, and take the time of a whole run
from runs without a profile.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.providers import Provider, resolve, uncaptured
from lstm_lower.runtime.session import Session, default_options

Array = np.ndarray[Any, Any]

_SUFFIX = "_kernel_time"
_BODY, _RUN = "SequentialExecutor::Execute", "model_run"
_MICROSECOND = 1e-6
_Event = TypeVar("_Event", "ProfiledCall", "ProfiledBody")


@dataclasses.dataclass(frozen=True)
class ProfiledCall:
    """One call of one node.

    Attributes:
        name: the node's name in the optimised graph.
        op: its operator, or what a provider calls its fused node.
        provider: full name of the execution provider that ran it.
        start: seconds since the session was opened.
        seconds: how long it took, bodies included.
        written: bytes of its outputs.
        bodies: one for each iteration of a loop, or the one branch that was taken; empty for every other node.
    """

    name: str
    op: str
    provider: str
    start: float
    seconds: float
    written: int
    bodies: tuple[ProfiledBody, ...]


@dataclasses.dataclass(frozen=True)
class ProfiledBody:
    """One execution of a graph: the whole one, an iteration of a loop, or a branch.

    Attributes:
        start: seconds since the session was opened.
        seconds: how long it took.
        calls: its nodes' calls in the order in which they ran.
    """

    start: float
    seconds: float
    calls: tuple[ProfiledCall, ...]


@dataclasses.dataclass(frozen=True)
class ProfiledRun(ProfiledBody):
    """One run of a session.

    Attributes:
        arena: the most bytes that were in use in onnxruntime's memory arena after a node, beyond those before the first
            run, which are the session's: outputs of nodes and of the graph, and where a memory pattern is in use the
            block for all of them; `None` where the provider or the version of onnxruntime does not say.
    """

    arena: int | None = None


def profile(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    feeds: Mapping[str, Array],
    *,
    runs: int = 3,
    warm_up: int = 1,
    providers: Sequence[Provider] | Provider | None = None,
    precision: str | None = None,
    session_options: ort.SessionOptions | None = None,
) -> list[ProfiledRun]:
    """Runs a model under onnxruntime's profiler.

    Args:
        model: what `Session` takes.
        feeds: input name -> array.
        runs: how many runs are kept.
        warm_up: runs before them, which are thrown away: the first one asks for memory.
        providers: execution providers.
        precision: in which they compute, see `Session`.
        session_options: of the session, on which profiling is switched on; `None` for the defaults.

    Returns:
        A tree for each run, of which `node_times` makes a table.

    Raises:
        InvalidInputError: the feeds do not fit, or onnxruntime's profile does not hold the runs.
        InvalidModelError, UnsupportedOpError: as `Session`.
    """
    options = default_options() if session_options is None else session_options
    with tempfile.TemporaryDirectory() as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        # The profiler sees no nodes of captured runs.
        chosen = uncaptured(resolve(providers, precision, options)) or None
        session = Session(model, chosen, options, precision=precision)
        for _ in range(warm_up + runs):
            session.run(feeds)
        events = read(session.ort.end_profiling())
    if len(events) != warm_up + runs:
        raise InvalidInputError(
            f"the profile requires {warm_up + runs} whole runs, got {len(events)}: onnxruntime keeps a million events, "
            "take fewer runs or smaller feeds"
        )
    return events[warm_up:]


def read(path: str | os.PathLike[str]) -> list[ProfiledRun]:
    """Reads a profile as onnxruntime writes it (`SessionOptions.enable_profiling`), with sequential execution.

    Returns:
        A tree for each run that the file holds whole.

    Raises:
        InvalidInputError: the file is no such profile.
        FileNotFoundError: there is no such file.
    """
    with Path(path).open(encoding="utf-8") as stream:
        try:
            return _with_arena(list(_runs(json.load(stream))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(f"{path}: a profile of onnxruntime is required, got {error}") from error


def _runs(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[ProfiledRun, list[Mapping[str, str]]]]:
    """The runs among events, threads apart, each with what onnxruntime says of its nodes' calls."""
    calls: dict[int, list[ProfiledCall]] = collections.defaultdict(list)
    bodies: dict[int, list[ProfiledBody]] = collections.defaultdict(list)
    abouts: dict[int, list[Mapping[str, str]]] = collections.defaultdict(list)
    for event in events:
        thread, name, category = event["tid"], event["name"], event["cat"]
        start, seconds = event["ts"] * _MICROSECOND, event["dur"] * _MICROSECOND
        if category == "Node" and name.endswith(_SUFFIX):
            inside, about = _taken(bodies[thread], event["ts"]), event["args"]
            written = int(about.get("output_size", 0))
            call = ProfiledCall(
                name.removesuffix(_SUFFIX), about["op_name"], about["provider"], start, seconds, written, inside
            )
            calls[thread].append(call)
            abouts[thread].append(about)
        elif name == _BODY:
            bodies[thread].append(ProfiledBody(start, seconds, _taken(calls[thread], event["ts"])))
        elif name == _RUN:
            inside = _taken(bodies[thread], event["ts"])
            yield (
                ProfiledRun(start, seconds, tuple(call for body in inside for call in body.calls)),
                abouts.pop(thread, []),
            )


def _with_arena(found: Sequence[tuple[ProfiledRun, Sequence[Mapping[str, str]]]]) -> list[ProfiledRun]:
    """The runs, with what they held in the arena at most."""
    key, change = "mem_bytes_in_use", "mem_in_use_delta"
    if not found or not all(about and all(key in node for node in about) for _, about in found):
        return [run for run, _ in found]
    # A node inside a loop ends before the loop does, which had asked for memory before: the least is what was there.
    before = min(int(node[key]) - int(node[change]) for node in found[0][1])
    return [dataclasses.replace(run, arena=max(int(node[key]) for node in about) - before) for run, about in found]


def _taken(ended: list[_Event], since: int) -> tuple[_Event, ...]:
    """Takes from the end of a list what began at a time or later: it lies inside what ends now.

    Between the end of a call and the beginning of the next onnxruntime writes an event, which takes microseconds: what
    ended before has an earlier beginning, though times are whole microseconds.
    """
    count = 0
    for event in reversed(ended):
        if round(event.start / _MICROSECOND) < since:
            break
        count += 1
    taken = tuple(ended[len(ended) - count :])
    del ended[len(ended) - count :]
    return taken


def walk(body: ProfiledBody, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ProfiledCall]]:
    """Every call with the names of the loops and branches around it, a loop before what is in it."""
    for call in body.calls:
        yield place, call
        for inner in call.bodies:
            yield from walk(inner, (*place, call.name))
