"""A step beside its framework at the same example: how far results are apart, and whether rounding explains it.

Two computations of one formula in one dtype differ by rounding. That is more than a fixed share of a result where terms
cancel, and is not bounded at all beside a kink, on either side of which a result is as right. The framework itself
tells how much it may be: `moved` are its results from weights that differ in their last places, which are as good as
its own. An error of the step is explained if it is no larger than a few times what these are apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import UnsupportedOpError, some
from lstm_lower.records.certificate import KINDS, Certificate, Kind
from lstm_lower.runtime.proof.comparison import DECIDING, distance, is_rounding, magnitude

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Agreed:
    """A framework's result that was compared when it came, and let go.

    Attributes:
        error: the largest difference.
        magnitude: the largest magnitude of the framework's.
    """

    error: float
    magnitude: float


# Name -> result; `None` for a gradient that there is none of.
Values = Mapping[str, Array | None]
Results = Mapping[Kind, Values]
Expected = Mapping[Kind, Mapping[str, Array | Agreed | None]]

# An error over the largest magnitude that needs no explanation, by the bytes of a number.
_ROUNDED = {8: 1e-7, 4: 1e-4, 2: 5e-2}
# A gradient that is smaller than this share of the largest one is compared with that: a bias before a batch
# normalization has a gradient of zero, which is noise in practice.
_SMALL = 1e-2
# A new value is rounded itself, by units of its last place, which are much of a small change.
_LAST_PLACES = 4
# So many results that are as good as the framework's are always looked at, and more where they need only be so many
# times as far apart to explain a difference.
_FEW, _NEARLY = 4, 4


class NotComparedError(Exception):
    """There is nothing to compare; the message says why."""


@dataclasses.dataclass(frozen=True)
class ResultDifference:
    """A result that no rounding explains.

    Attributes:
        kind: what it is.
        name: its name.
        said: how it differs.
    """

    kind: Kind
    name: str
    said: str


@dataclasses.dataclass(frozen=True)
class StepComparison:
    """A step beside its framework.

    Attributes:
        errors: as a certificate has them.
        differences: what no rounding explains.
        undecided: what the framework itself computes so differently from moved weights that nothing follows -> why.
    """

    errors: Mapping[Kind, Mapping[str, float]]
    differences: Sequence[ResultDifference] = ()
    undecided: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def joined(self, other: StepComparison) -> StepComparison:
        """Both, of different results."""
        errors: dict[Kind, Mapping[str, float]] = {
            kind: {**self.errors.get(kind, {}), **other.errors.get(kind, {})}
            for kind in KINDS
            if kind in self.errors or kind in other.errors
        }
        return StepComparison(errors, [*self.differences, *other.differences], {**self.undecided, **other.undecided})


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A result of a step, and the framework's; no gradient counts as zeros.

    Attributes:
        actual: the step's.
        expected: the framework's.
        before: of an update, the value before the step.
        scale: the largest magnitude is at least that.
    """

    actual: Array
    expected: Array
    before: Array | None
    scale: float

    @property
    def is_number(self) -> bool:
        return self.expected.dtype.kind in "fc"

    def apart(self, other: Array) -> float:
        """How far a result is from the framework's."""
        return distance(other, self.expected)

    @functools.cached_property
    def magnitude(self) -> float:
        """The largest magnitude expected, of an update the largest change."""
        if not self.is_number:
            return 1.0
        return max(self.scale, magnitude(self.expected, self.before))

    def allowed(self, *, narrow: bool) -> float:
        """The largest difference that needs no explanation."""
        if not self.is_number:
            return 0.0
        share = _ROUNDED[2 if narrow else min(self.actual.dtype.itemsize, self.expected.dtype.itemsize, 8)]
        rounded = 0.0
        if self.before is not None:
            rounded = _LAST_PLACES * float(np.finfo(self.expected.dtype).eps) * magnitude(self.expected)
        return share * self.magnitude + rounded


def agreed(actual: Array | None, expected: Array, *, narrow: bool) -> Agreed | None:
    """Both results, if they differ by rounding alone whatever other results there are."""
    if actual is None:
        return None
    pair = _Pair(actual, expected, None, 0.0)
    error = pair.apart(actual)
    return Agreed(error, pair.magnitude) if error <= pair.allowed(narrow=narrow) else None


def compare(
    step: Results,
    framework: Expected,
    *,
    moved: Callable[[], Iterable[Results]] = tuple,
    before: Mapping[str, Array] | None = None,
    narrow: bool = False,
) -> StepComparison:
    """Compares what a step and its framework compute from the same state at the same example.

    Args:
        step: kind -> name -> array, as the step returns it; what it has not is left out or `None`.
        framework: the same of the framework. Each name that it has is compared, and no other.
        moved: the framework's results from weights that differ in their last places, or in more digits; called only
            where something differs. A few tell more than chance; more are taken only where they may explain what does.
        before: value before the step of each update, which is compared by what it changes.
        narrow: whether something is computed in half precision or bfloat16, whatever dtype results have.
    """
    errors: dict[Kind, dict[str, float]] = {}
    suspects: dict[tuple[Kind, str], _Pair] = {}
    for kind in KINDS:
        expected = framework.get(kind, {})
        scale = _SMALL * _scale(expected) if kind == "gradient" else 0.0
        for name, array in expected.items():
            if isinstance(array, Agreed):
                errors.setdefault(kind, {})[name] = array.error / (max(scale, array.magnitude) or 1.0)
                continue
            start = (before or {}).get(name) if kind == "update" else None
            pair = _pair(step.get(kind, {}).get(name), array, start, scale)
            if pair is None:
                continue
            error = pair.apart(pair.actual)
            errors.setdefault(kind, {})[name] = error / (pair.magnitude or 1.0)
            if not error <= pair.allowed(narrow=narrow):
                suspects[kind, name] = pair
    differences, undecided = [], {}
    spread = dict.fromkeys(suspects, 0.0)

    def explained(key: tuple[Kind, str], times: float = 1.0) -> bool:
        pair = suspects[key]
        return is_rounding(pair.apart(pair.actual), pair.allowed(narrow=narrow), apart=times * spread[key])

    for number, other in enumerate(moved() if suspects else (), 1):
        for (kind, name), pair in suspects.items():
            if (array := other.get(kind, {}).get(name)) is not None:
                spread[kind, name] = max(spread[kind, name], pair.apart(array))
        left = [key for key in suspects if not explained(key)]
        if number >= _FEW and not any(explained(key, _NEARLY) for key in left):
            break
    for (kind, name), pair in suspects.items():
        apart = spread[kind, name]
        if not explained((kind, name)):
            absent = step.get(kind, {}).get(name) is None, framework[kind][name] is None
            differences.append(ResultDifference(kind, name, _said(kind, pair, errors[kind][name], absent)))
        elif apart > DECIDING * pair.magnitude:
            del errors[kind][name]
            undecided[f"{kind} '{name}'"] = "the framework's own is another one where last places are others"
    return StepComparison(errors, differences, undecided)


def refuse_differences(
    model: str,
    framework: str,
    comparison: StepComparison,
    way: str = "write what these depend on with other operations",
) -> None:
    """Refuses a step that differs from its framework.

    Args:
        model: what the model is called in messages.
        framework: as in a certificate.
        comparison: of the step.
        way: what to do instead.

    Raises:
        UnsupportedOpError: something differs; it is named.
    """
    told = []
    for kind in KINDS:
        names = [f"'{each.name}' ({each.said})" for each in comparison.differences if each.kind == kind]
        told += [f"another {kind} of {some(names)}"] if names else []
    if told:
        raise UnsupportedOpError(
            f"{model} requires a step that computes what {framework} does at the example, got {', and '.join(told)}; "
            f"{way} (check=False makes the step as it is)"
        )


def certificate(
    framework: str,
    sizes: Mapping[str, Sequence[int]],
    comparison: StepComparison,
    not_compared: Mapping[str, str] | None = None,
    also: Sequence[Mapping[str, Sequence[int]]] = (),
) -> Certificate:
    """The record of a comparison.

    Args:
        framework: with its version.
        sizes: input -> shape in the example.
        comparison: the comparison.
        not_compared: what was left out -> why.
        also: other shapes at which nothing differs.
    """
    shapes, *others = [{name: [int(size) for size in shape] for name, shape in each.items()} for each in (sizes, *also)]
    left_out = {**(not_compared or {}), **comparison.undecided}
    return Certificate(framework, shapes, comparison.errors, left_out, others)


def _scale(values: Mapping[str, Array | Agreed | None]) -> float:
    agreed = [x.magnitude for x in values.values() if isinstance(x, Agreed)]
    numbers = (x for x in values.values() if isinstance(x, np.ndarray) and x.dtype.kind in "fc")
    return max([*agreed, *map(magnitude, numbers)], default=0.0)


def _pair(actual: Array | None, expected: Array | None, before: Array | None, scale: float) -> _Pair | None:
    """Both results; `None` where there is neither."""
    if actual is None and expected is None:
        return None
    if actual is not None and expected is not None:
        return _Pair(actual, expected, before, scale)
    # No gradient counts as zeros, no update as no change.
    zeros = np.zeros_like(expected if expected is not None else actual) if before is None else before
    return _Pair(zeros if actual is None else actual, zeros if expected is None else expected, before, scale)


def _said(kind: Kind, pair: _Pair, error: float, absent: tuple[bool, bool]) -> str:
    if absent[0]:
        return f"no {kind} in the step"
    if absent[1]:
        return f"a {kind} in the step alone"
    if pair.actual.shape != pair.expected.shape:
        return f"shape {list(pair.actual.shape)}, not {list(pair.expected.shape)}"
    return f"a difference of {error:.1e}" if pair.is_number else f"{int(error)} elements differ"
