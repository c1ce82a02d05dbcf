"""Patterns: rules of algebra as data, `Pattern(0 + X, X)`.

The two sides are expressions of operators, numbers and variables. A number stands for a tensor that holds it
everywhere, a variable for any value, and for the same one wherever it occurs. What a side has in common with the other
is taken over as it is, the rest is emitted. A pattern is a rule like any other; it says nothing where the result would
have another shape.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr


def _operator(op: type[std.Standard]) -> Callable[[Side, Side], Operation]:
    """The method behind one of Python's operators."""
    return lambda self, other: Operation(op, (self, other))


def _swapped(op: type[std.Standard]) -> Callable[[Side, float], Operation]:
    """The same with a number on the left."""
    return lambda self, number: Operation(op, (number, self))


class _Side:
    """A side of a pattern, of which arithmetic makes a larger one."""

    __add__, __radd__ = _operator(std.Add), _swapped(std.Add)
    __sub__, __rsub__ = _operator(std.Sub), _swapped(std.Sub)
    __mul__, __rmul__ = _operator(std.Mul), _swapped(std.Mul)
    __truediv__, __rtruediv__ = _operator(std.Div), _swapped(std.Div)

    def __neg__(self) -> Operation:
        return Operation(std.Neg, (self,))


@dataclasses.dataclass(frozen=True)
class AnyValue(_Side):
    """Any value.

    Attributes:
        name: what it is called.
    """

    name: str


@dataclasses.dataclass(frozen=True)
class Operation(_Side):
    """An operator on sides of a pattern.

    Attributes:
        op: the operator.
        operands: what it is applied to; those of one that commutes may stand in any order.
    """

    op: type[std.Standard]
    operands: tuple[Side, ...]


Side = _Side | float
Bound = dict[Side, ir.Value]


def applied(op: type[std.Standard]) -> Callable[..., Operation]:
    """Makes an operator a function on sides of patterns."""
    return lambda *operands: Operation(op, operands)


def match(side: Side, value: ir.Value | None, facts: std.Knowledge, bound: Bound | None = None) -> Bound | None:
    """Values of each part of a pattern where it is a value, beside what is bound; `None` where it is not."""
    bound = {} if bound is None else bound
    if value is None:
        return None
    if isinstance(side, Operation):
        view = facts.maker(value)
        found = None if view is None or type(view) is not side.op else _operands(side, view, bound)
    elif isinstance(side, AnyValue):
        found = bound if side not in bound or _same(bound[side], value, facts) else None
    else:
        found = bound if facts.uniform(value) == side else None
    return None if found is None else {side: value, **found}


def _operands(side: Operation, view: std.Standard, bound: Bound) -> Bound | None:
    for values in [view.inputs, view.inputs[::-1]] if side.op.commutative else [view.inputs]:
        found: Bound | None = bound if len(values) == len(side.operands) else None
        for operand, value in zip(side.operands, values, strict=False):
            found = None if found is None else match(operand, value, view.facts, found)
        if found is not None:
            return found
    return None


def _same(a: ir.Value, b: ir.Value, facts: std.Knowledge) -> bool:
    """Whether two values are one, or the same integer in other words."""
    entries = facts.entries(a)
    return a is b or (entries is not None and len(entries) == 1 and entries == facts.entries(b))


def written(side: Side, bound: Mapping[Side, ir.Value], builder: Builder) -> Expr:
    """Emits a side of a pattern, but for what it has in common with what was matched."""
    if side in bound:
        return builder.wrap(bound[side])
    assert isinstance(side, Operation)
    return builder.op(side.op, *(written(operand, bound, builder) for operand in side.operands))


def _always(view: std.Standard, bound: Mapping[Side, ir.Value]) -> bool:  # noqa: ARG001
    return True


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A rule of algebra.

    Attributes:
        before: what is looked for.
        after: what takes its place.
        example: nodes that it applies to, in onnx's text form, from inputs x `[2, 3]`, z `[3]` and k
            `[2]`, of int64, to an output y.
        where: what else must be known, of the node and of what the parts stand for.
    """

    before: Operation
    after: Side
    example: str
    where: Callable[[std.Standard, Mapping[Side, ir.Value]], bool] = _always

    @functools.cached_property
    def numbers(self) -> frozenset[Side]:
        """The numbers of which each must be an operand of the node."""
        return frozenset(side for side in self.before.operands if not isinstance(side, _Side))

    def __call__(self, view: std.Standard, builder: Builder) -> Expr | None:
        """The result for a node's place; `None` where the pattern does not fit."""
        bound = _operands(self.before, view, {})
        if bound is None or not self.where(view, bound):
            return None
        result = written(self.after, bound, builder)
        return result if view.facts.same_shape(result.value, view.output) else None


def by_operator(patterns: Sequence[Pattern]) -> dict[type[std.Standard], list[Pattern]]:
    """Patterns by the operator that they are looked for at."""
    found: dict[type[std.Standard], list[Pattern]] = {}
    for pattern in patterns:
        found.setdefault(pattern.before.op, []).append(pattern)
    return found
