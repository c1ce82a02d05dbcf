"""The sizes of inputs by the steps of a loop: what a model takes, which onnxruntime refuses with an error of a node.

A session says what is required of which input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidInputError
from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.lengths"

# An input and its axis.
Place = tuple[str, int]
T = TypeVar("T")


def by_input(values: Mapping[Place, T]) -> dict[str, dict[int, T]]:
    """Values of axes as input -> axis -> value."""
    found: dict[str, dict[int, T]] = {}
    for (name, axis), value in values.items():
        found.setdefault(name, {})[axis] = value
    return found


@dataclasses.dataclass(frozen=True)
class Law:
    """The size of an axis by a number of steps: `slope * steps + offset`.

    Attributes:
        slope: by how much it is larger with each step.
        offset: what it is with none.
        times: an input and its axis whose size the slope is, as where the steps of all sequences are rows of a matrix;
            `None` for a slope that is always the same.
        rest: by how much it may be larger, as where the last chunk of a sequence is padded.
    """

    slope: int = 1
    offset: int = 0
    times: Place | None = None
    rest: int = 0

    def __str__(self) -> str:
        if self.rest:
            last = dataclasses.replace(self, offset=self.offset + self.rest, rest=0)
            return f"{dataclasses.replace(self, rest=0)} to {last}"
        slope = f"{self.slope} * " if self.times is None else f"axis {self.times[1]} of '{self.times[0]}' * "
        offset = f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}" if self.offset else ""
        return f"{slope if self.slope > 1 or self.times else ''}steps{offset}"

    def alike(self, size: int) -> range:
        """Sizes with as many steps as one has."""
        first = size - (size - self.offset) % self.slope
        return range(first, first + self.rest + 1)


@dataclasses.dataclass(frozen=True)
class Length:
    """A number of steps.

    Attributes:
        laws: input -> axis whose size goes by it -> how.
        least: how many there are at least, as where first or last steps stand beside the loop.
        most: how many there are at most; `None` for any number.
        line: the line of code by which there are no more.
    """

    laws: Mapping[str, Mapping[int, Law]]
    least: int = 1
    most: int | None = None
    line: str = ""

    def check(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Refuses feeds of no such number.

        Raises:
            InvalidInputError: one has a size that is none, or that of another number than the feeds before it.
        """
        first: tuple[str, int] | None = None
        for name, axes in self.laws.items():
            for axis, law in axes.items():
                size, slope = _size(arrays, (name, axis)), _size(arrays, law.times) if law.times else law.slope
                if size is None or slope is None:
                    continue
                steps = first[1] if first else max((size - law.offset) // max(slope, 1), self.least)
                if not 0 <= size - (slope * steps + law.offset) <= law.rest:
                    required, why = f"{law}", f"for {self.least} or more steps"
                    if first:
                        least = slope * steps + law.offset
                        required = f"{least} to {least + law.rest}" if law.rest else f"{least}"
                        why = f"{law}, as '{first[0]}' has {steps} steps"
                    raise InvalidInputError(
                        f"input '{name}' requires a size of {required} along axis {axis} ({why}), got shape "
                        f"{format_shape(arrays[name].shape)}",
                        operand=name,
                    )
                if self.most is not None and steps > self.most:
                    raise InvalidInputError(
                        f"input '{name}' requires a size of at most {self.most} along axis {axis} ({self.line}), got "
                        f"shape {format_shape(arrays[name].shape)}",
                        operand=name,
                    )
                first = first or (name, steps)


def _size(arrays: Mapping[str, np.ndarray[Any, Any]], place: Place) -> int | None:
    name, axis = place
    return arrays[name].shape[axis] if name in arrays and axis in range(arrays[name].ndim) else None


_RECORD = Record(METADATA_KEY, list[Length], list[Length]())
parse = _RECORD.parse


def write(model: ir.Model, lengths: Sequence[Length]) -> None:
    """Records lengths, where there are any."""
    if lengths:
        _RECORD.write(model, [*lengths])
