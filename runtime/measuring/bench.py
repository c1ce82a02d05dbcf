"""A user's model against itself: its forms on every provider asked for, proven, then timed in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.pipeline import parse_schedule
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.measuring.forms import FORMS, Form, FormedModel, formed_models
from lstm_lower.runtime.measuring.model_run import ModelRun
from lstm_lower.runtime.measuring.results import Bench, Engine, Figures, Result, Verdict, proof_of
from lstm_lower.runtime.measuring.worker import ROUNDS, Worker, take_turns
from lstm_lower.runtime.providers import ROWS, row_of

Array = np.ndarray[Any, Any]

SCHEDULES = ("auto", "scan", "unroll")
# Under the profiler, of a model that is not slow; the table shows the median.
_PROFILED_RUNS = 5


def usual_providers(precisions: Sequence[str] = ()) -> list[str]:
    """The processor, and of what onnxruntime's own kernels there do not compute in, the providers that offer it."""
    further = [precision for precision in precisions if precision not in row_of("cpu").precisions]
    return list(dict.fromkeys(["cpu", *(name for precision in further for name in provider_names.offering(precision))]))


def engines(providers: Sequence[str], precisions: Sequence[str] = ()) -> tuple[list[Engine], dict[Engine, str]]:
    """Every provider in every precision that it offers.

    Args:
        providers: short or full names.
        precisions: names that at least one of them offers; without any each computes in its own.

    Returns:
        Those that this machine has, and of the others why not.

    Raises:
        InvalidInputError: a provider does not exist or none is there, or a precision is offered by none.
    """
    found = []
    absent: dict[Engine, str] = {}
    wanted: Sequence[str | None] = precisions or [None]
    for precision in wanted:
        able = [name for name in providers if precision is None or precision in row_of(name).precisions]
        for provider in able or providers:  # none of which offers it, as `resolve` says
            engine = Engine(provider, precision)
            try:
                provider_names.resolve(provider, precision)
            except InvalidInputError as error:
                if row_of(provider) not in ROWS or provider not in able or len(providers) == 1:
                    raise
                absent[engine] = str(error)
            else:
                found.append(engine)
    if not found:
        raise InvalidInputError("; ".join(absent.values()))
    return found, absent


@dataclasses.dataclass(frozen=True)
class _Contestant:
    made: FormedModel
    engine: Engine
    worker: Worker | None

    @property
    def absence(self) -> str | None:
        if self.worker is None:
            return self.made.absence
        return None if self.worker.refusal is None else f"does not run: {self.worker.refusal.text}"


def bench(
    path: str | os.PathLike[str],
    source: ir.Model,
    feeds: Mapping[str, Array],
    *,
    forms: Sequence[Form] = FORMS,
    schedules: Sequence[str] = SCHEDULES,
    providers: Sequence[str] = ("cpu",),
    precisions: Sequence[str] = (),
    threads: int = 2,
    seconds: float = 3.0,
    rounds: int = ROUNDS,
    in_float64: bool = True,
    fixed_sizes: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Bench:
    """Times a model's forms side by side, each in a process of its own.

    Args:
        path: the file that the model came from.
        source: the model; it is not changed.
        feeds: input name -> array.
        forms: which forms take part.
        schedules: of the optimised form; each makes a contestant.
        providers: execution providers, each for all forms; one that this machine lacks leaves the others.
        precisions: in which those that offer them compute; each makes contestants.
        threads: of each contestant.
        seconds: about how long each one runs in all.
        rounds: in how many turns; two at least.
        in_float64: prove results against float64; otherwise compare them with the first contestant's.
        fixed_sizes: fix open sizes of inputs in the forms that are made, as feeds have them.
        say: is told what comes next.

    Raises:
        InvalidInputError: a schedule is unknown, no provider is installed or one does not exist, or the feeds do not
            fit.
        InvalidModelError, UnsupportedOpError: the model is malformed or cannot be lowered.
    """
    for schedule in schedules:
        parse_schedule(schedule)
    chosen, absent = engines(providers, precisions)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        field = []
        targets = list(dict.fromkeys(engine.target for engine in chosen))
        sizes = sizes_of(source, feeds) if fixed_sizes else None
        for made in formed_models(path, source, folder, forms=forms, schedules=schedules, targets=targets, sizes=sizes):
            able = [engine for engine in chosen if made.form == "original" or engine.target == made.target]
            for engine in able if made.path is not None else able[:1]:
                say(f"{made.name} on {engine.name}")
                field.append(_Contestant(made, engine, _worker(made, engine, feeds, threads, stack)))
        say("float64" if in_float64 else "results")
        proof = proof_of(source, feeds, in_float64=in_float64)
        verdicts: dict[Worker, Verdict] = {}
        for entry in field:
            if entry.worker is not None and entry.absence is None:
                results = entry.worker.ask("results")
                proof = proof if proof.expected is not None else dataclasses.replace(proof, expected=results)
                verdicts[entry.worker] = proof.judge(results, entry.engine.precision)
        say("rounds")
        figures = _figures([worker for worker, verdict in verdicts.items() if verdict.fault is None], seconds, rounds)
        several = len(chosen) + len(absent) > 1
        present = [_result(entry, verdicts, figures, several=several) for entry in field]
        missing = [Result(engine.name, forms[0], None, engine, reason) for engine, reason in absent.items()]
        return Bench((*present, *missing), threads, proof)


def sizes_of(source: ir.Model, feeds: Mapping[str, Array]) -> dict[str, int]:
    """The sizes of feeds whose inputs leave them open, by name."""
    by_name: dict[str, int] = {}
    for value in source.graph.inputs:
        shape = np.shape(feeds.get(value.name or "", ()))
        for dim, size in zip(declared_shape(value) or (), shape, strict=False):
            if isinstance(dim, str):
                by_name.setdefault(dim, size)
    return by_name


def _worker(
    made: FormedModel, engine: Engine, feeds: Mapping[str, Array], threads: int, stack: contextlib.ExitStack
) -> Worker | None:
    """The process of a form on a provider, closed with the stack; `None` for a form without a file."""
    if made.path is None:
        return None
    worker = Worker(
        ModelRun, str(made.path), feeds, threads, engine.provider, engine.precision,
        as_it_is=made.form == "original", threads=threads,
    )  # fmt: skip
    stack.callback(worker.close)
    if worker.refusal is not None and worker.refusal.kind == InvalidInputError.__name__:
        raise InvalidInputError(worker.refusal.text)
    return worker


def _figures(workers: Sequence[Worker], seconds: float, rounds: int) -> dict[Worker, Figures]:
    times = take_turns(workers, seconds=seconds, rounds=rounds)
    return {
        worker: Figures(
            min(found),
            statistics.median(found),
            len(found),
            worker.ask("memory"),
            tuple(worker.ask("profile", max(1, min(_PROFILED_RUNS, round(seconds / min(found)))))),
        )
        for worker, found in times.items()
    }


def _result(
    entry: _Contestant, verdicts: Mapping[Worker, Verdict], figures: Mapping[Worker, Figures], *, several: bool
) -> Result:
    made, worker = entry.made, entry.worker
    return Result(
        f"{made.name}, {entry.engine.name}" if several and (made.path or made.target) else made.name,
        made.form,
        made.schedule,
        entry.engine,
        entry.absence,
        made.seconds,
        None if worker is None else worker.facts.get("load_seconds"),
        None if worker is None else verdicts.get(worker),
        None if worker is None else figures.get(worker),
    )
