"""Results of `bench`: figures of every contestant, who took no part, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, UnsupportedOpError, brief
from lstm_lower.graph.copies import copy_model
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.randomness import random_outputs
from lstm_lower.passes.training_graphs import TrainingGraphPass
from lstm_lower.runtime.measuring.forms import Form
from lstm_lower.runtime.profile import ProfiledRun
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.comparison import allowed, coarsest_dtype, errors, shape_or_dtype_fault, tolerance
from lstm_lower.runtime.providers import row_of

# What a contestant's results must be: a model's own, in float64, or those of the first contestant.


Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How far results are from what they must be.

    Attributes:
        error: the largest one of an output, relative to its largest magnitude; `None` where none was compared.
        fault: what is wrong with them; `None` where nothing is.
    """

    error: float | None
    fault: str | None


@dataclasses.dataclass(frozen=True)
class Proof:
    """Values that results are compared with.

    Attributes:
        source: where the expected values come from, in words.
        expected: output name -> value; `None` until there are any.
        dtype: the coarsest floating one of the model, which says what is tolerated.
        random: outputs that draw random numbers, which nothing can compare.
        dtypes: output name -> dtype that the model declares.
    """

    source: str
    expected: Mapping[str, Any] | None
    dtype: ir.DataType
    random: frozenset[str]
    dtypes: Mapping[str, ir.DataType | None]

    def judge(self, results: Mapping[str, Any], precision: str | None = None) -> Verdict:
        """Compares results with what is expected; what is not a tensor of numbers is left out.

        Args:
            results: output name -> value.
            precision: in which a provider computed them, where one was asked for.
        """
        worst, fault = None, None
        rtol, atol = tolerance(self.dtype, precision)
        for name, expected in (self.expected or {}).items():
            if name in self.random or not isinstance(expected, np.ndarray) or expected.dtype.kind not in "biufc":
                continue
            actual = np.asarray(results[name])
            wrong = shape_or_dtype_fault(actual, expected, self.dtypes.get(name))
            if wrong is None:
                absolute, relative = errors(actual, expected)
                worst = relative if worst is None else max(worst, relative)
                if not absolute <= allowed(expected, rtol, atol):
                    wrong = f"error {relative:.1e}, out of tolerance"
            if wrong is not None and fault is None:
                fault = f"output '{name}': {wrong}"
        return Verdict(worst, fault)


def proof_of(source: ir.Model, feeds: Mapping[str, Array], *, in_float64: bool = True) -> Proof:
    """The results that a model must have.

    Args:
        source: the model, with or without recurrent ops.
        feeds: input name -> array.
        in_float64: evaluate it in float64, which is slow; otherwise the results of the first contestant count.

    Raises:
        InvalidModelError: the model is malformed.
    """
    work = copy_model(source)
    with malformed_models_explained(work):
        TrainingGraphPass()(work)
        text, expected = "the first contestant's results", None
        if in_float64:
            try:
                text, expected = "the model evaluated in float64", reference.evaluate(work, feeds)
            except (UnsupportedOpError, InvalidModelError) as error:
                text += f" (no float64: {brief(error)})"
        dtypes = {value.name or "": value.dtype for value in work.graph.outputs}
        return Proof(text, expected, coarsest_dtype(work), frozenset(random_outputs(work)), dtypes)


@dataclasses.dataclass(frozen=True)
class Engine:
    """A runtime with its options.

    Attributes:
        provider: an execution provider, by short or full name.
        precision: in which it computes; `None` for its own, float32 or better.
    """

    provider: str
    precision: str | None = None

    @property
    def target(self) -> str | None:
        """The target that models are lowered for that it runs."""
        return row_of(self.provider).target

    @property
    def name(self) -> str:
        """`openvino bfloat16`."""
        return " ".join(filter(None, (self.provider, self.precision)))


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures of a contestant, in seconds and bytes.

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
    profile: tuple[ProfiledRun, ...]

    @property
    def arena(self) -> int | None:
        """Bytes in onnxruntime's arena at the peak of a run, see `ProfiledRun`."""
        return max((run.arena for run in self.profile if run.arena is not None), default=None)

    @property
    def shortest(self) -> ProfiledRun:
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
    """All figures.

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
