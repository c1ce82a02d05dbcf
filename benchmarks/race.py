"""The benchmark: contestants take turns, each in a process of its own, with the same number of threads."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from benchmarks.block import Case
from benchmarks.worker import absence, contestant
from lstm_lower.runtime.measuring.worker import take_turns


@dataclasses.dataclass(frozen=True)
class Result:
    """One contestant's figures for one case, in seconds and bytes.

    Attributes:
        minimum: the fastest run, `None` for a contestant that cannot take part.
        median: the median run.
        memory: bytes needed at the peak of a run beyond its inputs; outputs included.
        lower: time for lowering, where there is any.
        load: time to make the session, where there is any.
        absence: why there are no figures.
    """

    contestant: str
    case: Case
    threads: int
    schedule: str
    minimum: float | None
    median: float | None
    memory: int | None = None
    lower: float | None = None
    load: float | None = None
    absence: str | None = None


def race(
    case: Case,
    contestants: Sequence[str],
    *,
    threads: int = 2,
    schedules: Sequence[str] = ("auto",),
    seconds: float = 5.0,
    memory: bool = False,
) -> list[Result]:
    """Times contestants on one case, in turns.

    Args:
        case: what to time.
        contestants: names out of `contestants.CONTESTANTS`.
        threads: threads of every contestant.
        schedules: our schedules; each makes a contestant.
        seconds: how long each contestant runs in all.
        memory: also measure memory.

    Raises:
        InvalidInputError: a contestant fails.
    """
    entries = [
        (name, schedule) for name in contestants for schedule in (schedules if name == "lstm-lower" else schedules[:1])
    ]
    field = [(name, schedule, contestant(name, case, threads, schedule)) for name, schedule in entries]
    try:
        times = take_turns([worker for *_, worker in field if worker.refusal is None], seconds=seconds)
        return [
            Result(
                name,
                case,
                threads,
                schedule if name == "lstm-lower" else "",
                min(times[worker]) if worker in times else None,
                statistics.median(times[worker]) if worker in times else None,
                worker.ask("memory") if memory and worker in times else None,
                worker.facts.get("lower_s"),
                worker.facts.get("load_s"),
                absence(worker),
            )
            for name, schedule, worker in field
        ]
    finally:
        for *_, worker in field:
            worker.close()
