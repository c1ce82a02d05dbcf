"""Integer scalars as sums: a number, and multiples of what is not known now, such as sizes and a loop's counters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Dim, UnknownEntry

# What integers are counted in.
INDICES = frozenset({ir.DataType.INT32, ir.DataType.INT64})
# Longer chains of sums are no counting.
DEEPEST = 64

# What hands a scalar on.
_RESHAPED = (std.Identity, std.Squeeze, std.Unsqueeze, std.Reshape)

# A size or entry that is the same for the whole loop, or a value of the loop's body, such as a carried counter.
Term = Dim | ir.Value


@dataclasses.dataclass(frozen=True)
class LinearForm:
    """`number + sum(multiple * term)`; two are equal where that is known of the scalars.

    Attributes:
        number: the part that is known now.
        terms: multiples, none of them 0.
    """

    number: int = 0
    terms: Mapping[Term, int] = dataclasses.field(default_factory=dict)

    def __add__(self, other: LinearForm) -> LinearForm:
        terms = dict(self.terms)
        for term, multiple in other.terms.items():
            terms[term] = terms.get(term, 0) + multiple
        return LinearForm(self.number + other.number, {term: k for term, k in terms.items() if k})

    def __sub__(self, other: LinearForm) -> LinearForm:
        return self + other.times(-1)

    def times(self, factor: int) -> LinearForm:
        """A multiple."""
        return LinearForm(self.number * factor, {term: k * factor for term, k in self.terms.items() if k * factor})

    def multiple(self, term: Term) -> int:
        """How often a term is in it."""
        return self.terms.get(term, 0)

    def with_term(self, term: Term, value: LinearForm) -> LinearForm:
        """The sum with something in a term's place."""
        rest = LinearForm(self.number, {other: k for other, k in self.terms.items() if other != term})
        return rest + value.times(self.multiple(term))

    @property
    def known(self) -> int | None:
        """The number where it is nothing else."""
        return None if self.terms else self.number


class Counting:
    """Reads integer scalars as sums.

    A sum is the scalar's value as long as the scalars on the way to it stay within their integer type, as sizes and
    counters do; then it is no matter which of the two types they are cast to.

    Attributes:
        variables: values that are terms by themselves: the loop's iteration number and counters.
        sources: for each other term a scalar that holds it, visible before the loop.
    """

    def __init__(self, facts: Facts, body: ir.Graph | None = None, variables: Container[ir.Value] = ()) -> None:
        """Prepares.

        Args:
            facts: what is known of the model's values.
            body: the loop's body; what is made there is the same at every step only where it is a sum of what is.
            variables: see the attributes.
        """
        self.facts = facts
        self.body = body
        self.variables = variables
        self.sources: dict[Term, ir.Value] = {}
        # Decides between the two sums of a Min, Max or Where, where more is known of the terms.
        self.choose: Callable[[std.Standard, Counting], ir.Value | None] = lambda _op, _counting: None
        self._depth = 0

    def of(self, value: ir.Value | None) -> LinearForm | None:
        """The sum that an integer tensor of one element is; `None` where that is not known."""
        if value is None:
            return None
        if value in self.variables:
            return LinearForm(0, {value: 1})
        known = self.facts.constant(value)
        if known is not None:
            fits = known.size == 1 and known.dtype.kind in "iu"
            return LinearForm(int(known.reshape(-1)[0])) if fits else None
        if self.facts.dtype(value) not in INDICES:
            return None
        self._depth += 1
        found = self._computed(value) if self._depth < DEEPEST else None
        self._depth -= 1
        return found if found is not None or self.is_inside(value) else self._outer(value)

    def tests(self, condition: ir.Value | None, going: ir.Value | None = None) -> list[LinearForm] | None:
        """The comparisons that all have to hold where a condition does, each as a sum that is negative then.

        Args:
            condition: a scalar; `None` for one that always holds.
            going: what is known to hold, as the condition that a step finds.

        Returns:
            `None` where the condition is something else.
        """
        found: list[LinearForm] = []
        pending = [condition]
        while pending:
            value = self._plain(pending.pop(), going)
            known = None if value is None else self.facts.constant(value)
            if value is None or value is going or (known is not None and known.all()):
                continue
            op = self.facts.maker(value)
            if isinstance(op, std.And):
                pending += op.inputs
            elif (test := self.negative(value)) is not None:
                found.append(test)
            else:
                return None
        return found

    def _plain(self, value: ir.Value | None, stop: ir.Value | None = None) -> ir.Value | None:
        """The scalar that another shape is given to."""
        while value is not stop and isinstance(op := self.facts.maker(value), _RESHAPED):
            value = op.inputs[0]
        return value

    def negative(self, test: ir.Value | None) -> LinearForm | None:
        """The sum that is negative exactly where a comparison of two scalars holds."""
        op = self.facts.maker(self._plain(test))
        if isinstance(op, std.Not):
            found = self.negative(op.data)
            # Not less than 0 is more than -1.
            return None if found is None else (found + LinearForm(1)).times(-1)
        if not isinstance(op, std.Less | std.LessOrEqual | std.Greater | std.GreaterOrEqual):
            return None
        left, right = self.of(op.inputs[0]), self.of(op.inputs[1])
        if left is None or right is None:
            return None
        gap = left - right if isinstance(op, std.Less | std.LessOrEqual) else right - left
        return gap if isinstance(op, std.Less | std.Greater) else gap - LinearForm(1)

    def is_inside(self, value: ir.Value) -> bool:
        """Whether a value belongs to the loop's body."""
        producer = value.producer()
        return self.body is not None and (value.graph if producer is None else producer.graph) is self.body

    def _computed(self, value: ir.Value) -> LinearForm | None:
        match self.facts.maker(value):
            case std.Identity() | std.Unsqueeze() | std.Squeeze() | std.Reshape() | std.Cast() as op:
                return self.of(op.inputs[0])
            case std.Neg() as op:
                found = self.of(op.inputs[0])
                return None if found is None else found.times(-1)
            case std.Add() | std.Sub() | std.Mul() as op:
                left, right = self.of(op.inputs[0]), self.of(op.inputs[1])
                return None if left is None or right is None else _combined(op, left, right)
            case std.Min() | std.Max() | std.Where() as op:
                return self.of(self.choose(op, self))
        return None

    def _outer(self, value: ir.Value) -> LinearForm | None:
        """A scalar that is the same for the whole loop."""
        entries = self.facts.entries(value)
        if entries is None or len(entries) != 1:
            return None
        (entry,) = entries
        if isinstance(entry, int):
            return LinearForm(entry)
        self.sources.setdefault(entry, value)
        return LinearForm(0, {entry: 1})


def _combined(op: std.Standard, left: LinearForm, right: LinearForm) -> LinearForm | None:
    if isinstance(op, std.Add):
        return left + right
    if isinstance(op, std.Sub):
        return left - right
    if left.known is not None:
        return right.times(left.known)
    return None if right.known is None else left.times(right.known)


def is_size(term: Term) -> bool:
    """Whether a term is a size, which is never negative and small; an entry of a tensor may be anything."""
    return not isinstance(term, UnknownEntry | ir.Value)


def least(form: LinearForm, bounds: Mapping[Term, int]) -> int | None:
    """What a sum is at least, `None` when nothing is known.

    Args:
        form: the sum.
        bounds: what some of its terms are at least; sizes are at least 0.
    """
    found = form.number
    for term, multiple in form.terms.items():
        bound = bounds.get(term, 0 if is_size(term) else None)
        if bound is None or multiple < 0:
            return None
        found += multiple * bound
    return found
