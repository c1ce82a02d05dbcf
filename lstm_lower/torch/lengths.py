"""Numbers of steps of loops in Python: axes of inputs by which a module's code does more, and where it does.

Such a loop is traced at a few steps and at one more (`open_lengths`), whatever the example's length is.
"""

from __future__ import annotations

import collections
import sys
import types as python
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lstm_lower.torch.axes import Axes, Requested
from lstm_lower.torch.control_flow import any_length
from lstm_lower.torch.interface import Step, copied_weights
from lstm_lower.torch.loops import LOOP
from lstm_lower.torch.open_lengths import Length, Place
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.trials import Trials, undone

# Steps that are traced: four that are rolled up (`LoopRerolling`), and others at either end; and where a loop of so few
# is another one than that of one more, so that more of them are first and last ones.
STEPS, MORE_STEPS = 6, 8

# Which axes have one length.
_ALONE, _SAME_AXIS, _SAME_SIZE = range(3)

# How often a line runs at least that is one of a loop.
_REPEATED = 2

# Function and line of the module's code -> how often it is called.
_Calls = Mapping[tuple[Any, str], int]


class _Counting(TorchFunctionMode):
    """Counts calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[tuple[Any, str]] = collections.Counter()

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
        self._trials = Trials(step, tensors)
        self._shapes = [list(x.shape) for x in tensors]
        self.found: list[Length] = []
        self._most: int | None = None
        example = self._calls({}) if wanted else None
        if example is None:
            return
        longer: dict[tuple[Place, ...], _Calls | None] = {}
        taken: set[Place] = {(name, axis) for name, axes in closed.items() for axis in axes}
        most = max(example.values(), default=0)
        if most < _REPEATED:
            return
        for form in _ALONE, _SAME_AXIS, _SAME_SIZE:
            for place in self._places():
                group = self._group(form, place, taken)
                if place in taken or self._size(place) - 1 > most or group in longer:
                    continue
                calls = longer[group] = self._calls({each: self._size(each) + 1 for each in group})
                line = _line_of_more(example, calls)
                if line is not None and (wanted == "auto" or any(axis in wanted.get(name, ()) for name, axis in group)):
                    taken.update(group)
                    self.found.append(Length(group, traced, line))
        if not self._runs():
            # Whole numbers may be lengths, which fit no fewer steps than the example's.
            self._most = traced
            self.found = self.found if self._runs() else []

    def tensors(self, longer: Length | None = None) -> list[Tensor]:
        """The example with few steps of each length, and one more of one of them."""
        sizes = {place: length.steps + (length == longer) for length in self.found for place in length.places}
        resized = [self._resized(number, sizes) for number in range(len(self._tensors))]
        if self._most is None:
            return resized
        whole = (torch.int32, torch.int64)
        return [x.clamp(max=self._most) if x.dtype in whole else x for x in resized]

    def _runs(self) -> bool:
        """Whether the module takes few steps."""
        return all(self._run(self.tensors(each)) is not None for each in ((None, *self.found) if self.found else ()))

    def _places(self) -> Iterator[Place]:
        return (
            (name, axis) for name, shape in zip(self._names, self._shapes, strict=True) for axis in range(len(shape))
        )

    def _size(self, place: Place) -> int:
        return self._shapes[list(self._names).index(place[0])][place[1]]

    def _group(self, form: int, place: Place, taken: Container[Place]) -> tuple[Place, ...]:
        """Axes that may have the length of one: it alone, the same axes of the same size, all of its size."""
        if form == _ALONE:
            return (place,)
        equal = [each for each in self._places() if self._size(each) == self._size(place) and each not in taken]
        return tuple(each for each in equal if form == _SAME_SIZE or each[1] == place[1])

    def _calls(self, sizes: Mapping[Place, int]) -> _Calls | None:
        return self._run([self._resized(number, sizes) for number in range(len(self._tensors))])

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

    def _resized(self, number: int, sizes: Mapping[Place, int]) -> Tensor:
        name = self._names[number]
        shape = [sizes.get((name, axis), size) for axis, size in enumerate(self._shapes[number])]
        return self._trials.resized(number, shape)


def _line_of_more(calls: _Calls, longer: _Calls | None) -> str | None:
    """The first line that calls more where an axis is longer; `None` where none does, or it cannot be longer."""
    return next((line for (func, line), count in (longer or {}).items() if count > calls.get((func, line), 0)), None)
