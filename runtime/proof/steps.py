"""A training step, or any model with state, next to the framework that it came from: runs of both, compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.values import declared_shape
from lstm_lower.records import state as training_state
from lstm_lower.runtime.feeds import random_state
from lstm_lower.runtime.proof.comparison import (
    AS_MOVED,
    AS_NEAR,
    DECIDING,
    NOT_DECIDED,
    OUT_OF_TOLERANCE,
    allowed,
    errors,
    shape_or_dtype_fault,
)
from lstm_lower.runtime.session import Session

Array = np.ndarray[Any, Any]

# What runs leave: the outputs of each, and the state after the last, by the framework's names of variables.
Runs = tuple[list[dict[str, Array]], dict[str, Array]]


@dataclasses.dataclass(frozen=True)
class StepRow:
    """How far one output or variable is from the framework's, the worst of all runs.

    Attributes:
        name: the output's name, or the variable's in the framework.
        kind: `output` or `variable`.
        shape: its shape.
        relative: largest error over the largest magnitude, next to the framework.
        own: that of the framework itself, next to float64 or, where it cannot run so, next to itself with weights moved
            by a unit in the last place; `None` where it is not known.
        float64: ours next to float64, where that is known.
        verdict: `ok`; `as near as the original` or `as near as moved weights`, where an error beyond the tolerance is
            what rounding makes of it; or what is wrong; `random` where the framework's own results depend on
            draws, `not decided` where rounding alone changes them by a hundredth.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    relative: float | None
    own: float | None
    float64: float | None
    verdict: str


def start_values(model: ir.Model, seed: int = 0) -> dict[str, Array]:
    """First values of a model's state, by the framework's names of variables.

    Those that the model does not have are random.
    """
    inputs = {value.name: value for value in model.graph.inputs}
    found = {}
    for number, pair in enumerate(training_state.read(model).pairs):
        value = inputs[pair.input]
        if value.const_value is None:
            assert value.dtype is not None
            shape = tuple(dim if isinstance(dim, int) else 1 for dim in declared_shape(value) or ())
            drawn = random_state(pair, shape, value.dtype, np.random.default_rng([seed, number]))
        found[pair.variable or pair.input] = drawn if value.const_value is None else value.const_value.numpy()
    return found


def run(session: Session, model: ir.Model, feeds: Mapping[str, Array], start: Mapping[str, Array], count: int) -> Runs:
    """Runs a model several times, each on the state that the one before left."""
    pairs = training_state.read(model).pairs
    state = {pair.input: start[pair.variable or pair.input] for pair in pairs}
    carried = {pair.output for pair in pairs}
    results = []
    for _ in range(count):
        found = session.run({**feeds, **state})
        state |= {pair.input: found[pair.output] for pair in pairs if pair.output is not None}
        results.append({name: array for name, array in found.items() if name not in carried})
    return results, {pair.variable or pair.input: state[pair.input] for pair in pairs if pair.output is not None}


def compare(
    ours: Runs, theirs: Runs, *, wide: Runs | None, moved: Runs | None, drawn: Runs | None, rtol: float, atol: float
) -> list[StepRow]:
    """Compares runs.

    Args:
        ours: those of the lowered model.
        theirs: the framework's.
        wide: the framework's in float64, where it can run so.
        moved: the framework's from weights that are moved by a unit in the last place, each upwards. Needed where there
            is no `wide`; next to that they decide what is out of tolerance otherwise.
        drawn: the framework's with other random numbers, where it draws any.
        rtol: tolerated error relative to the largest magnitude.
        atol: tolerated absolute error on top.

    Returns:
        A row for each output and each variable that a run changes. An error beyond the tolerance is accepted where it
        is no larger than the framework's own: each may be that far from the truth, in its own direction. So is one that
        is no larger than what weights make of it that differ in their last place, which no program can tell apart: a
        gradient through a hundred steps may grow such a difference a thousandfold.
    """
    expected = _all(theirs)
    wider, others, redrawn = (None if runs is None else _all(runs) for runs in (wide, moved, drawn))
    return [
        _row(
            key,
            arrays,
            expected[key],
            None if wider is None else wider[key],
            None if others is None else others[key],
            None if redrawn is None else redrawn[key],
            rtol,
            atol,
        )
        for key, arrays in _all(ours).items()
    ]


def _all(runs: Runs) -> dict[tuple[str, str], list[Array]]:
    outputs, variables = runs
    found = {("output", name): [np.asarray(results[name]) for results in outputs] for name in outputs[0]}
    return found | {("variable", name): [np.asarray(array)] for name, array in variables.items()}


def _row(
    key: tuple[str, str],
    ours: Sequence[Array],
    theirs: Sequence[Array],
    wide: Sequence[Array] | None,
    moved: Sequence[Array] | None,
    drawn: Sequence[Array] | None,
    rtol: float,
    atol: float,
) -> StepRow:
    kind, name = key
    shape = theirs[0].shape
    faults = [shape_or_dtype_fault(a, b, ir.DataType.from_numpy(b.dtype)) for a, b in zip(ours, theirs, strict=True)]
    fault = next((fault for fault in faults if fault is not None), None)
    if fault is not None:
        return StepRow(name, kind, shape, None, None, None, fault)
    absolute, relative = _worst(ours, theirs)
    reference = wide or moved
    own, own_relative = _worst(theirs, reference) if reference is not None else (0.0, None)
    float64 = None if wide is None else _worst(ours, wide)[1]
    limit = min(allowed(array, rtol, atol) for array in theirs)
    verdict = "ok"
    if drawn is not None and not _worst(drawn, theirs)[0] <= limit:
        verdict = "random"
    elif not all(np.isfinite(array).all() for array in theirs if array.dtype.kind == "f"):
        verdict = "not finite in the original"
    elif absolute > limit and own_relative is not None and own_relative > DECIDING:
        verdict = NOT_DECIDED
    elif absolute > limit:
        verdict = AS_NEAR if absolute <= limit + 2 * own else OUT_OF_TOLERANCE
        if verdict == OUT_OF_TOLERANCE and moved is not None:
            unit, unit_relative = _worst(moved, theirs)
            if unit_relative > DECIDING:
                verdict = NOT_DECIDED
            elif absolute <= unit:
                verdict = AS_MOVED
    return StepRow(name, kind, shape, relative, own_relative, float64, verdict)


def _worst(found: Sequence[Array], expected: Sequence[Array]) -> tuple[float, float]:
    pairs = [errors(a, b) for a, b in zip(found, expected, strict=True)]
    return max(absolute for absolute, _ in pairs), max(relative for _, relative in pairs)
