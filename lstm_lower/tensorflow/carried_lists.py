"""Lists in a loop: what an iteration finds in one, what it makes of it, and what becomes of it behind the loop.

A list that grows by an element in every iteration becomes an output of the loop, one that is read at the iteration's
place is read there, and one that is popped is read from its end.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.graph.values import filled
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.loops.views.linear import is_size
from lstm_lower.passes.loops.views.linear_code import fits, written
from lstm_lower.passes.loops.views.scalar_evolution import Recurrence, ScalarEvolution
from lstm_lower.passes.loops.views.step_values import StepValues
from lstm_lower.passes.loops.views.variation import BodyVariation
from lstm_lower.tensorflow.packed_lists import Compound, Packed, packed
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.tensor_list import (
    Each,
    Fresh,
    Joined,
    Put,
    Rows,
    TensorList,
    as_list,
    head,
    repeated,
)
from lstm_lower.tensorflow.translator import Scope, Translator
from lstm_lower.tensorflow.values import INT64, Guard, Handle, OptionalValue, Returned, Value, Within


class NeedsTensorError(Exception):
    """A list in a loop is used in a way that only a tensor carried through the loop can follow.

    Attributes:
        parameter: the list as the iteration finds it.
        why: how it is used.
        elements: what an inner loop was seen to add to it.
    """

    elements: TensorList | None = None

    def __init__(self, parameter: ListParameter, why: str) -> None:
        super().__init__(why)
        self.parameter = parameter
        self.why = why


@dataclasses.dataclass(eq=False)
class ListParameter(TensorList):
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
        return Pushed(self, element=element)

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
    """What an iteration makes of a parameter by one change.

    Attributes:
        base: the parameter.
        guard: where only one side of a branch does it, the condition and the side, 0 for the one where it holds.
    """

    base: ListParameter
    guard: Guard | None = None

    def length(self) -> Expr:
        raise NeedsTensorError(self.base, "its length is asked for after a change")

    def rows(self) -> Expr:
        raise NeedsTensorError(self.base, "it is read whole in the loop")


@dataclasses.dataclass(eq=False)
class Pushed(Changed):
    """An element more."""

    element: Value = None


@dataclasses.dataclass(eq=False)
class Popped(Changed):
    """An element less."""


@dataclasses.dataclass
class CarriedLists:
    """What becomes of the lists that one loop carries.

    Attributes:
        t: the translation.
        op: the loop, for errors.
        scope: the body.
        evolution: how integers of the body change.
        variation: what of the body varies in shape.
        counted: a value of the body whose sequence tells the number of iterations.
        steps: after the loop, what its iterations have made.
        trips: the number of iterations, where it is known before the loop.
    """

    t: Translator
    op: Op
    scope: Scope
    evolution: ScalarEvolution
    variation: BodyVariation
    counted: Expr | None = None
    steps: StepValues | None = None
    trips: Expr | None = None

    @property
    def behind(self) -> StepValues:
        """What its iterations have made, after the loop."""
        assert self.steps is not None
        return self.steps

    @functools.cached_property
    def count(self) -> Expr:
        """The number of iterations, after the loop."""
        if self.trips is not None:
            return self.trips
        return self.behind.count() if self.counted is None else Rows(self._stacked(self.counted)).length()

    def final(self, parameter: ListParameter, result: Value) -> Value:
        """What a list is after the loop.

        Args:
            parameter: the list as an iteration finds it.
            result: what an iteration makes of it.

        Raises:
            NeedsTensorError: it is used in a way that has no form without a tensor.
        """
        before = parameter.before
        if result is parameter:
            if parameter.popped or (parameter.measured and parameter.starts_empty):
                raise NeedsTensorError(parameter, "it is popped or measured, and handed on whole")
            return before
        if parameter.measured and not parameter.starts_empty and not isinstance(result, Put):
            raise NeedsTensorError(parameter, "its length changes and is asked for")
        if isinstance(result, Pushed) and result.base is parameter and not parameter.indices:
            pushed = self._pushed(result.element, parameter)
            pushed.guard = result.guard
            if pushed.guard is not None and not before.empty:
                raise NeedsTensorError(parameter, "one side of a branch adds to a list that holds something")
            return pushed if before.empty else Joined(before, pushed)
        if isinstance(result, Popped) and result.base is parameter and not parameter.indices:
            if self._origin(result.guard) != self._origin(before.guard):
                raise NeedsTensorError(parameter, "what one side of a branch has pushed is popped elsewhere")
            return head(before, lambda: before.length() - self.count)
        if not isinstance(result, Put) or result.base is not parameter:
            raise NeedsTensorError(parameter, "it is changed in more than one way")
        return self._written(parameter, result)

    def _pushed(self, element: Value, parameter: ListParameter) -> TensorList:
        """The list of what every iteration pushes."""
        if isinstance(element, Handle):
            return self._handles(element, parameter)
        if isinstance(element, TensorList):
            if isinstance(element, Compound | Packed):
                return self._lists(element, parameter)
            found = self._tensors(element.rows(), parameter)
            found.origin = None if element.origin is None else Within(element.origin)
            return found
        if isinstance(element, OptionalValue) and element.components:
            division = element.division
            return self._compound(element.components, parameter, lambda parts: OptionalValue(tuple(parts), division))
        if not isinstance(element, Expr):
            raise NeedsTensorError(parameter, f"its elements are {type(element).__name__}")
        if element.builder.depth < self.scope.builder.depth:
            return repeated(lambda: self.count, element)
        if element.dtype in (ir.DataType.INT32, INT64) and element.shape == ():
            numbers = self._recurrence(element)
            if numbers is not None:
                return self._numbers(numbers, element.dtype)
        return self._tensors(element, parameter)

    def _tensors(self, element: Expr, parameter: ListParameter) -> TensorList:
        return self._packed(element, parameter) if self.variation.of(element.value) else self._sequence(element)

    def _compound(
        self, values: Sequence[Value], parameter: ListParameter, join: Callable[[Sequence[Value]], Value]
    ) -> TensorList:
        return Compound(tuple(self._pushed(value, parameter) for value in values), join)

    def _lists(self, held: Compound | Packed, parameter: ListParameter) -> TensorList:
        """A list of lists that are no tensors."""
        if isinstance(held, Packed):
            held = dataclasses.replace(held, known=self._known(held.known))

        def join(parts: Sequence[Value]) -> Value:
            return held.again([found for part in parts if (found := as_list(part)) is not None])

        return self._compound(held.parts, parameter, join)

    def _handles(self, handle: Handle, parameter: ListParameter) -> TensorList:
        """A list of TensorArrays: of one, or of those that each iteration has made, with what they hold then."""
        if self.scope.outer is not None and self.scope.outer.holds(handle.cell):
            return repeated(lambda: self.count, handle)

        def join(parts: Sequence[Value]) -> Value:
            return Returned(handle.cell, as_list(parts[0]))

        return self._compound([self.scope.read(handle.cell)], parameter, join)

    def _packed(self, element: Expr, parameter: ListParameter, *, backwards: bool = False) -> Packed:
        """Elements of different shapes: the numbers of all are joined behind the loop."""
        b, numbers = element.builder, element.value
        counts, shapes = (self._pushed(b.op(kind, element), parameter) for kind in (std.Size, std.Shape))
        few = not self.variation.grows(numbers) and b.facts.elements(numbers, 2) * element.dtype.itemsize < 512
        joined = Rows(lambda: self.behind.joined(numbers, backwards=backwards, few=few))
        return Packed(joined, counts, shapes, self._known(element.shape))

    def _known(self, shape: Sequence[Any] | None) -> tuple[Any, ...] | None:
        return self.t.outside(shape, self.scope.builder.depth)

    def _recurrence(self, expr: Expr) -> Recurrence | None:
        """How a scalar changes from iteration to iteration, if what it begins with can be written before the loop."""
        recurrence = self.evolution.of(expr.value)
        sources = self.evolution.counting.sources
        writable = recurrence is not None and fits(recurrence.first, sources, self.t.space.facts)
        return recurrence if writable else None

    def _numbers(self, recurrence: Recurrence, dtype: ir.DataType) -> TensorList:
        """The list of what a scalar is in the iterations."""

        def at(place: Expr) -> Expr:
            return (self._first(recurrence) + place * recurrence.step).cast(dtype)

        return Each(lambda: self.count, at, lambda count: at(up_to(count.builder, count)))

    def _first(self, recurrence: Recurrence) -> Expr:
        """What a scalar is in the first iteration, an int64 scalar before the loop."""
        sources = self.evolution.counting.sources
        builder = self.t.innermost(sources[term] for term in recurrence.first.terms)
        return Expr(builder, written(builder, recurrence.first, sources))

    def _same(self, first: Expr, second: Expr) -> bool:
        """Whether two scalars are known to be equal in every iteration."""
        one, two = (self.evolution.counting.of(expr.value) for expr in (first, second))
        return first.value is second.value or (one is not None and one == two)

    def _origin(self, guard: Guard | None) -> Guard | None:
        """Where in the loop before what a branch depends on comes from."""
        return None if guard is None else (self.t.origin(guard[0]), guard[1])

    def _sequence(self, element: Expr) -> TensorList:
        self.counted = self.counted or element
        made = Rows(lambda: self._stacked(element))
        made.origin = element.value
        return made

    def _stacked(self, element: Expr) -> Expr:
        """What the iterations have made of a tensor of the body, after the loop."""
        sequence, known = self.t.wrap(self.behind.sequence(element.value)), self._known(element.shape)
        # Sizes of the body's values are no sizes behind it.
        shape = None if known is None else filled(sequence.value, (None, *known))
        return sequence if shape is None else sequence.builder.set_shape(sequence, shape)

    def _written(self, parameter: ListParameter, put: Put) -> TensorList:
        """A list of which every iteration writes another element."""
        place = self._recurrence(put.index)
        if place is not None and not put.add and self._replaces(parameter, put, place):
            assert isinstance(put.element, Expr)
            sequence = self._sequence(put.element)
            return Rows(lambda: sequence.rows().slice(-1, END, axis=0))
        if place is None or place.step not in (1, -1):
            raise NeedsTensorError(parameter, "the places that it is written at are not known to follow each other")
        if parameter.measured and put.grows and not (parameter.starts_empty and place.first.known == 0):
            raise NeedsTensorError(parameter, "its length is asked for while it grows")
        if not all(self._same(index, put.index) for index in parameter.indices):
            raise NeedsTensorError(parameter, "it is read at other places than it is written at")
        element = put.element.rows() if isinstance(put.element, TensorList) else put.element
        if self.variation.of(element.value) and not (isinstance(parameter.before, Fresh) and parameter.before.alike):
            return self._written_packed(put, element, parameter, place)
        sequence = self._sequence(element)
        if put.cut:
            return Rows(lambda: _unknown(self.op))
        return Rows(lambda: self._joined(parameter.before, put, sequence, place), self._kept_length(parameter, put))

    def _replaces(self, parameter: ListParameter, put: Put, place: Recurrence) -> bool:
        """Whether every iteration writes anew the only element of a list of which nobody knows how to make a tensor.

        A list of no element is left where there is no iteration: what reads it fails then, as it does in TensorFlow.
        """
        before, element = parameter.before, put.element
        if place.step != 0 or place.first.known != 0:
            return False
        if not isinstance(before, Fresh) or before.element_shape is not None or before.length().entries != (1,):
            return False
        if not isinstance(element, Expr) or element.shape is None or self.variation.of(element.value):
            return False
        unread = not (parameter.indices or parameter.measured or put.grows or put.cut)
        return unread and any(self.t.size(dim) is None for dim in element.shape)

    def _written_packed(self, put: Put, element: Expr, parameter: ListParameter, place: Recurrence) -> TensorList:
        """A list of which every iteration writes another element, of another shape."""
        before = parameter.before
        if put.add and not isinstance(before, Fresh):
            raise NeedsTensorError(parameter, "elements of different shapes are added to those that it holds")
        changed = self._packed(element, parameter, backwards=place.step < 0)
        numbers, known = changed.numbers, changed.known
        if isinstance(before, Fresh):
            # What is not written has no numbers.
            old: Sequence[TensorList] = [dataclasses.replace(before, dtype=INT64)] * 2
        else:
            held = packed(before)
            numbers = Rows(lambda: held.spliced(*self._places(place), changed.numbers.rows()))
            old, known = held.parts[1:], known if known == held.known else None
        counts, shapes = (
            Rows(partial(self._joined, part, put, new, place)) for part, new in zip(old, changed.parts[1:], strict=True)
        )
        return Packed(numbers, counts, shapes, known, self._kept_length(parameter, put))

    def _kept_length(self, parameter: ListParameter, put: Put) -> Callable[[], Expr] | None:
        """Makes the length of a list that is as long as before."""
        before = parameter.before
        return None if put.grows or (isinstance(before, Fresh) and before.grows) else before.length

    def _places(self, place: Recurrence) -> tuple[Expr, Expr]:
        """The first place that is written at, and the one behind the last."""
        first = self._first(place)
        first = first if place.step > 0 else first - self.count + 1
        return first, first + self.count

    def _joined(self, before: TensorList, put: Put, written: TensorList, place: Recurrence) -> Expr:
        """A list with what the iterations have written in the place of as many of its elements."""
        rows, (first, end), total = written.rows(), self._places(place), before.length()
        b = rows.builder
        if place.step < 0:
            rows = b.op(std.Slice, rows, b.ints(-1), b.ints(-END), b.ints(0), b.ints(-1))
        if put.grows or (isinstance(before, Fresh) and before.grows):
            total = total.maximum(end)
        if isinstance(before, Fresh):
            sizes, left = tail_of(rows, 1), total - end
            parts = [before.zeros(first, sizes)] if first.entries != (0,) else []
            parts += [rows, *([before.zeros(left, sizes)] if left.entries != (0,) else [])]
        else:
            old = (before.resized(total) if put.grows else before).rows()
            if put.add:
                rows = rows + old.slice(first.reshape(1), end.reshape(1), axis=0)
            parts = [old.slice(0, first.reshape(1), axis=0), rows, old.slice(end.reshape(1), END, axis=0)]
        joined = b.concat(parts, 0)
        length, shape = (total.entries or (None,))[0], joined.shape
        # That it is so long does not show where the number of iterations is open.
        known = shape is not None and length is not None and is_size(length)
        return b.set_shape(joined, (length, *shape[1:])) if known and shape is not None else joined


def _unknown(op: Op) -> Expr:
    raise UnsupportedOpError(f"{op}: a list that it shortens must be read in the loop only, got a reader behind")


def added(result: Value) -> TensorList | None:
    """What an iteration adds to a list, as a list."""
    if isinstance(result, Joined):
        return result.second
    if isinstance(result, Pushed | Put) and isinstance(result.element, Expr):
        return Rows(result.element.unsqueeze(0))
    return None
