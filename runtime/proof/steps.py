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
    AGREE,
    AS_MOVED,
    AS_NEAR,
    DECIDING,
    NOT_DECIDED,
    OUT_OF_TOLERANCE,
    allowed,
    errors,
    is_rounding,
    shape_or_dtype_fault,
)
from lstm_lower.runtime.session import Session

Array = np.ndarray[Any, Any]

# What runs leave: the outputs of each, and the state after it, by the framework's names of variables.
Runs = list[tuple[dict[str, Array], dict[str, Array]]]

# Results that are no numbers in the framework either.
NOT_FINITE = "not finite in the original"


@dataclasses.dataclass(frozen=True)
class StepRow:
    """How far one output or variable is from the framework's, the worst of all runs.

    Attributes:
        name: the output's name, or the variable's in the framework.
        kind: `output` or `variable`.
        shape: its shape.
        relative: largest error over the largest magnitude, next to the framework.
        own: that of the framework itself, next to float64 or, where it cannot run so, next to itself from numbers that
            are moved by a unit in the last place; `None` where it is not known.
        float64: ours next to float64, where that is known.
        verdict: `ok`; `as near as the original` or `as near as moved weights`, where an error beyond the tolerance is
            what rounding makes of it; or what is wrong; `random` where the framework's own results depend on
            draws, `not decided` where rounding alone changes them by a hundredth.
        steps: the runs that this is said of: all of them, or the first where later ones decide nothing.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    relative: float | None
    own: float | None
    float64: float | None
    verdict: str
    steps: int = 1


def start_values(model: ir.Model, seed: int = 0) -> dict[str, Array]:
    """First values of a model's state, by the framework's names of variables.

    Those that the model does not have are random.
    """
    inputs = {value.name: value for value in model.graph.inputs}
    values = {}
    for number, pair in enumerate(training_state.read(model).pairs):
        value = inputs[pair.input]
        if value.const_value is None:
            assert value.dtype is not None
            shape = tuple(dim if isinstance(dim, int) else 1 for dim in declared_shape(value) or ())
            drawn = random_state(pair, shape, value.dtype, np.random.default_rng([seed, number]))
        values[pair.variable or pair.input] = drawn if value.const_value is None else value.const_value.numpy()
    return values


def run(session: Session, model: ir.Model, feeds: Mapping[str, Array], start: Mapping[str, Array], count: int) -> Runs:
    """Runs a model several times, each on the state that the one before left."""
    pairs = training_state.read(model).pairs
    state = {pair.input: start[pair.variable or pair.input] for pair in pairs}
    carried = {pair.output for pair in pairs}
    results = []
    for _ in range(count):
        found = session.run({**feeds, **state})
        state |= {pair.input: found[pair.output] for pair in pairs if pair.output is not None}
        outputs = {name: array for name, array in found.items() if name not in carried}
        changed = {pair.variable or pair.input: state[pair.input] for pair in pairs if pair.output is not None}
        results.append((outputs, changed))
    return results


def compare(
    ours: Runs,
    theirs: Runs,
    *,
    wide: Runs | None,
    moved: Sequence[Runs],
    drawn: Runs | None,
    rtol: float,
    atol: float,
) -> list[StepRow]:
    """Compares runs.

    Args:
        ours: those of the lowered model.
        theirs: the framework's.
        wide: the framework's in float64, where it can run so.
        moved: the framework's from weights and feeds that are moved by a unit in the last place, each time in other
            directions. Needed where there is no `wide`; next to that they decide what is out of tolerance otherwise.
        drawn: the framework's with other random numbers, where it draws any.
        rtol: tolerated error relative to the largest magnitude.
        atol: tolerated absolute error on top.

    Returns:
        A row for each output and each variable that a run changes. An error beyond the tolerance is accepted where it
        is no larger than the framework's own: each may be that far from the truth, in its own direction. So is one that
        is no larger than what weights make of it that differ in their last place, which no program can tell apart: a
        gradient through a hundred steps may grow such a difference a thousandfold. Where all runs together decide
        nothing, the first may: what an optimizer divides by gets small, and what rounding does grows from step to step.
    """
    sides = _Sides(
        _all(ours), _all(theirs), None if wide is None else _all(wide), [_all(runs) for runs in moved],
        None if drawn is None else _all(drawn), rtol, atol,
    )  # fmt: skip
    return [_row(key, sides, len(arrays)) for key, arrays in sides.ours.items()]


_Key = tuple[str, str]
_Arrays = dict[_Key, list[Array]]


@dataclasses.dataclass(frozen=True)
class _Sides:
    ours: _Arrays
    theirs: _Arrays
    wide: _Arrays | None
    moved: Sequence[_Arrays]
    drawn: _Arrays | None
    rtol: float
    atol: float


def _all(runs: Runs) -> _Arrays:
    first_outputs, first_variables = runs[0]
    series = {("output", name): [np.asarray(outputs[name]) for outputs, _ in runs] for name in first_outputs}
    return series | {("variable", name): [np.asarray(state[name]) for _, state in runs] for name in first_variables}


def _row(key: _Key, sides: _Sides, count: int) -> StepRow:
    """The row of all runs, or of the first alone where that is all that can be told."""
    whole = _judged(key, sides, count)
    if whole.verdict in (NOT_DECIDED, NOT_FINITE) and count > 1:
        first = _judged(key, sides, 1)
        return first if first.verdict in AGREE or first.verdict == OUT_OF_TOLERANCE else whole
    return whole


def _judged(key: _Key, sides: _Sides, count: int) -> StepRow:
    kind, name = key
    ours, theirs = sides.ours[key][:count], sides.theirs[key][:count]
    shape = theirs[0].shape
    faults = [shape_or_dtype_fault(a, b, ir.DataType.from_numpy(b.dtype)) for a, b in zip(ours, theirs, strict=True)]
    fault = next((fault for fault in faults if fault is not None), None)
    if fault is not None:
        return StepRow(name, kind, shape, None, None, None, fault, count)
    absolute, relative = _worst(ours, theirs)
    units = [_worst(runs[key][:count], theirs) for runs in sides.moved]
    unit, unit_relative = max((a for a, _ in units), default=0.0), max((r for _, r in units), default=None)
    wide = None if sides.wide is None else sides.wide[key][:count]
    own, own_relative = (unit, unit_relative) if wide is None else _worst(theirs, wide)
    float64 = None if wide is None else _worst(ours, wide)[1]
    limit = min(allowed(array, sides.rtol, sides.atol) for array in theirs)
    verdict = "ok"
    if sides.drawn is not None and not _worst(sides.drawn[key][:count], theirs)[0] <= limit:
        verdict = "random"
    elif not all(np.isfinite(array).all() for array in theirs if array.dtype.kind == "f"):
        verdict = NOT_FINITE
    elif absolute > limit:
        near, as_moved = is_rounding(absolute, limit, own=2 * own), is_rounding(absolute, limit, apart=unit)
        verdict = AS_NEAR if near else AS_MOVED if as_moved else OUT_OF_TOLERANCE
        if max(own_relative or 0.0, unit_relative or 0.0) > DECIDING:
            verdict = NOT_DECIDED
    return StepRow(name, kind, shape, relative, own_relative, float64, verdict, count)


def _worst(found: Sequence[Array], expected: Sequence[Array]) -> tuple[float, float]:
    pairs = [errors(a, b) for a, b in zip(found, expected, strict=True)]
    return max(absolute for absolute, _ in pairs), max(relative for _, relative in pairs)
