"""What `bench` finds out: figures of every contestant, who took no part, and why."""

from __future__ import annotations

import dataclasses

from lstm_lower.runtime.measuring.forms import Form
from lstm_lower.runtime.measuring.verdicts import Proof, Verdict
from lstm_lower.runtime.profile import Run
from lstm_lower.runtime.provider_table import row_of


@dataclasses.dataclass(frozen=True)
class Engine:
    """What runs a model.

    Attributes:
        provider: an execution provider, by short or full name.
        precision: in which it computes; `None` for its own, float32 or better.
    """

    provider: str
    precision: str | None = None

    @property
    def target(self) -> str | None:
        """What models are lowered for that it runs."""
        return row_of(self.provider).target

    @property
    def name(self) -> str:
        """`openvino bfloat16`."""
        return " ".join(filter(None, (self.provider, self.precision)))


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured of a contestant, in seconds and bytes.

    Attributes:
        minimum: the fastest run.
        median: the median run.
        runs: how many there were.
        resident: what a run adds to the memory of the process at its peak, see `peak_memory`.
        profile: runs under onnxruntime's profiler.
    """

    minimum: float
    median: float
    runs: int
    resident: int | None
    profile: tuple[Run, ...]

    @property
    def arena(self) -> int | None:
        """Bytes in onnxruntime's arena at the peak of a run, see `Run`."""
        return max((run.arena for run in self.profile if run.arena is not None), default=None)

    @property
    def shortest(self) -> Run:
        """The run that the least came between."""
        return min(self.profile, key=lambda run: run.seconds)


@dataclasses.dataclass(frozen=True)
class Result:
    """One contestant.

    Attributes:
        name: its form, and its engine where there are several.
        form: `original`, `lowered` or `optimised`.
        schedule: of an optimised one.
        engine: what runs it.
        absence: why there is no such contestant; nothing else is known of it then.
        lower_seconds: to make the model.
        load_seconds: to open the session.
        verdict: on its results. A contestant with a fault is not timed.
        figures: of one that was timed.
    """

    name: str
    form: Form
    schedule: str | None
    engine: Engine
    absence: str | None = None
    lower_seconds: float | None = None
    load_seconds: float | None = None
    verdict: Verdict | None = None
    figures: Figures | None = None


@dataclasses.dataclass(frozen=True)
class Bench:
    """What was measured.

    Attributes:
        results: a row per contestant.
        threads: of each.
        proof: what results were compared with.
    """

    results: tuple[Result, ...]
    threads: int
    proof: Proof

    @property
    def timed(self) -> list[tuple[Result, Figures]]:
        """Those that have figures."""
        return [(result, result.figures) for result in self.results if result.figures is not None]

    @property
    def fastest(self) -> Result | None:
        """The one with the least median."""
        return min(self.timed, key=lambda pair: pair[1].median, default=(None, None))[0]

    @property
    def passed(self) -> bool:
        """Whether something was timed, and no results were wrong."""
        return bool(self.timed) and not any(row.verdict and row.verdict.fault for row in self.results)
