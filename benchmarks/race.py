"""The benchmark: contestants take turns, each in a process of its own, with the same number of threads."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.block import Case
from benchmarks.processes import environment
from lstm_lower.errors import InvalidInputError


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


class Contestant:
    """A process that runs one contestant on request."""

    def __init__(self, name: str, case: Case, threads: int, schedule: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(OMP_NUM_THREADS=str(threads)),
        )
        self.facts = self._ask(
            {
                "contestant": name,
                "op": case.op,
                "shape": case.shape,
                "variant": case.variant,
                "threads": threads,
                "schedule": schedule,
            }
        )

    @property
    def is_missing(self) -> bool:
        """Whether its library is not installed, or refuses the case."""
        return "absence" in self.facts

    def times(self, count: int) -> list[float]:
        """Runs and returns seconds."""
        result: list[float] = self._ask({"do": "time", "count": count})
        return result

    def memory(self) -> int:
        """Bytes at the peak of a run."""
        result: int = self._ask({"do": "memory"})
        return result

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise InvalidInputError(
                f"benchmark contestant '{self.name}' requires a working process, got one that ended"
            )
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.wait(timeout=60)
        self._process.stdout.close()


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
        InvalidInputError: a contestant's process ended.
    """
    entries = [
        (name, schedule) for name in contestants for schedule in (schedules if name == "lstm-lower" else schedules[:1])
    ]
    field = [(schedule, Contestant(name, case, threads, schedule)) for name, schedule in entries]
    try:
        running = [contestant for _, contestant in field if not contestant.is_missing]
        times: dict[Contestant, list[float]] = {contestant: [] for contestant in running}
        counts = dict.fromkeys(running, 1)
        rounds = 6
        for contestant in running:
            first = min(contestant.times(2))
            counts[contestant] = max(1, min(200, round(seconds / rounds / first)))
        for _ in range(rounds):
            for contestant in running:
                times[contestant] += contestant.times(counts[contestant])
        return [
            Result(
                contestant.name,
                case,
                threads,
                schedule if contestant.name == "lstm-lower" else "",
                min(times[contestant]) if contestant in times else None,
                statistics.median(times[contestant]) if contestant in times else None,
                contestant.memory() if memory and contestant in times else None,
                contestant.facts.get("lower_s"),
                contestant.facts.get("load_s"),
                contestant.facts.get("absence"),
            )
            for schedule, contestant in field
        ]
    finally:
        for _, contestant in field:
            contestant.close()
