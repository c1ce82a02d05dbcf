"""Sums of scalars written as nodes, with no integer overflowing on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.views.linear import LinearForm, Term, is_size

LARGEST = int(np.iinfo(np.int64).max)
# Sums of a few sizes, int32 numbers and numbers up to this stay within int64.
SMALL = 1 << 60
LARGEST_MULTIPLE = 1 << 20
MOST_TERMS = 8


def scalar(e: Builder, value: ir.Value) -> ir.Value:
    """An integer of one element as an int64 scalar."""
    value = value if e.facts.dtype(value) == ir.DataType.INT64 else e.op(std.Cast, value, to=int(ir.DataType.INT64))
    return value if e.facts.rank(value) == 0 else e.op(std.Reshape, value, e.ints())


def fits(form: LinearForm, sources: Mapping[Term, ir.Value], facts: Facts) -> bool:
    """Whether no integer overflows where a sum is `written`.

    Args:
        form: the sum.
        sources: a scalar for each term.
        facts: what is known of these.
    """
    multiples = form.terms.values()
    if not multiples:
        return abs(form.number) <= LARGEST
    if _is_term(form):
        return True
    if abs(form.number) > SMALL or len(multiples) > MOST_TERMS or max(map(abs, multiples)) > LARGEST_MULTIPLE:
        return False
    return sorted(form.terms[term] for term in _data(form, sources, facts)) in ([], [1], [-1], [-1, 1])


def written(e: Builder, form: LinearForm, sources: Mapping[Term, ir.Value]) -> ir.Value:
    """An int64 scalar that holds a sum, which `fits`.

    A sum that is beyond 2**60 may come out as another one that is, of the same sign.

    Args:
        e: emits.
        form: the sum.
        sources: a scalar for each term.
    """
    if not form.terms:
        return e.constant(form.number).value
    if _is_term(form):
        return scalar(e, sources[next(iter(form.terms))])
    data = _data(form, sources, e.facts)
    parts = [(scalar(e, sources[t]), k) for t, k in form.terms.items() if t not in data]
    if data:
        difference = _difference(e, [(scalar(e, sources[t]), form.terms[t]) for t in data])
        parts.insert(0, (_within(e, difference, SMALL), 1))
    return _sum(e, parts, form.number)


def _is_term(form: LinearForm) -> bool:
    """Whether a sum is one term alone."""
    return form.number == 0 and [*form.terms.values()] == [1]


def _data(form: LinearForm, sources: Mapping[Term, ir.Value], facts: Facts) -> list[Term]:
    """The terms that may be as large as an int64 can be."""
    return [term for term in form.terms if not is_size(term) and facts.dtype(sources[term]) != ir.DataType.INT32]


def _difference(e: Builder, parts: Sequence[tuple[ir.Value, int]]) -> ir.Value:
    """A number that may be anything, its opposite, or the difference of two, with the nearest integer if it is none."""
    (low, least), (high, most) = min(parts, key=lambda part: part[1]), max(parts, key=lambda part: part[1])
    if least == 1:
        return high
    if most == -1:
        # The least integer has no opposite.
        return e.op(std.Neg, e.op(std.Max, low, e.constant(-LARGEST)))
    return e.op(std.Sub, _surplus(e, high, low), _surplus(e, low, high))


def _surplus(e: Builder, high: ir.Value, low: ir.Value) -> ir.Value:
    """By how much one number is above another, from 0 to the largest integer."""
    most = e.op(std.Add, e.constant(LARGEST), e.op(std.Min, low, e.constant(0)))
    return e.op(std.Sub, e.op(std.Max, e.op(std.Min, high, most), low), low)


def _within(e: Builder, value: ir.Value, limit: int) -> ir.Value:
    return e.op(std.Max, e.op(std.Min, value, e.constant(limit)), e.constant(-limit))


def _sum(e: Builder, parts: Sequence[tuple[ir.Value, int]], number: int) -> ir.Value:
    total: ir.Value | None = None
    for value, multiple in sorted(parts, key=lambda part: -part[1]):
        factor = abs(multiple)
        term = value if factor == 1 else e.op(std.Mul, value, e.constant(factor))
        if total is None:
            total = term if multiple > 0 else e.op(std.Neg, term)
        else:
            total = e.op(std.Add if multiple > 0 else std.Sub, total, term)
    assert total is not None
    return e.op(std.Add, total, e.constant(number)) if number else total


def steps_below(e: Builder, distance: ir.Value, stride: int) -> ir.Value:
    """How many steps of a stride it takes to go a distance; not more than 0 where there is none to go."""
    known = e.facts.constant(distance)
    if known is not None:
        return e.constant(-(-int(known) // stride)).value
    if stride == 1:
        return distance
    whole = e.op(std.Div, distance, e.constant(stride))
    rest = e.op(std.Sub, distance, e.op(std.Mul, whole, e.constant(stride)))
    more = e.op(std.Cast, e.op(std.Greater, rest, e.constant(0)), to=int(ir.DataType.INT64))
    return e.op(std.Add, whole, more)
