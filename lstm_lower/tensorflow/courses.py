"""Integers that follow a loop's iterations: counters, and sums of them with what does not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import Entry
from lstm_lower.passes.loops.views.linear import DEEPEST, Counting, Linear
from lstm_lower.tensorflow.translator import Translator
from lstm_lower.tensorflow.values import INT64


@dataclasses.dataclass
class Course:
    """A scalar that grows by the same step in every iteration.

    Attributes:
        start: makes its value in the first iteration, an int64 scalar before the loop.
        step: by how much it grows.
    """

    start: Callable[[], Expr]
    step: int


class Courses:
    """Finds the course of integers in a loop's body.

    Args:
        t: the translation.
        body: emits into the body.
        iteration: the iteration's number.
        carried: parameter of the body -> its value before the loop and its next value.
    """

    def __init__(
        self, t: Translator, body: Builder, iteration: ir.Value, carried: Mapping[ir.Value, tuple[ir.Value, ir.Value]]
    ) -> None:
        self.t = t
        self.iteration = iteration
        self.carried = carried
        self.counting = Counting(t.space.facts, body.graph, {iteration, *carried})

    def of(self, expr: Expr) -> Course | None:
        """The course of a scalar; `None` where it has none that is known."""
        form = self.counting.of(expr.value)
        if form is None:
            return None
        step, first = form.multiple(self.iteration), form.with_term(self.iteration, Linear())
        for parameter, (before, after) in self.carried.items():
            if times := form.multiple(parameter):
                start, update = self.counting.of(before), self.counting.of(after)
                growth = None if update is None else (update - Linear(0, {parameter: 1})).known
                if start is None or growth is None:
                    return None
                step, first = step + times * growth, first.with_term(parameter, start)
        return Course(lambda: self._sum(first), step)

    def same(self, first: Expr, second: Expr) -> bool:
        """Whether two scalars are known to be equal in every iteration."""
        known = self.counting.of(first.value)
        return first.value is second.value or (known is not None and known == self.counting.of(second.value))

    def depth_of_count(self, first: Expr, going: Expr) -> int | None:
        """How many bodies lie around all that the number of iterations depends on; `None` where that is not known."""
        facts, t = self.t.space.facts, self.t
        one, two = facts.maker(first.value), facts.maker(going.value)
        while isinstance(one, std.Identity):
            one = facts.maker(one.node.inputs[0])
        while isinstance(two, std.Identity):
            two = facts.maker(two.node.inputs[0])
        if one is None or two is None or type(one) is not type(two):
            return None
        pairs = [(t.wrap(a), t.wrap(b)) for a, b in zip(one.node.inputs, two.node.inputs, strict=True) if a and b]
        if isinstance(one, std.And):
            depths = [self.depth_of_count(*pair) for pair in pairs]
            return None if None in depths else max(depth for depth in depths if depth is not None)
        if not isinstance(one, std.Less | std.Greater | std.LessOrEqual | std.GreaterOrEqual):
            return None
        if any(a.value is not b.value and self.of(b) is None for a, b in pairs):
            return None
        return max(t.counters.get(t.origin(a.value), a.builder.depth) for a, _ in pairs)

    def _sum(self, form: Linear) -> Expr:
        """An int64 scalar."""
        total = self.t.root.constant(form.number, INT64)
        for term, times in form.terms.items():
            part = self.t.wrap(self.counting.sources[term]).cast(INT64)
            part = part if part.shape == () else part.reshape()
            part = part if times == 1 else part * times
            total = part if total.entries == (0,) else total + part
        return total


def starts_surely(condition: Expr, t: Translator) -> bool:
    """Whether a loop's first condition holds, if sequences and batches that come from outside are not empty."""
    facts = t.space.facts
    maker = facts.maker(condition.value)
    match maker:
        case std.Identity():
            return starts_surely(t.wrap(maker.data), t)
        case std.And():
            return all(starts_surely(t.wrap(x), t) for x in maker.node.inputs if x is not None)
        case std.Less() | std.Greater() | std.GreaterOrEqual() | std.LessOrEqual():
            small, large = maker.node.inputs
            if isinstance(maker, std.Greater | std.GreaterOrEqual):
                small, large = large, small
            most, least = facts.constant(small), _least(large, t)
            if most is None or least is None or most.size != 1:
                return False
            number = int(most.reshape(-1)[0])
            return least >= number if isinstance(maker, std.GreaterOrEqual | std.LessOrEqual) else least > number
    known = facts.constant(condition.value)
    return known is not None and bool(known.all())


def _least(value: ir.Value | None, t: Translator, depth: int = 0) -> int | None:
    """What an integer scalar is at least, where sizes are 1 at least."""
    assert value is not None
    facts = t.space.facts
    entries = facts.entries(value)
    if value in t.least or entries is None or len(entries) != 1 or depth > DEEPEST:
        return t.least.get(value)
    if isinstance(entries[0], int):
        return entries[0]
    if not isinstance(entries[0], Entry):
        return 1
    match maker := facts.maker(value):
        case std.Identity() | std.Cast() | std.Squeeze() | std.Unsqueeze() | std.Reshape():
            return _least(maker.node.inputs[0], t, depth + 1)
        case std.Add() | std.Sub() if (shift := facts.constant(maker.node.inputs[1])) is not None:
            bound = _least(maker.node.inputs[0], t, depth + 1)
            sign = 1 if isinstance(maker, std.Add) else -1
            return None if bound is None else bound + sign * int(shift.reshape(-1)[0])
        case std.Max() | std.Min():
            bounds = [_least(x, t, depth + 1) for x in maker.node.inputs]
            known = [bound for bound in bounds if bound is not None]
            if isinstance(maker, std.Max):
                return max(known, default=None)
            return min(known) if len(known) == len(bounds) else None
    return None
