"""What a tensor of a TensorFlow graph may stand for besides numbers: variables, flows, texts, optional values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx_ir as ir

INT64 = ir.DataType.INT64

Value = Any  # Expr, TensorList, Handle, Returned, Flow, Text or Optional


class Flow:
    """The order of a TensorArray's reads and writes, which the order of ops has taken over."""


FLOW = Flow()


@dataclasses.dataclass(eq=False)
class Resource:
    """Something that ops change in place: a variable, or a TensorArray or Stack of TensorFlow 1.

    Attributes:
        name: its name.
        dtype: the dtype of its value, or of a list's elements.
        reference: whether an op that reads the tensor reads the value.
        gradients: TensorArrays of its gradients, by source.
        holds_flows: whether what is pushed is the order of other ops alone.
        grows: whether writing behind a TensorArray's end makes it longer.
        sums: whether it is the gradient of a TensorArray: who writes a place of it twice means the sum.
        unset: of a variable that the run initializes: what stands for its value until then.
    """

    name: str
    dtype: ir.DataType | None = None
    reference: bool = False
    gradients: dict[str, Resource] = dataclasses.field(default_factory=dict)
    holds_flows: bool = False
    grows: bool = False
    sums: bool = False
    unset: Value = None


@dataclasses.dataclass(frozen=True)
class Handle:
    """A tensor that stands for a cell."""

    cell: Resource


@dataclasses.dataclass(frozen=True)
class Text:
    """A string, or whatever else has no place in a model, until somebody reads it.

    Attributes:
        what: what it is, for an error.
        strings: a constant's, as bytes in an array of objects.
    """

    what: str
    strings: np.ndarray[Any, Any] | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class Division:
    """Which components of an optional value are those of which side of a branch.

    Attributes:
        condition: of the branch.
        count: how many components are those of the side where it holds; the others are the other side's.
        sides: how those of each side are divided in turn, by a branch within it, as a Case of several is.
    """

    condition: ir.Value
    count: int
    sides: tuple[Division | None, Division | None] = (None, None)


@dataclasses.dataclass(frozen=True)
class OptionalValue:
    """An optional value: its components, or none.

    Attributes:
        components: the components.
        division: where a branch has left different ones on its two sides, which are whose.
    """

    components: tuple[Value, ...] | None
    division: Division | None = None

    def side(self, number: int) -> OptionalValue:
        """What one side of the branch has left, 0 for the one where its condition holds."""
        assert self.components is not None
        assert self.division is not None
        cut = self.division.count
        return OptionalValue(
            self.components[:cut] if number == 0 else self.components[cut:], self.division.sides[number]
        )


@dataclasses.dataclass(frozen=True)
class Returned:
    """A TensorArray that was put into a list as a handle and comes back.

    Attributes:
        cell: the cell that the handle stood for.
        held: what was in it.
    """

    cell: Resource
    held: Value


@dataclasses.dataclass(frozen=True)
class Within:
    """The origin of what a list of lists holds."""

    origin: ir.Value | Within


# A condition in a loop's body, and one of its sides.
Guard = tuple[ir.Value, int]
