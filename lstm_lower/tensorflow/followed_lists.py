"""Lists in a loop: what an iteration finds in one, and what it makes of it.

A list that grows by an element in every iteration becomes an output of the loop, one that is read at the iteration's
place is read there, and one that is popped is read from its end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.tensorflow.element_lists import Fresh, Put, Rows, TensorList
from lstm_lower.tensorflow.packed_lists import Compound
from lstm_lower.tensorflow.values import Guard, Value, Within


class NeedsTensorError(Exception):
    """A list in a loop is used in a way that only a tensor carried through the loop can follow.

    Attributes:
        parameter: the list as the iteration finds it.
        why: how it is used.
        elements: what an inner loop was seen to add to it.
    """

    elements: TensorList | None = None

    def __init__(self, parameter: Parameter, why: str) -> None:
        super().__init__(why)
        self.parameter = parameter
        self.why = why


@dataclasses.dataclass(eq=False)
class Parameter(TensorList):
    """A list as an iteration of a loop finds it.

    What the iteration reads of it is read of the list before the loop; at the end of the body it is found out whether
    that is right.

    Attributes:
        before: the list before the loop.
        iteration: the iteration's number.
        indices: the places that were read.
        popped: whether its last element was taken.
        measured: whether its length was asked for.
        origins: what a value that was popped is a value of.
    """

    before: TensorList
    iteration: Expr
    origins: dict[ir.Value, ir.Value]
    indices: list[Expr] = dataclasses.field(default_factory=list)
    popped: bool = False
    measured: bool = False

    followed = True

    @property
    def starts_empty(self) -> bool:
        """Whether it holds nothing before the loop: then it can only grow, by an element in every iteration."""
        return isinstance(self.before, Fresh) and self.before.length().entries == (0,)

    def length(self) -> Expr:
        self.measured = True
        return self.iteration if self.starts_empty else self.before.length()

    def rows(self) -> Expr:
        raise NeedsTensorError(self, "it is read whole in the loop")

    def get(self, index: Expr) -> Value:
        if self.before.guard is not None:
            raise NeedsTensorError(self, "it holds no element for some iterations")
        self.indices.append(index)
        return self.before.get(index)

    def pop(self, reader: Builder) -> tuple[Value, TensorList]:  # noqa: ARG002
        self.popped = True
        return self._taken(self.before, self.before.length() - 1 - self.iteration), Popped(self)

    def _taken(self, held: TensorList, index: Expr) -> Value:
        if isinstance(held, Compound):
            return held.join([self._taken(part, index) for part in held.parts])
        found = held.get(index)
        if isinstance(found, Expr) and isinstance(held.origin, ir.Value):
            self.origins[found.value] = held.origin
        if isinstance(found, Expr) and isinstance(held.origin, Within):
            found = Rows(found)
            found.origin = held.origin.origin
        return found

    def push(self, element: Value) -> TensorList:
        return Pushed(self, element)

    def put(self, index: Expr, element: Value, *, add: bool = False, grows: bool = False) -> TensorList:
        return Put(self, index, element, add, grows)

    def plus(self, other: TensorList) -> TensorList:
        return self if isinstance(other, Fresh) else Sum(self, other)

    @property
    def element_shape(self) -> tuple[Any, ...] | None:
        return self.before.element_shape

    @property
    def various(self) -> bool:
        return self.before.various

    def sizes(self) -> Expr:
        return self.before.sizes()


@dataclasses.dataclass(eq=False)
class Changed(TensorList):
    """What an iteration makes of a parameter by one change."""

    base: Parameter | Put

    @property
    def parameter(self) -> Parameter:
        """The parameter."""
        root = self.base.root if isinstance(self.base, Put) else self.base
        assert isinstance(root, Parameter)
        return root

    def length(self) -> Expr:
        raise NeedsTensorError(self.parameter, "its length is asked for after a change")

    def rows(self) -> Expr:
        raise NeedsTensorError(self.parameter, "it is read whole in the loop")

    def get(self, index: Expr) -> Value:  # noqa: ARG002
        raise NeedsTensorError(self.parameter, "it is read after a change")

    def pop(self, reader: Builder) -> tuple[Value, TensorList]:  # noqa: ARG002
        raise NeedsTensorError(self.parameter, "it is changed twice in an iteration")

    def push(self, element: Value) -> TensorList:  # noqa: ARG002
        raise NeedsTensorError(self.parameter, "it is changed twice in an iteration")

    def put(self, index: Expr, element: Value, *, add: bool = False, grows: bool = False) -> TensorList:  # noqa: ARG002
        raise NeedsTensorError(self.parameter, "it is changed twice in an iteration")


@dataclasses.dataclass(eq=False)
class Pushed(Changed):
    """An element more.

    Attributes:
        element: the element.
        guard: where only one side of a branch adds it, the condition and the side, 0 for the one where it holds.
    """

    element: Value = None
    guard: Guard | None = None


@dataclasses.dataclass(eq=False)
class Popped(Changed):
    """An element less; `guard` as in `Pushed`."""

    guard: Guard | None = None


@dataclasses.dataclass(eq=False)
class Sum(Changed):
    """Another list added."""

    other: TensorList
