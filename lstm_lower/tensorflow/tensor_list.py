"""Lists of tensors: TensorLists, TensorArrays and Stacks are the same.

They are followed through the graph by what is done to them and never become values of a model as such: what they hold
is a tensor with an axis in front, made when somebody asks for it.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.tensorflow.values import INT64, Guard, Value, Within


class TensorList(abc.ABC):
    """A list of tensors. Numbers of elements and indices are int64 scalars.

    Attributes:
        origin: of what iterations have pushed, the value in the loop's body; of lists that they have pushed, the origin
            of what these hold.
        guard: of what iterations have pushed on one side of a branch only, where.
    """

    origin: ir.Value | Within | None = None
    guard: Guard | None = None
    # Whether it is one that an iteration of a loop finds, of which changes are noted and not made.
    followed = False

    def demand_all(self) -> None:
        """Makes sure that every place holds an element.

        Raises:
            UnsupportedOpError: it does not.
        """
        if self.guard is not None:
            raise UnsupportedOpError("a list requires an element in every iteration where it is read as a whole")

    @abc.abstractmethod
    def length(self) -> Expr:
        """The number of elements."""

    @abc.abstractmethod
    def rows(self) -> Expr:
        """The elements as one tensor, `[length, *element]`."""

    def get(self, index: Expr) -> Value:
        """One element."""
        rows = self.rows()
        return rows.take(index)

    def pop(self, reader: Builder) -> tuple[Value, TensorList]:
        """The last element, read by a builder, and the list without it."""
        self.demand_all()
        count = self.length() - 1
        return self.get(within(reader, count)), head(self, lambda: count)

    def push(self, element: Value) -> TensorList:
        """The list with an element more."""
        return Joined(self, Rows(row_of(element)))

    def put(self, index: Expr, element: Value, *, add: bool = False, grows: bool = False) -> TensorList:
        """The list with another element at a place, or with one added to what is there; `grows` as in `Put`."""
        # Before anything was written there are zeros.
        return Put(self, index, element, add and not isinstance(self, Fresh), grows)

    def plus(self, other: TensorList) -> TensorList:
        """The sums of the elements of two lists."""
        if isinstance(other, Fresh):
            return self
        if isinstance(other, Put) and isinstance(other.base, Fresh) and not isinstance(self, Rows):
            return Put(self, other.index, other.element, add=True)
        return Rows(self.rows() + other.rows())

    def resized(self, count: Expr) -> TensorList:
        """The list with another number of elements: the first ones, with zeros behind where there are more."""
        if count.entries is not None and count.entries == self.length().entries:
            return self
        rows = self.rows()
        b = rows.builder
        sizes = tail_of(rows, 1)
        missing = (count - self.length()).maximum(0)
        more = b.fill(0, b.concat([missing.reshape(1), sizes], 0), rows.dtype)
        return Rows(b.concat([rows.slice(0, count.reshape(1), axis=0), more], 0))

    @property
    def empty(self) -> bool:
        """Whether it surely holds no element."""
        return False

    @property
    def element_shape(self) -> tuple[Any, ...] | None:
        """The elements' shape as far as it is known."""
        shape = self.rows().shape
        return None if shape is None else shape[1:]

    @property
    def various(self) -> bool:
        """Whether its elements may be of several shapes."""
        return False

    @property
    def element_dtype(self) -> ir.DataType:
        """The elements' dtype."""
        return self.rows().dtype

    def sizes(self) -> Expr:
        """The elements' shape, an int64 vector."""
        rows = self.rows()
        return tail_of(rows, 1)


def _reaching(length: Expr, index: Expr) -> Expr:
    """The length of a list of so many places once a place of such an index is written."""
    known = (length.entries or (None,))[0], (index.entries or (None,))[0]
    if isinstance(known[0], int) and isinstance(known[1], int):
        return length.builder.constant(max(known[0], known[1] + 1), INT64)
    return length.maximum(index + 1)


def within(reader: Builder, operand: Expr) -> Expr:
    """An operand of what a branch does: it is done there, since it may be impossible where the branch is not taken."""
    return Expr(reader, operand.value) if reader.depth > operand.builder.depth else operand


def row_of(element: Value) -> Expr:
    """A list's element as a tensor with an axis in front.

    Raises:
        UnsupportedOpError: it is no tensor.
    """
    expr = element.rows() if isinstance(element, TensorList) else element
    if not isinstance(expr, Expr):
        raise UnsupportedOpError(f"a list requires tensors as its elements, got {type(expr).__name__}")
    return expr.unsqueeze(0)


def as_list(value: Value) -> TensorList | None:
    """A list, also one that was an element of a list."""
    if isinstance(value, Expr):
        return Rows(value)
    return value if isinstance(value, TensorList) else None


@dataclasses.dataclass(eq=False)
class Rows(TensorList):
    """A list whose elements are a tensor's rows.

    Attributes:
        source: the tensor, or makes it when somebody asks.
        count: makes the number of elements, where it is known besides.
    """

    source: Expr | Callable[[], Expr]
    count: Callable[[], Expr] | None = None

    @functools.cached_property
    def tensor(self) -> Expr:
        """The tensor, whether each row holds an element or not."""
        return self.source if isinstance(self.source, Expr) else self.source()

    def length(self) -> Expr:
        if self.count is not None:
            return self.count()
        size = self.tensor.size(0)
        b = self.tensor.builder
        return b.constant(size, INT64) if isinstance(size, int) else size.reshape()

    def rows(self) -> Expr:
        self.demand_all()
        return self.tensor

    def get(self, index: Expr) -> Value:
        return self.tensor.take(index)


@dataclasses.dataclass(eq=False)
class Each(TensorList):
    """A list whose elements follow from their places.

    Attributes:
        count: makes the number of elements.
        element: makes the element at a place.
        whole: makes the tensor of so many elements.
    """

    count: Callable[[], Expr]
    element: Callable[[Expr], Value]
    whole: Callable[[Expr], Expr]

    def length(self) -> Expr:
        return self.count()

    def rows(self) -> Expr:
        self.demand_all()
        return self.whole(self.count())

    def get(self, index: Expr) -> Value:
        return self.element(index)


def repeated(count: Callable[[], Expr], element: Value) -> Each:
    """A list of one element, so many times."""

    def whole(times: Expr) -> Expr:
        b, row = times.builder, row_of(element)
        target: Expr = b.concat([times.reshape(1), element.sizes()], 0)
        return b.op(std.Expand, row, target)

    return Each(count, lambda _: element, whole)


def head(base: TensorList, count: Callable[[], Expr]) -> Each:
    """The first elements of a list."""
    return Each(count, base.get, lambda number: base.rows().slice(0, number.reshape(1), axis=0))


@dataclasses.dataclass(eq=False)
class Fresh(TensorList):
    """A new list: of no elements, or of elements that nobody has written yet, which read as zeros.

    Attributes:
        builder: where what it needs is emitted.
        count: the number of elements; `None` for none.
        dtype: the elements' dtype; `None` where it is that of `like`.
        shape: the elements' shape: a vector, sizes that are known, or `None`.
        grows: whether writing behind its end makes it longer.
        like: a list of such elements, such as the one of which it is the gradient; looked into where somebody asks.
        alike: whether its elements are declared to be of one shape.
    """

    builder: Builder
    count: Expr | None
    dtype: ir.DataType | None
    shape: Expr | None = None
    grows: bool = False
    like: TensorList | None = None
    alike: bool = False

    @property
    def empty(self) -> bool:
        return self.count is None

    @property
    def element_shape(self) -> tuple[Any, ...] | None:
        entries = None if self.shape is None else self.shape.entries
        if entries is None or any(isinstance(size, int) and size < 0 for size in entries):
            return None if self.like is None else self.like.element_shape
        return tuple(entries)

    def sizes(self) -> Expr:
        known = None if self.shape is None else self.shape.entries
        if self.like is not None and (known is None or any(isinstance(size, int) and size < 0 for size in known)):
            return self.like.sizes()
        if self.shape is None or self.element_shape is None:
            raise UnsupportedOpError(
                "a list requires elements of a known shape where one is read before it is written, got an unknown one"
            )
        return self.shape.cast(INT64)

    def length(self) -> Expr:
        return self.builder.constant(0, INT64) if self.count is None else self.count

    @property
    def element_dtype(self) -> ir.DataType:
        """The elements' dtype."""
        if self.dtype is not None:
            return self.dtype
        assert self.like is not None
        return self.like.element_dtype

    def _zeros(self, shape: Expr) -> Expr:
        return shape.builder.fill(0, shape, self.element_dtype)

    def zeros(self, count: Expr, sizes: Expr) -> Expr:
        """So many elements of zeros."""
        return self._zeros(sizes.builder.concat([count.reshape(1), sizes], 0))

    def rows(self) -> Expr:
        return self.zeros(self.length(), self.sizes())

    def get(self, index: Expr) -> Value:  # noqa: ARG002
        return self._zeros(self.sizes())

    def push(self, element: Value) -> TensorList:
        return Rows(row_of(element)) if self.empty else super().push(element)

    def plus(self, other: TensorList) -> TensorList:
        return other


@dataclasses.dataclass(eq=False)
class Put(TensorList):
    """A list with another element at a place.

    Attributes:
        base: the list.
        index: the place.
        element: what is written there.
        add: whether it is added to what is there.
        grows: whether a place behind the end makes it longer.
        cut: whether it is made shorter afterwards, as the gradient of a list that grew is.
    """

    base: TensorList
    index: Expr
    element: Value
    add: bool = False
    grows: bool = False
    cut: bool = False

    def length(self) -> Expr:
        count = self.base.length()
        if self.grows or (isinstance(self.base, Fresh) and self.base.grows):
            count = count.maximum(self.index + 1)
        return count

    def rows(self) -> Expr:
        return self._rows

    @functools.cached_property
    def _rows(self) -> Expr:
        base, row = self.base, row_of(self.element)
        if isinstance(base, Fresh):
            rows = base.zeros(self.length(), tail_of(row, 1) if base.element_shape is None else base.sizes())
        else:
            rows = (base.resized(_reaching(base.length(), self.index)) if self.grows else base).rows()
        if self.add:
            row = row + rows.take(self.index.reshape(1))
        return rows.builder.op(std.ScatterND, rows, self.index.reshape(1, 1), row)

    def get(self, index: Expr) -> Value:
        held: TensorList = self
        while isinstance(held, Put):
            known = index.entries, held.index.entries
            same = index.value is held.index.value or (known[0] is not None and known[0] == known[1])
            if same and not held.add:
                return held.element
            if same or not all(entries and isinstance(entries[0], int) for entries in known):
                return super().get(index)
            held = held.base
        return held.get(index)

    def resized(self, count: Expr) -> TensorList:
        return dataclasses.replace(self, cut=True) if self.root.followed else super().resized(count)

    @property
    def root(self) -> TensorList:
        """The list that it is made of."""
        base = self.base
        while isinstance(base, Put):
            base = base.base
        return base


@dataclasses.dataclass(eq=False)
class Joined(TensorList):
    """One list behind another."""

    first: TensorList
    second: TensorList

    def length(self) -> Expr:
        return self.first.length() + self.second.length()

    def rows(self) -> Expr:
        if self.first.empty:
            return self.second.rows()
        first, second = self.first.rows(), self.second.rows()
        return first.builder.concat([first, second], 0)
