"""Lists whose elements are no tensors of one shape: such as are made of several, and such as have different shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.formulas.pieces import Pieces, shaped
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.tensorflow.tensor_list import Rows, TensorList
from lstm_lower.tensorflow.values import Value

WAY_ON = (
    "loops in loops of TensorFlow 1 share their stacks, those of `tf.compat.v1.enable_control_flow_v2()` have lists of "
    "their own"
)
_SAME_STEPS = (
    "a loop within a loop that runs as often each time, and hands its state on with `tf.where` once it is done, has "
    "gradients without such lists"
)


@dataclasses.dataclass(eq=False)
class Compound(TensorList):
    """A list of what is made of several values: a list for each of them.

    Attributes:
        parts: the lists.
        join: makes an element of its parts.
    """

    parts: tuple[TensorList, ...]
    join: Callable[[Sequence[Value]], Value]

    def length(self) -> Expr:
        return self.parts[0].length()

    def rows(self) -> Expr:
        raise UnsupportedOpError(
            "a list of TensorArrays, optional values or lists of different lengths must be read one by one, got "
            f"a reader of all, such as a loop around that carries it; {WAY_ON}"
        )

    def again(self, parts: Sequence[TensorList]) -> Compound:
        """Such a list with other parts."""
        return dataclasses.replace(self, parts=tuple(parts))

    def get(self, index: Expr) -> Value:
        return self.join([part.get(index) for part in self.parts])


@dataclasses.dataclass(eq=False)
class Packed(TensorList):
    """A list of tensors of different shapes: all their numbers, one element behind another.

    Attributes:
        numbers: the numbers.
        counts: how many numbers each element has, int64 scalars.
        shapes: the shapes, int64 vectors.
        known: what is known of all shapes.
        count: makes the number of elements, where it is known besides.
    """

    numbers: TensorList
    counts: TensorList
    shapes: TensorList
    known: tuple[Any, ...] | None = None
    count: Callable[[], Expr] | None = None

    @property
    def parts(self) -> tuple[TensorList, ...]:
        """The lists that it is made of."""
        return self.numbers, self.counts, self.shapes

    def again(self, parts: Sequence[TensorList]) -> Packed:
        """Such a list with other parts."""
        numbers, counts, shapes = parts
        return Packed(numbers, counts, shapes, self.known)

    @property
    def element_shape(self) -> tuple[Any, ...] | None:
        return self.known

    @property
    def various(self) -> bool:
        return True

    def sizes(self) -> Expr:
        what = "a list requires elements of one shape where that is asked for, got several"
        raise UnsupportedOpError(f"{what}; {_SAME_STEPS}")

    def length(self) -> Expr:
        return self.counts.length() if self.count is None else self.count()

    def rows(self) -> Expr:
        raise UnsupportedOpError(
            "elements of different shapes must be read one by one or concatenated, got a reader of all, such as "
            f"a loop around that carries their list; {_SAME_STEPS}"
        )

    @property
    def element_dtype(self) -> ir.DataType:
        return self.numbers.element_dtype

    def get(self, index: Expr) -> Value:
        return self._pieces.get(index)

    @functools.cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.numbers.rows(), self.counts.rows(), self.shapes.get, self.known)

    def stacked(self) -> Expr:
        """The elements as one tensor, of which its reader knows that they are of one shape."""
        shapes = self.shapes.rows()
        b = shapes.builder
        return shaped(self.numbers.rows(), b.concat([shapes.sizes().slice(0, 1, axis=0), self._largest()], 0))

    def spliced(self, first: Expr, end: Expr, numbers: Expr) -> Expr:
        """The numbers, with others in the place of those of the elements from one place to another."""
        old, counts = self.numbers.rows(), self.counts.rows()
        head, tail = (counts.slice(0, place.reshape(1), axis=0).sum(0).reshape(1) for place in (first, end))
        return numbers.builder.concat([old.slice(0, head, axis=0), numbers, old.slice(tail, END, axis=0)], 0)

    def joined(self) -> tuple[Expr, Expr]:
        """The elements one behind another along their first axis, and the size of each."""
        sizes = self.shapes.rows().slice(0, 1, axis=1)
        b = sizes.builder
        total = b.concat([sizes.sum(0), self._largest().slice(1, END, axis=0)], 0)
        known = None if self.known is None else (None, *self.known[1:])
        return shaped(self.numbers.rows(), total, known), sizes.reshape(-1)

    def _largest(self) -> Expr:
        """The largest size along each axis; zeros where there is no element."""
        shapes = self.shapes.rows()
        b = shapes.builder
        if self.known is not None and all(isinstance(size, int) for size in self.known[1:]):
            none = b.ints(0, *self.known[1:])
        else:
            none = b.op(std.Expand, b.ints(0), tail_of(shapes, 1))
        return b.concat([shapes, none.unsqueeze(0)], 0).reduce(std.ReduceMax, 0, keepdims=False)


def packed(held: TensorList) -> Packed:
    """A list of elements of one shape as one that may have several."""
    if isinstance(held, Packed):
        return held
    rows = held.rows()
    b = rows.builder
    sizes = rows.sizes()
    count, shape = sizes.slice(0, 1, axis=0), sizes.slice(1, END, axis=0)
    counts = b.op(std.Expand, b.op(std.ReduceProd, shape, keepdims=1), count)
    shapes = b.op(std.Expand, shape.unsqueeze(0), b.concat([count, shape.sizes()], 0))
    return Packed(Rows(rows.reshape(-1)), Rows(counts), Rows(shapes), None if rows.shape is None else rows.shape[1:])
