"""Scalar evolution: how the integer scalars of a loop's body change from step to step.

A counter, and a sum of counters and of what stays the same, is `first + step * iteration`: what LLVM calls an add
recurrence (`{first, +, step}`). The importer of TensorFlow's loops and the loop passes ask for them here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Dim
from lstm_lower.passes.loops.views.linear import INDICES, Counting, LinearForm, Term, least


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """An integer scalar that grows by the same number in every step.

    Attributes:
        first: its value in the first step, a sum of what is known before the loop.
        step: by how much it grows.
    """

    first: LinearForm
    step: int

    def at(self, iteration: LinearForm) -> LinearForm:
        """Its value in a step, given by number."""
        return self.first + iteration.times(self.step)


class ScalarEvolution:
    """The recurrences of one loop's body.

    Attributes:
        counting: reads scalars of the body as sums of the iteration's number, counters, and what stays the same.
    """

    def __init__(
        self,
        facts: Facts,
        body: ir.Graph,
        iteration: ir.Value,
        carried: Mapping[ir.Value, tuple[ir.Value, ir.Value]],
        steps: Dim | None = None,
    ) -> None:
        """Prepares.

        Args:
            facts: what is known of the model's values.
            body: the loop's body.
            iteration: the number of the step, a value of the body.
            carried: parameter of the body -> its value before the loop, and its next value.
            steps: the number of steps, at least one, where it is known before the loop: a `Min`, `Max` or `Where` that
                falls the same way in all of them is read as what it chooses.
        """
        self._iteration = iteration
        self._carried = {x: given for x, given in carried.items() if _is_scalar(x, facts)}
        self._growths: dict[ir.Value, int | None] = {}
        self._steps = (
            LinearForm()
            if steps is None
            else LinearForm(steps)
            if isinstance(steps, int)
            else LinearForm(0, {steps: 1})
        )
        self._bounds: dict[Term, int] = {} if steps is None or isinstance(steps, int) else {steps: 1}
        self.counting = Counting(facts, body, {iteration, *self._carried})
        if steps is not None:
            self.counting.choose = self._chosen

    @classmethod
    def of_loop(cls, loop: std.Loop, facts: Facts) -> ScalarEvolution:
        """Those of a Loop as it stands in the model."""
        body = loop.body
        roles = zip(loop.carried, body.inputs[2:], body.outputs[1:], strict=False)
        carried = {parameter: (before, update) for before, parameter, update in roles if before is not None}
        return cls(facts, body, body.inputs[0], carried)

    def of(self, value: ir.Value) -> Recurrence | None:
        """The recurrence that an integer tensor of one element is; `None` where it is none that is known."""
        form = self.counting.of(value)
        return None if form is None else self.of_sum(form)

    def of_sum(self, form: LinearForm) -> Recurrence | None:
        """The recurrence that a sum of the body's scalars is; `None` where one of these is none."""
        step, first = form.multiple(self._iteration), form.with_term(self._iteration, LinearForm())
        for term, times in form.terms.items():
            if term is self._iteration or not isinstance(term, ir.Value):
                continue
            growth, start = self.growth(term), self.counting.of(self._carried[term][0])
            if growth is None or start is None:
                return None
            step, first = step + times * growth, first.with_term(term, start)
        return Recurrence(first, step)

    def growth(self, parameter: ir.Value) -> int | None:
        """What every step adds to a carried scalar; `None` where it is not the same number, or not known."""
        if parameter not in self._carried:
            return None
        if parameter not in self._growths:
            update = self.counting.of(self._carried[parameter][1])
            self._growths[parameter] = None if update is None else (update - LinearForm(0, {parameter: 1})).known
        return self._growths[parameter]

    def last(self, recurrence: Recurrence) -> LinearForm:
        """The value in the last step, where the number of steps is known."""
        return recurrence.at(self._steps - LinearForm(1))

    def _never_negative(self, form: LinearForm) -> bool:
        recurrence = self.of_sum(form)
        if recurrence is None:
            return False
        bounds = [least(end, self._bounds) for end in (recurrence.first, self.last(recurrence))]
        return all(bound is not None and bound >= 0 for bound in bounds)

    def _chosen(self, op: std.Standard, counting: Counting) -> ir.Value | None:
        """A choice that falls the same way at every step, as the one between counting from the front and the end."""
        if isinstance(op, std.Where):
            test = counting.negative(op.condition)
            if test is None:
                return None
            if self._never_negative(test):
                return op.no
            return op.yes if self._never_negative((test + LinearForm(1)).times(-1)) else None
        forms = [counting.of(value) for value in op.inputs]
        if len(forms) != 2 or forms[0] is None or forms[1] is None:
            return None
        for form, (smaller, larger) in ((forms[1] - forms[0], op.inputs), (forms[0] - forms[1], op.inputs[::-1])):
            if self._never_negative(form):
                return smaller if isinstance(op, std.Min) else larger
        return None


def _is_scalar(value: ir.Value, facts: Facts) -> bool:
    shape = facts.shape(value)
    return facts.dtype(value) in INDICES and shape is not None and all(dim == 1 for dim in shape)
