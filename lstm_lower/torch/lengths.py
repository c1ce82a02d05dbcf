"""Numbers of steps of loops in Python: axes of inputs by which a module's code does more, and where it does.

Such a loop is traced at a few steps and at one more (`open_lengths`), whatever the example's length is.
"""

from __future__ import annotations

import collections
import itertools
import sys
import types as python
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lstm_lower.torch.axes import Axes, Requested
from lstm_lower.torch.control_flow import any_length
from lstm_lower.torch.interface import Step, copied_weights
from lstm_lower.torch.loops import LOOP
from lstm_lower.torch.open_lengths import Law, Length, Place
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.trials import Trials, undone

# Steps that are traced: four that are rolled up (`LoopRerolling`), and others at either end; and where a loop of so few
# is another one than that of one more, so that more of them are first and last ones.
STEPS, MORE_STEPS = 6, 8

# Which axes have one length.
_FORMS = _ALONE, _SAME_AXIS, _SAME_SIZE = range(3)

# How often a line runs at least that is one of a loop.
_REPEATED = 2

# Function and line of the module's code -> how often it is called.
_Call = tuple[Any, str]
_Calls = Mapping[_Call, int]


class _Counting(TorchFunctionMode):
    """Counts calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[_Call] = collections.Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Counts one."""
        del types
        line = _line()
        if line is not None:
            self.calls[func, line] += 1
        return func(*args, **(kwargs or {}))


def _line() -> str | None:
    """The line of the user's code that runs now; `None` within a loop that a trace has as one."""
    frame: python.FrameType | None = sys._getframe(2)
    line = ""
    while frame is not None:
        if frame.f_code is LOOP:
            return None
        if not line and is_users(frame):
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return line


class Lengths:
    """The numbers of steps of a module.

    Attributes:
        found: the lengths.
    """

    def __init__(
        self,
        step: Step,
        names: Sequence[str],
        tensors: Sequence[Tensor],
        wanted: Requested,
        closed: Axes,
        traced: int = STEPS,
    ) -> None:
        """Runs a module at some sizes.

        Args:
            step: the module.
            names: of its inputs.
            tensors: the example.
            wanted: axes that are to be open.
            closed: input -> axes that are to have the example's size.
            traced: how many steps to trace.
        """
        self._step, self._names, self._tensors = step, names, tensors
        self._wanted, self._traced = wanted, traced
        self._trials = Trials(step, tensors)
        shapes = zip(names, tensors, strict=True)
        self._sizes = {(name, axis): size for name, x in shapes for axis, size in enumerate(x.shape)}
        self._taken: set[Place] = {(name, axis) for name, axes in closed.items() for axis in axes}
        self._tried: list[Mapping[Place, int]] = []
        self.found: list[Length] = []
        self._most: int | None = None
        example = self._calls({}) if wanted else None
        if example is None or max(example.values(), default=0) < _REPEATED:
            return
        self._find(example)
        if not self._runs():
            # Whole numbers may be lengths, which fit no fewer steps than the example's.
            self._most = traced
            self.found = self.found if self._runs() else []

    def _find(self, example: _Calls) -> None:
        """Looks for axes of which a step more is a larger size, then for others whose sizes go by how often lines run.

        Args:
            example: what the module calls.
        """
        left = {call: count for call, count in example.items() if count >= _REPEATED}
        most = max(left.values(), default=0)
        for form, (place, size) in itertools.product(_FORMS, self._sizes.items()):
            if size - 1 <= most:
                self._try(form, place, size, {size}, example, left)
        counts = {count for count in left.values() if count > _REPEATED}
        # Small steps first: of some modules several of them make another one, too.
        likely = counts, {count + 1 for count in counts}, {*self._sizes.values()} if counts else ()
        numbers = [steps for each in likely for steps in sorted(each, reverse=True) if steps > _REPEATED]
        for steps, form, place in itertools.product(numbers, _FORMS, self._sizes):
            if left:
                sizes = {size for size in self._sizes.values() if _slope(size, steps)}
                self._try(form, place, steps, sizes, example, left)

    def _try(
        self, form: int, place: Place, steps: int, sizes: set[int], example: _Calls, left: dict[_Call, int]
    ) -> None:
        """Makes a length of axes if lines run more often where they are larger; these are left no more."""
        if place in self._taken or self._sizes[place] not in sizes:
            return
        slopes = {each: _slope(self._sizes[each], steps) for each in self._group(form, place, sizes)}
        if slopes in self._tried:
            return
        self._tried.append(slopes)
        longer = self._calls({each: self._sizes[each] + slope for each, slope in slopes.items()}) or {}
        more = [call for call, count in longer.items() if count > example.get(call, 0)]
        if not more or not self._is_wanted(slopes):
            return
        for call in more:
            left.pop(call, None)
        self._taken.update(slopes)
        laws = {each: Law(slope, self._sizes[each] - slope * steps) for each, slope in slopes.items()}
        _, line = more[0]
        self.found.append(Length(self._multiplied(laws, steps, example), steps, self._traced, line))

    def _multiplied(self, laws: dict[Place, Law], steps: int, example: _Calls) -> dict[Place, Law]:
        """Laws by which as many rows as other axes have come with each step, where runs show that it is so."""
        slope = max(law.slope for law in laws.values())
        rows = [place for place, law in laws.items() if law == Law(slope)]
        for form, (place, size) in itertools.product(_FORMS, self._sizes.items()):
            if not rows or place in self._taken or size != slope:
                continue
            larger = dict.fromkeys(self._group(form, place, {slope}), slope + 1)
            if self._calls(larger) == example:
                return laws
            if self._calls(larger | dict.fromkeys(rows, (slope + 1) * steps)) == example:
                return laws | dict.fromkeys(rows, Law(slope, times=place))
        return laws

    def products(self, longer: Length | None = None) -> list[tuple[Place, int, Place]]:
        """Axes of the same example whose sizes are numbers times those of others: axis, number and other axis."""
        return [
            (place, length.steps + (length == longer), law.times)
            for length in self.found
            for place, law in length.laws.items()
            if law.times is not None
        ]

    def tensors(self, longer: Length | None = None) -> list[Tensor]:
        """The example with few steps of each length, and one more of one of them."""
        sizes: dict[Place, int] = {}
        for length in self.found:
            sizes |= length.sizes(length.steps + (length == longer))
        resized = self._resized(sizes)
        if self._most is None:
            return resized
        whole = (torch.int32, torch.int64)
        return [x.clamp(max=self._most) if x.dtype in whole else x for x in resized]

    def _runs(self) -> bool:
        """Whether the module takes few steps."""
        return all(self._run(self.tensors(each)) is not None for each in ((None, *self.found) if self.found else ()))

    def _is_wanted(self, places: Collection[Place]) -> bool:
        return self._wanted == "auto" or any(axis in self._wanted.get(name, ()) for name, axis in places)

    def _group(self, form: int, place: Place, sizes: Collection[int]) -> list[Place]:
        """Axes that may go by the length of one: it alone, the same axes of some sizes, all of some sizes."""
        if form == _ALONE:
            return [place]
        free = [each for each, size in self._sizes.items() if size in sizes and each not in self._taken]
        return [each for each in free if form == _SAME_SIZE or each[1] == place[1]]

    def _calls(self, sizes: Mapping[Place, int]) -> _Calls | None:
        return self._run(self._resized(sizes))

    def _run(self, inputs: Sequence[Tensor]) -> _Calls | None:
        """What the module calls; `None` where it does not take the inputs."""
        counting = _Counting()
        try:
            with undone(self._step), any_length():
                copied_weights(self._step, parameters=self._step.moves)
                with counting:
                    self._step(*(x.clone() for x in inputs))
        except Exception:  # noqa: BLE001
            return None
        return counting.calls

    def _resized(self, sizes: Mapping[Place, int]) -> list[Tensor]:
        return [
            self._trials.resized(number, [sizes.get((name, axis), size) for axis, size in enumerate(x.shape)])
            for number, (name, x) in enumerate(zip(self._names, self._tensors, strict=True))
        ]


def _slope(size: int, steps: int) -> int:
    """How much of a size comes with each of some steps, if hardly anything is left; 0 else."""
    slope, rest = divmod(size, steps)
    return slope if rest < max(slope, _REPEATED) else 0
