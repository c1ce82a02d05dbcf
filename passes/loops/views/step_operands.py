"""What an operand of a step may be, in a loop that is written out as its steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Array


@dataclasses.dataclass(frozen=True)
class Fixed:
    """One value from outside, or none, in all steps."""

    value: ir.Value | None


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """The same constant in all steps."""

    array: Array
    dtype: ir.DataType


@dataclasses.dataclass(frozen=True)
class Same:
    """Output `output` of row `row` in the same step."""

    row: int
    output: int


@dataclasses.dataclass(frozen=True)
class Carried:
    """Output `output` of row `row` in the step before; `initial` in the first step."""

    row: int
    output: int
    initial: ir.Value


@dataclasses.dataclass(frozen=True)
class Element:
    """Elements `start`, `start + stride`, ... of a sequence along an axis, which stays with size 1 where it is `kept`.

    Attributes:
        stride: 1 or -1.
    """

    sequence: ir.Value
    axis: int
    kept: bool
    start: int
    stride: int


@dataclasses.dataclass(frozen=True)
class Stacked:
    """Values of one shape from outside, another in each step."""

    values: tuple[ir.Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers:
    """A constant of one element, another in each step: `[T, ...]`."""

    array: Array
    dtype: ir.DataType


Role = Fixed | Constant | Same | Carried | Element | Stacked | Numbers


def element_of(value: ir.Value | None, facts: Facts) -> Element | None:
    """The element of a sequence that a value is; `None` where it is none, or a computed one."""
    view = facts.maker(value)
    sequence = None if view is None else view.operand(0)
    if view is None or sequence is None or value is None:
        return None
    place: int | None = None
    axis: int | None = None
    kept = True
    if isinstance(view, std.Gather):
        index = facts.constant(view.indices)
        axis = view.axis
        if index is not None and index.size == 1 and index.ndim <= 1:
            place, kept = int(index.reshape(-1)[0]), index.ndim == 1
    elif isinstance(view, std.Split):
        axis, sizes = view.axis, view.sizes
        place = value.index() if sizes is not None and set(sizes) == {1} else None
    elif isinstance(view, std.Slice):
        starts, ends, axes, steps = view.constant(1), view.constant(2), view.axes, view.steps
        if starts is not None and ends is not None and axes is not None and steps == (1,) and starts.size == 1:
            axis, start, end = axes[0], int(starts.reshape(-1)[0]), int(ends.reshape(-1)[0])
            last = start == -1 and end >= np.iinfo(np.int32).max
            place = start if last or (end - start == 1 and (start < 0) == (end < 0)) else None
    if place is None or axis is None:
        return None
    shape = facts.shape(sequence)
    if shape is None:
        return None
    size = shape[axis]
    if place < 0 or isinstance(view, std.Slice):
        # Of what lies beyond the end a Slice gives less; a Gather fails.
        if not isinstance(size, int) or not -size <= place < size:
            return None
        place %= size
    return Element(sequence, axis, kept, place, 1)
