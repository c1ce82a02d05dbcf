"""The fastest provider of this machine for a model, found by measuring: `providers="fastest"`, `bench --recommend`.

Each provider that is installed runs the model in a process of its own; they take turns, and the fastest run of each
counts. One that computes other results than the processor is never chosen. What was measured is kept in a file of the
user's cache, by everything that it depends on, so that a model is measured once on a machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

import lstm_lower
from lstm_lower.errors import LstmLowerError, brief
from lstm_lower.graph import standard as std
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.composites import is_to_lower
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.lower import lower
from lstm_lower.passes.targets.table import target_of
from lstm_lower.passes.tidy import SortPass
from lstm_lower.records import state as training_state
from lstm_lower.records.files import atomic_path
from lstm_lower.records.model_files import save
from lstm_lower.runtime import feeds as feed_values
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.measuring.bench import sizes_of
from lstm_lower.runtime.measuring.model_run import ModelRun
from lstm_lower.runtime.measuring.results import Engine, Proof, proof_of
from lstm_lower.runtime.measuring.worker import Worker, WorkerError, take_turns
from lstm_lower.runtime.processor import processor, processors
from lstm_lower.runtime.serialized import serialize

Array = np.ndarray[Any, Any]

UNROLL = "unroll"
# Over how many runs the time to load is spread.
RUNS = 10_000
# What another provider must gain over the processor's kernels, beyond what two measurements differ by.
_GAIN = 0.95
_SECONDS = 1.0


# What was measured, and what follows.


@dataclasses.dataclass(frozen=True)
class Timing:
    """A provider with a model.

    Attributes:
        provider: its short name.
        schedule: under which the model is lowered for it before it is opened; `None` where a session does it.
        run: seconds of the fastest run; `None` for one that cannot be chosen.
        load: seconds from the model to the open session.
        absence: why it cannot be chosen.
    """

    provider: str
    schedule: str | None = None
    run: float | None = None
    load: float = 0.0
    absence: str | None = None

    @property
    def name(self) -> str:
        """`openvino, unrolled`."""
        return self.provider if self.schedule is None else f"{self.provider}, {self.schedule}ed"

    @property
    def cost(self) -> float:
        """Seconds of loading and `RUNS` runs."""
        return float("inf") if self.run is None else self.load + RUNS * self.run

    def __str__(self) -> str:
        times = "" if self.run is None else f" {1e3 * self.run:.3g} ms a run, {self.load:.2g} s to load"
        return f"{self.name}{times}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The provider that was chosen, and why.

    Attributes:
        timings: of all that are installed, the processor's first.
        sizes: open sizes as they were while it was measured.
        precision: in which they computed; `None` for float32.
        remembered: whether it was measured before.
        note: why nothing was measured, where nothing was.
    """

    timings: tuple[Timing, ...]
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    precision: str | None = None
    remembered: bool = False
    note: str | None = None

    @property
    def chosen(self) -> Timing:
        """The one with the least time to load and run; the first, unless another one gains more than noise."""
        first, *others = self.timings
        best = min(others, key=lambda timing: timing.cost, default=first)
        return best if best.cost < _GAIN * first.cost else first

    @property
    def provider(self) -> str:
        """The chosen provider's short name."""
        return self.chosen.provider

    def prepared(self, model: ir.Model) -> ir.Model | None:
        """The model as the chosen provider gets it; `None` for as it is."""
        chosen = self.chosen
        return None if chosen.schedule is None else _lowered(model, chosen)

    def __str__(self) -> str:
        if self.note is not None:
            return f"{self.chosen.name} ({self.note})"
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        measured = ", ".join(filter(None, ["before" if self.remembered else "now", f"with {sizes}" if sizes else ""]))
        others = [str(timing) for timing in self.timings if timing.run is not None and timing != self.chosen]
        running = {timing.provider for timing in self.timings if timing.run is not None}
        absent = dict.fromkeys(timing.provider for timing in self.timings if timing.provider not in running)
        reasons = [f"not {', '.join(absent)} (bench --recommend says why)"] if absent else []
        return "; ".join([str(self.chosen), *others, *reasons, f"measured {measured}"])


def _lowered(model: ir.Model, timing: Timing) -> ir.Model:
    target = provider_names.row_of(timing.provider).target
    return lower(model, schedule=timing.schedule or "auto", target=target)


# Measuring.


def choose(
    model: ir.Model,
    sizes: Mapping[str, int] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    precision: str | None = None,
    threads: int | None = None,
    fresh: bool = False,
    in_float64: bool = False,
    seconds: float = _SECONDS,
    say: Callable[[str], object] = lambda _: None,
) -> Choice:
    """The fastest provider for a model, as it was measured before, or else measured now.

    Args:
        model: it is not changed.
        sizes: open sizes that it is measured with, by name or place, as `random_feeds` takes them.
        values: of inputs, such as the state; others are random.
        precision: in which providers compute: those that do not offer it take no part.
        threads: of each; `None` for all processors.
        fresh: measure it, also where it was measured before.
        in_float64: compare results with float64, and not with the processor's.
        seconds: about how long each provider runs.
        say: is told what comes next.

    Raises:
        InvalidInputError: sizes do not fit the model, or no provider offers the precision.
        InvalidModelError: the model is malformed.
    """
    there = _installed(precision)
    first, *others = (timing for _, timing in _entries(model, there))
    if not others:
        return Choice((first,), precision=precision, note="no other provider is installed")
    given = _of_inputs(model, values or {})
    try:
        feeds = feed_values.random_feeds(model, {**sizes_of(model, given), **(sizes or {})}) | given
    except LstmLowerError as error:
        if sizes:
            raise
        return Choice((first,), precision=precision, note=f"not measured: {brief(error)}")
    concrete = sizes_of(model, feeds)
    threads = threads or processors()
    path = _place(_key(model, concrete, there, threads, precision))
    kept = None if fresh or path is None else _read(path, there)
    if kept is not None:
        return Choice(kept, concrete, precision, remembered=True)
    proof = proof_of(model, feeds, in_float64=in_float64)
    timings = measured(model, feeds, there, proof, threads=threads, seconds=seconds, say=say)
    if timings[0].provider == "cpu" and timings[0].run is None:
        return Choice((first,), concrete, precision, note=f"not measured: {timings[0].absence}")
    if path is not None:
        _write(path, timings)
    return Choice(tuple(timings), concrete, precision)


def as_trained(model: ir.Model) -> tuple[ir.Model, dict[str, Array]]:
    """A training step as a trainer runs it, its state fed, and the state's first values; another model as it is."""
    step = run_passes(model, [SortPass()])
    if not training_state.of(step).pairs:
        return step, {}
    return step, {name: tensor.numpy() for name, tensor in training_state.detach_initial_values(step).items()}


def _installed(precision: str | None) -> list[Engine]:
    """The providers that are installed and offer a precision; whether one runs here shows in a process of its own.

    Raises:
        InvalidInputError: none of them does.
    """
    rows = [row for row in provider_names.ROWS if precision is None or precision in row.precisions]
    there = [Engine(row.short, precision) for row in rows if provider_names.is_installed(row)]
    if not there:
        provider_names.resolve(None, precision)  # says what is missing
    return there


def _of_inputs(model: ir.Model, values: Mapping[str, Any]) -> dict[str, Array]:
    names = {value.name for value in model.graph.inputs}
    return {name: np.asarray(value) for name, value in values.items() if name in names}


def measured(
    model: ir.Model,
    feeds: Mapping[str, Array],
    there: Sequence[Engine],
    proof: Proof,
    *,
    threads: int,
    seconds: float,
    say: Callable[[str], object] = lambda _: None,
) -> list[Timing]:
    """Times a model on providers.

    Args:
        model: the model.
        feeds: input name -> array.
        there: the providers, in the order in which one is preferred.
        proof: what results are compared with; the processor's where it holds nothing.
        threads: of each.
        seconds: about how long each one runs.
        say: is told what comes next.
    """
    timings: list[Timing] = []
    workers: dict[Timing, Worker] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def opened(engine: Engine, timing: Timing) -> tuple[Worker, float]:
            path, spent = _written(model, timing, folder)
            worker = Worker(ModelRun, str(path), feeds, threads, engine.provider, engine.precision, threads=threads)
            stack.callback(worker.close)
            return worker, spent + float(worker.facts.get("load_seconds", 0))

        for engine, timing in _entries(model, there):
            say(timing.name)
            try:
                worker, load = opened(engine, timing)
                results = _results(worker)
                if proof.expected is None:
                    other = engine.provider != "cpu"
                    expected = _results(opened(Engine("cpu"), Timing("cpu"))[0]) if other else results
                    proof = dataclasses.replace(proof, expected=expected)
                absence = _difference(proof, results, engine)
            except LstmLowerError as error:
                absence = _in_brief(error.refusal.text if isinstance(error, WorkerError) else str(error))
            if absence is not None:
                timings.append(dataclasses.replace(timing, absence=absence))
                if proof.expected is None and engine.provider == "cpu":
                    break  # a session says what is wrong with the model
                continue
            timings.append(dataclasses.replace(timing, load=load))
            workers[timings[-1]] = worker
        say("rounds")
        times = take_turns(list(workers.values()), seconds=seconds)
        return [_timed(timing, workers.get(timing), times) for timing in timings]


def _timed(timing: Timing, worker: Worker | None, times: Mapping[Worker, list[float]]) -> Timing:
    """With the time of a run, or why a run failed after others; as it is for one that takes no part."""
    if worker is None:
        return timing
    if worker.refusal is not None:
        return dataclasses.replace(timing, absence=_in_brief(worker.refusal.text))
    return dataclasses.replace(timing, run=min(times[worker]))


def _in_brief(text: str) -> str:
    """The first two lines, on one."""
    return " ".join(line.strip() for line in text.splitlines()[:2])


def _entries(model: ir.Model, there: Iterable[Engine]) -> list[tuple[Engine, Timing]]:
    """Who is timed: each provider with the model as a session takes it, and unrolled where that is another one."""
    loops = is_to_lower(model) or any(
        std.Scan.matches(node) or std.Loop.matches(node) for node in all_nodes(model.graph)
    )
    entries = []
    for engine in there:
        entries.append((engine, Timing(engine.provider)))
        if loops and engine.target is not None and target_of(engine.target).schedule("auto") != UNROLL:
            entries.append((engine, Timing(engine.provider, UNROLL)))
    return entries


def _written(model: ir.Model, timing: Timing, folder: Path) -> tuple[Path, float]:
    """The file of the model as a provider gets it, and how long it took to lower."""
    path = folder / f"{timing.provider}_{timing.schedule}.onnx"
    start = time.perf_counter()
    prepared = model if timing.schedule is None else _lowered(model, timing)
    spent = time.perf_counter() - start
    save(prepared, path)
    return path, spent


def _results(worker: Worker) -> Mapping[str, Any]:
    if worker.refusal is not None:
        raise WorkerError(worker.refusal)
    results: Mapping[str, Any] = worker.ask("results")
    return results


def _difference(proof: Proof, results: Mapping[str, Any], engine: Engine) -> str | None:
    """Why a provider is not to be chosen for its results."""
    verdict = proof.judge(results, engine.precision)
    if verdict.fault is not None:
        return f"computes something else than {proof.source}: {verdict.fault}"
    if verdict.error is None and engine.provider != "cpu":
        return "its results, in which random numbers are, cannot be compared"
    return None


# The file that keeps it.


def _key(
    model: ir.Model, sizes: Mapping[str, int], there: Iterable[Engine], threads: int, precision: str | None
) -> str:
    """A digest of all that times depend on: equal ones need no second measurement."""
    bare = copy_model(model)
    # Where it came from, and how it was proven.
    bare.metadata_props.clear()
    about = {
        "model": hashlib.sha256(serialize(bare)[0]).hexdigest(),
        "sizes": dict(sizes),
        "lstm-lower": lstm_lower.__version__,
        "onnxruntime": ort.__version__,
        "providers": {engine.provider: provider_names.version(engine.provider) for engine in there},
        "processor": processor(),
        "threads": threads,
        "precision": precision,
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _place(key: str) -> Path | None:
    """The file of a measurement; `None` where nothing can be kept."""
    with contextlib.suppress(OSError, RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
        folder = (Path(home) if home else Path.home() / ".cache") / "lstm-lower" / "fastest"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{key}.json"
    return None


def _read(path: Path, there: Iterable[Engine]) -> tuple[Timing, ...] | None:
    """Timings that were kept; `None` where there are none, or not of the providers that are here."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        timings = tuple(
            Timing(
                str(row["provider"]),
                None if row["schedule"] is None else UNROLL,
                None if row["run"] is None else float(row["run"]),
                float(row["load"]),
                None if row["absence"] is None else str(row["absence"]),
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = {timing.provider for timing in timings} == {engine.provider for engine in there}
    return timings if is_whole else None


def _write(path: Path, timings: Iterable[Timing]) -> None:
    with contextlib.suppress(OSError), atomic_path(path) as temporary:
        temporary.write_text(json.dumps([dataclasses.asdict(timing) for timing in timings]), encoding="utf-8")
