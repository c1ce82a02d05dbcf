"""Reassociation: sums and products are regrouped so that factors and terms that can leave the loop meet.

Precondition: any Scan. Every carried value made by Add, Sub, Mul or Neg is seen as a linear form: a sum of carried
*atoms*, each times factors that need no carried state, plus terms that need none. Factors of one atom are multiplied
with each other first, and equal atoms are taken together: `((dh*co)*o)*(1-o)` is `dh * (co*o*(1-o))`, and `a*x + b*x`
is `(a+b)*x`. The products and sums of factors need no carried state, so code motion takes them out. A number that is
added to one part of a sum behind a Split, as a forget gate's bias, is added before it to a term that needs no state.

Postcondition: fewer carried sums and products than before, or no change. Regrouping rounds differently.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach, lone_reader
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass

RING = (std.Add, std.Sub, std.Mul, std.Neg)


@dataclasses.dataclass(frozen=True)
class Term:
    """A part of a sum: an atom times factors, or factors alone.

    Attributes:
        negative: whether it is subtracted.
        factors: values that need no carried state.
        atom: a carried value, `None` for a term that needs none.
        via: a scaled atom that the body computes anyway, its sign, and the factors that it lacks to be this term; using
            it may be cheaper than scaling the atom anew.
    """

    factors: tuple[ir.Value, ...]
    atom: ir.Value | None
    negative: bool = False
    via: tuple[ir.Value, bool, tuple[ir.Value, ...]] | None = None

    def scaled(self, factor: ir.Value) -> Term:
        """This term times a factor."""
        via = None if self.via is None else (self.via[0], self.via[1], (*self.via[2], factor))
        return Term((*self.factors, factor), self.atom, self.negative, via)

    def negated(self) -> Term:
        """This term with the other sign."""
        via = None if self.via is None else (self.via[0], not self.via[1], self.via[2])
        return Term(self.factors, self.atom, not self.negative, via)

    @property
    def is_free(self) -> bool:
        """Whether using the term needs no product in the loop."""
        return not self.factors


class Reassociation(LoopPass):
    """Regroups sums and products of one loop's body."""

    def rewrite(self, loop: Loop) -> bool:
        """Regroups where that leaves fewer carried sums and products."""
        modified = _adds_before_splits(loop) + _regroups(loop) > 0
        if modified:
            loop.commit()
        return modified


def _regroups(loop: Loop) -> bool:
    dependence = Dependence(loop)
    ring = [node for node in dependence.order if _is_ring(dependence, node)]
    if len(ring) < 2:
        return False
    forms = _Forms(loop, dependence)
    plan = forms.plan()
    before = sum(1 for node in ring if forms.is_live(node))
    after = sum(_cost(terms) for terms in plan.values())
    if after >= before:
        return False
    _Writer(loop, dependence, plan).write()
    return True


def _adds_before_splits(loop: Loop) -> bool:
    """Adds numbers that parts of sums are increased by to a term of the sum that is the same at every step."""
    dependence = Dependence(loop)
    splits = [split for node in dependence.order if (split := std.Split.of(node, loop.facts)) is not None]
    return sum([_adds_before(loop, dependence, split) for split in splits]) > 0


def _adds_before(loop: Loop, dependence: Dependence, split: std.Split) -> bool:
    shape, dtype, sizes, axis = split.shape(), split.dtype(), split.sizes, split.axis
    place = _invariant_term(dependence, split)
    increased = [_increased(loop, part) for part in split.node.outputs]
    if place is None or shape is None or sizes is None or axis is None or not any(increased):
        return False
    if dtype is None or not dtype.is_floating_point():
        return False
    numbers = [0.0 if found is None else found[1] for found in increased]
    row = np.repeat(numbers, sizes).reshape(-1, *[1] * (len(shape) - 1 - axis))
    total, position = place
    e = loop.inside(before=total)
    total.replace_input_with(position, e.op(std.Add, total.inputs[position], e.constant(row, dtype)))
    for part, found in zip(split.node.outputs, increased, strict=True):
        if found is not None:
            loop.substitute(found[0].outputs[0], part)
            detach(found[0])
    return True


def _invariant_term(dependence: Dependence, split: std.Split) -> tuple[ir.Node, int] | None:
    """The sum, and the place in it, of a term that is the same at every step among those that only a Split reads."""
    facts = split.facts
    waiting: list[ir.Value | None] = [split.data]
    while waiting:
        value = waiting.pop()
        total = facts.maker(value)
        if not isinstance(total, std.Add) or lone_reader(total.output) is None:
            continue
        if not facts.same_shape(total.output, split.data):
            continue
        for position, term in enumerate(total.inputs):
            if dependence.level(term) == Level.INVARIANT:
                return total.node, position
        waiting += total.inputs
    return None


def _increased(loop: Loop, part: ir.Value) -> tuple[ir.Node, float] | None:
    """The sum of a part and a number, and the number, where nothing else reads the part."""
    reader = lone_reader(part)
    total = std.Add.of(reader, loop.facts)
    if reader is None or total is None or not loop.facts.same_shape(part, total.output):
        return None
    (other,) = (value for value in total.inputs if value is not part)
    number = loop.facts.uniform(other)
    return None if number is None else (reader, number)


def _is_ring(dependence: Dependence, node: ir.Node) -> bool:
    facts = dependence.loop.facts
    if dependence.node_level(node) != Level.CARRIED or not isinstance(facts.view(node), RING):
        return False
    dtype = facts.dtype(node.outputs[0])
    return dtype is not None and (dtype.is_floating_point() or dtype.is_signed())


class _Forms:
    """Linear forms of the carried values of a body."""

    def __init__(self, loop: Loop, dependence: Dependence) -> None:
        self.loop = loop
        self.dependence = dependence
        self._results = set(loop.results())
        self._live = dependence.needed_by(loop.results())
        self._forms: dict[ir.Value, list[Term]] = {}
        for node in dependence.order:
            if _is_ring(dependence, node):
                self._forms[node.outputs[0]] = self._of_node(node)

    def is_live(self, node: ir.Node) -> bool:
        """Whether a node serves a result of the body."""
        return node in self._live

    def plan(self) -> dict[ir.Value, list[Term]]:
        """The terms of every ring value that the body still needs to make."""
        wanted: list[ir.Value] = [value for value in self._results if value in self._forms]
        for node in self.dependence.order:
            if node not in self._live:
                continue
            if not _is_ring(self.dependence, node) or self._is_atom(node.outputs[0]):
                wanted += [value for value in self.dependence.operands(node) if value in self._forms]
        plan: dict[ir.Value, list[Term]] = {}
        while wanted:
            value = wanted.pop()
            if value in plan or value not in self._forms or self._is_atom(value):
                continue
            plan[value] = self._chosen(value)
            wanted += [term.atom for term in plan[value] if term.atom is not None]
        for value, terms in self._forms.items():
            if self._is_atom(value) and value.producer() in self._live:
                plan.setdefault(value, terms)
        return plan

    def _is_atom(self, value: ir.Value) -> bool:
        terms = self._forms[value]
        return len(terms) == 1 and terms[0].atom is value

    def _of_node(self, node: ir.Node) -> list[Term]:
        output = node.outputs[0]
        inputs = [value for value in node.inputs if value is not None]
        carried = [self.dependence.level(value) == Level.CARRIED for value in inputs]
        if std.Neg.matches(node):
            return [term.negated() for term in self._of(inputs[0], keep_sum=False)]
        if std.Mul.matches(node):
            if all(carried):
                return [Term((), output)]
            value, factor = inputs if carried[0] else inputs[::-1]
            (term,) = self._single(value)
            return [term.scaled(factor)]
        terms: list[Term] = []
        for position, value in enumerate(inputs):
            part = self._of(value, keep_sum=False) if carried[position] else [Term((value,), None)]
            terms += [term.negated() for term in part] if std.Sub.matches(node) and position else part
        return terms

    def _of(self, value: ir.Value, *, keep_sum: bool) -> list[Term]:
        """The terms of an operand: those of a sum only where nothing else reads it."""
        terms = self._forms.get(value)
        if terms is None:
            return [Term((), value)]
        alone = len(self.dependence.readers(value)) == 1 and len(value.uses()) == 1 and value not in self._results
        if len(terms) == 1 and terms[0].atom is not None:
            if alone or terms[0].atom is value:
                return terms
            (term,) = terms
            return [Term(term.factors, term.atom, term.negative, (value, False, ()))]
        if keep_sum or not alone:
            return [Term((), value)]
        return terms

    def _single(self, value: ir.Value) -> list[Term]:
        terms = self._of(value, keep_sum=True)
        return terms if len(terms) == 1 and terms[0].atom is not None else [Term((), value)]

    def _chosen(self, value: ir.Value) -> list[Term]:
        """A value's terms, taking scaled atoms that exist anyway where that is cheaper than scaling anew."""
        terms = self._forms[value]
        atoms = [term.atom for term in terms]
        chosen: list[Term] = []
        for term in terms:
            lonely = term.atom is not None and atoms.count(term.atom) == 1
            if term.via is not None and lonely and term.via[0] is not value:
                source, negative, factors = term.via
                through = Term(factors, source, negative)
                # What leaves the loop is made in any case, so its factors need not be multiplied again outside.
                if term.factors and (not factors or (source in self._results and len(factors) < len(term.factors))):
                    chosen.append(through)
                    continue
            chosen.append(Term(term.factors, term.atom, term.negative))
        return chosen


def _grouped(terms: list[Term]) -> list[tuple[ir.Value | None, list[Term]]]:
    """Terms by atom; those without the first."""
    groups: dict[ir.Value | None, list[Term]] = {}
    for term in terms:
        groups.setdefault(term.atom, []).append(term)
    return sorted(groups.items(), key=lambda group: (group[0] is not None, _needs_product(group[1])))


def _needs_product(group: list[Term]) -> bool:
    return len(group) > 1 or not group[0].is_free


def _cost(terms: list[Term]) -> int:
    """The number of carried sums and products of a form."""
    if len(terms) == 1 and terms[0].atom is not None and terms[0].is_free and not terms[0].negative:
        # An atom that is a product of two carried values.
        return 1
    groups = _grouped(terms)
    products = sum(1 for atom, group in groups if atom is not None and _needs_product(group))
    # A lone atom that is subtracted from nothing costs a negation.
    negation = int(len(groups) == 1 and products == 0 and groups[0][1][0].negative)
    return products + len(groups) - 1 + negation


class _Writer:
    """Writes planned forms into the body."""

    def __init__(self, loop: Loop, dependence: Dependence, plan: dict[ir.Value, list[Term]]) -> None:
        self.loop = loop
        self.dependence = dependence
        self.plan = plan
        # Forms name the atoms that they were found with, and many begin with the same factors.
        self._now: dict[ir.Value, ir.Value] = {}
        self._products: dict[tuple[ir.Value, ir.Value], ir.Value] = {}

    def write(self) -> None:
        """Replaces every planned value."""
        for node in self.dependence.order:
            value = node.outputs[0] if node.outputs else None
            if value is None or value not in self.plan:
                continue
            terms = self.plan[value]
            if len(terms) == 1 and terms[0].atom is value:
                continue
            e = self.loop.inside(before=node)
            new, shape = self._sum(e, terms), e.facts.shape(value)
            new = new if shape is None or new.producer() is None else e.set_shape(new, shape)
            self.loop.substitute(value, new)
            self._now[value] = new

    def _sum(self, e: Builder, terms: list[Term]) -> ir.Value:
        result: ir.Value | None = None
        for atom, group in _grouped(terms):
            value, negative = self._term(e, None if atom is None else self._now.get(atom, atom), group)
            if result is None:
                result = e.op(std.Neg, value) if negative else value
            else:
                result = e.op(std.Sub if negative else std.Add, result, value)
        assert result is not None
        return result

    def _term(self, e: Builder, atom: ir.Value | None, group: list[Term]) -> tuple[ir.Value, bool]:
        """One atom's part of a sum, and whether it is to be subtracted."""
        if atom is not None and not _needs_product(group):
            return atom, group[0].negative
        if len(group) == 1:
            factor, negative = self._factor(e, group[0], atom), group[0].negative
        else:
            group = sorted(group, key=lambda term: term.negative)
            factor, negative = self._factor(e, group[0], atom), group[0].negative
            for term in group[1:]:
                factor = e.op(std.Sub if term.negative != negative else std.Add, factor, self._factor(e, term, atom))
        return (factor if atom is None else e.op(std.Mul, atom, factor)), negative

    def _factor(self, e: Builder, term: Term, atom: ir.Value | None) -> ir.Value:
        if not term.factors:
            assert atom is not None
            dtype = e.facts.dtype(atom)
            assert dtype is not None
            return e.constant(1, dtype).value
        # What is the same at every step first, so that it becomes one value outside.
        ordered = sorted(term.factors, key=self.dependence.level)
        return functools.reduce(functools.partial(self._product, e), ordered)

    def _product(self, e: Builder, left: ir.Value, right: ir.Value) -> ir.Value:
        if (left, right) not in self._products:
            self._products[left, right] = e.op(std.Mul, left, right)
        return self._products[left, right]
