"""Numbers of steps of loops in Python: axes of inputs by which a module's code does more, and where it does.

Such a loop is traced at a few steps and at one more (`length_extrapolation`), whatever the example's length is.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import sys
import types as python
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lstm_lower.passes.loops.step_counts import STEPS, Call, Length, are_even, growth, likely, risen, with_rest
from lstm_lower.records.lengths import Law, Place
from lstm_lower.torch.axes import Axes, Requested
from lstm_lower.torch.control_flow import any_length
from lstm_lower.torch.loops import LOOP
from lstm_lower.torch.modes import Args, FunctionMode, Kwargs
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.trials import FORMS, RefusedError, Trials, of_fewer

# Calls in a few steps that take half a minute to trace and to roll up.
_MANY_CALLS = 4096

# Function and line of the module's code -> how often it is called.
Calls = Mapping[Call, int]


class Counting(FunctionMode):
    """Counts calls of PyTorch's functions.

    Attributes:
        numbers: function and line of the module's code -> numbers, also of weights, that each call is handed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Call, list[list[float]]] = {}
        self._weights: dict[int, int] = collections.defaultdict(itertools.count().__next__)

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        if (line := _line()) is not None:
            given = ((x if type(x) is tuple else (x,)) for x in (*args, *kwargs.values()))
            parts = (self._weights[id(x)] if isinstance(x, nn.Parameter) else x for each in given for x in each)
            numbers = [x for x in parts if type(x) in (int, float)]
            self.numbers.setdefault((func, line), []).append(numbers)
        return func(*args, **kwargs)

    @property
    def calls(self) -> Calls:
        """Function and line of the module's code -> how often it is called."""
        return {call: len(numbers) for call, numbers in self.numbers.items()}


def _line() -> str | None:
    """The line of the user's code that runs now; `None` for none, or within a loop that a trace has as one."""
    frame: python.FrameType | None = sys._getframe(2)
    line = ""
    while frame is not None and frame.f_code is not Trials._run.__code__:
        if frame.f_code is LOOP:
            return None
        if not line and is_users(frame):
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return line or None


class Lengths:
    """The numbers of steps of a module.

    Attributes:
        found: the lengths.
        sizes: input and axis -> its size in the example.
    """

    def __init__(self, trials: Trials, calls: Calls, wanted: Requested, closed: Axes, traced: int = STEPS) -> None:
        """Runs a module at some sizes.

        Args:
            trials: the module at the example.
            calls: what it calls there; nothing where it does not run.
            wanted: axes that are to be open.
            closed: axes that are to have the example's size.
            traced: how many steps to trace.
        """
        self._wanted, self._traced = wanted, traced
        self._trials, self.sizes = trials, trials.sizes
        self._taken = set(closed)
        # What `_try` was given where some lines run more often evenly, and others do not.
        self._uneven: list[tuple[Mapping[Place, int], int]] = []
        # By how much axes may be larger, all at once, without that more is called.
        self._in_vain: Mapping[Place, int] = {}
        self.found: list[Length] = []
        self._example = calls if wanted else {}
        # Sizes that are not the example's -> what is called.
        self._known = {frozenset[tuple[Place, int]](): self._example}
        # What runs in steps that no length is known of.
        self._left = {call: self._example[call] for call in risen({}, self._example)}
        if self._left:
            self._find()
        self.found = self.found if self._all_run() else []

    def _find(self) -> None:
        """Looks for axes of which a step more is a larger size, then for sizes that go by how often lines run."""
        most = max(self._left.values())
        small = {place: size for place, size in self.sizes.items() if size - 1 <= most and place not in self._taken}
        # By different numbers: code may go by how much longer one is than another.
        more = {size: number for number, size in enumerate(sorted({*small.values()}), 1)}
        if small and self._calls({place: size + more[size] for place, size in small.items()}) == self._example:
            self._in_vain = {place: more[size] for place, size in small.items()}
        for form, (place, size) in itertools.product(FORMS, small.items()):
            self._try(dict.fromkeys(self._group(form, place, {size}), 1), size)
        counts = sorted({*self._left.values()})
        ways = likely(counts, self.sizes.values()), FORMS, self.sizes.items()
        for (steps, slopes), form, (place, size) in itertools.product(*ways):
            if self._left and size in slopes:
                self._try({each: slopes[self.sizes[each]] for each in self._group(form, place, slopes)}, steps)
        for steps, form, (place, size) in itertools.product(counts, FORMS, self.sizes.items()):
            if calls := [call for call, count in self._left.items() if count == steps < size]:
                group = self._group(form, place, {size})
                slope = growth(group, size, calls, self._calls)
                # A step may run a line more than once.
                self._try(dict.fromkeys(group, slope), min(steps, -(-size // max(slope, 1))))
        for each in self._uneven:
            self._try(*each, evenly=any)

    def _try(self, slopes: Mapping[Place, int], steps: int, evenly: Any = all) -> None:
        """Makes a length of axes if lines run more often where they are larger; these are left no more."""
        vain = all(slope <= self._in_vain.get(each, 0) for each, slope in slopes.items())
        if vain or not self._taken.isdisjoint(slopes):
            return
        longer = self._calls({each: self.sizes[each] + slope for each, slope in slopes.items()})
        more = risen(self._example, longer)
        if not more:
            return
        laws = {each: Law(slope, self.sizes[each] - slope * steps) for each, slope in slopes.items()}
        length = Length(laws, steps, self._traced, more[0][1])
        again, chunks = self._traced > STEPS, max(slopes.values()) > 1
        # What another input has beside what is read of it suffices for a step more, and so does a part of a step.
        far = max(steps, self._traced) * (1 + (again and not chunks)) + 2
        further = self._calls(length.sizes(far))
        # Steps that are not alike after all may be so by lines that run behind others in every few of them.
        more = risen(self._example, further) if again else more
        even = are_even(more, (self._example, longer, further), far - steps)
        # Steps each of which is many of others would take long to trace.
        long = chunks and sum(further.values()) > _MANY_CALLS
        if not evenly(even) or (long and evenly is all):
            self._uneven += [(slopes, steps)] * any(even)
            return
        for each in slopes:
            # What may stay as it is is as large by chance.
            others = {other: law for other, law in laws.items() if other != each}
            laws = others if self._calls(dataclasses.replace(length, laws=others).sizes(far)) == further else laws
        if self._wanted != "auto" and self._wanted.isdisjoint(laws):
            return
        self._left = {call: count for call, count in self._left.items() if call not in more}
        self._taken.update(laws)
        length = dataclasses.replace(length, laws=self._multiplied(laws, steps))
        self.found.append(length if self._traced > STEPS else with_rest(length, self.sizes, more, self._calls))

    def _multiplied(self, laws: dict[Place, Law], steps: int) -> dict[Place, Law]:
        """Laws by which as many rows as other axes have come with each step, where runs show that it is so."""
        slope = max(law.slope for law in laws.values())
        rows = [place for place, law in laws.items() if law == Law(slope)]
        for form, (place, size) in itertools.product(FORMS, self.sizes.items()):
            if not rows or place in self._taken or size != slope:
                continue
            larger = dict.fromkeys(self._group(form, place, {slope}), slope + 1)
            if self._calls(larger) == self._example:
                return laws
            if self._calls(larger | dict.fromkeys(rows, (slope + 1) * steps)) == self._example:
                return laws | dict.fromkeys(rows, Law(slope, times=place))
        return laws

    def _all_run(self) -> bool:
        return all(self._run(self.tensors(each)) for each in ((None, *self.found) if self.found else ()))

    def counts(self, laws: dict[Place, Law], line: str) -> bool:
        """Whether a number of chunks, by which a line decides, is a length; it becomes one where it can."""
        if laws and self._taken.isdisjoint(laws) and (self._wanted == "auto" or self._wanted & laws.keys()):
            self._taken.update(laws)
            (place, law), *_ = laws.items()
            self.found.append(Length(laws, (self.sizes[place] - law.offset) // law.slope, self._traced, line))
            self.found = self.found if self._all_run() else self.found[:-1]
        return any(length.laws == laws for length in self.found)

    def tensors(self, longer: Length | None = None) -> list[Tensor]:
        """The example with few steps of each length, and one more of one of them."""
        wanted = [length.sizes(length.steps + (length == longer)) for length in self.found]
        sizes = {place: size for each in wanted for place, size in each.items()}
        return of_fewer(self._trials.at(sizes), (Fraction(size, self.sizes[place]) for place, size in sizes.items()))

    def _group(self, form: int, place: Place, sizes: Collection[int]) -> list[Place]:
        return [each for each in self._trials.group(form, place, sizes) if each not in self._taken]

    def _calls(self, sizes: Mapping[Place, int]) -> Calls:
        others = frozenset(sizes.items() - self.sizes.items())
        if others not in self._known:
            self._known[others] = self._run(self._trials.at(sizes))
        return self._known[others]

    def _run(self, inputs: Sequence[Tensor]) -> Calls:
        """What the module calls; nothing where it does not take the inputs."""
        counting = Counting()
        with contextlib.suppress(RefusedError), any_length():
            results = self._trials.results(inputs, counting)
            # A step has one number of outputs.
            return counting.calls if len(results) == self._trials.results_count else {}
        return {}
