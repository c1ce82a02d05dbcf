"""Trip count: a Loop that ends when a counter reaches a limit gets its number of steps beforehand.

Exporters of languages with `while` compute the condition anew in every step: `i < n`, `i < n and j < m`.

Precondition: a Loop whose condition is one comparison, or several that have to hold all, of integer scalars that are
sums of counters and of what does not change: a counter is a carried integer to which every step adds the same number.
Counters stay within their integer type. Whether there is a first step is known, or the same comparisons of the
counters' first values tell, or a scalar of the model does.

Postcondition: the Loop has a trip count, at most the one that it had, and its condition always holds.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.loops.views.hoisting import hoist_sizes
from lstm_lower.passes.loops.views.linear import LinearForm
from lstm_lower.passes.loops.views.linear_code import fits, scalar, steps_below, written
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.while_loop import OnLoops, WhileLoop


class Uncountable(Exception):  # noqa: N818 (a verdict, not an error)
    """The number of steps is not known beforehand; the message says why."""


@dataclasses.dataclass(frozen=True)
class Way:
    """How long a test holds: a counter goes a distance in strides of some length.

    Attributes:
        distance: from where the first step begins; nothing to go where it is not above 0.
        stride: how much a step goes, above 0.
    """

    distance: LinearForm
    stride: int


class TripCount(OnLoops, LoopPass):
    """Counts the steps of Loops before they run."""

    def rewrite(self, loop: Loop) -> bool:
        """Counts the steps of one Loop."""
        assert isinstance(loop, WhileLoop)
        modified = hoist_sizes(loop)
        if loop.node.graph is None or loop.view.is_counted:
            return modified
        before = loop.before("trips")
        try:
            LoopCount(loop).tell(before)
            loop.commit()
            modified = True
        except Uncountable as reason:
            self.refuse(loop.node, str(reason))
        before.discard_unread()
        return modified


class LoopCount:
    """One Loop's number of steps, as its condition tells it.

    Attributes:
        loop: the Loop.
        counting: reads its scalars; knows those that the number is made of.
        ways: how long each test of the condition holds.
    """

    def __init__(self, loop: WhileLoop) -> None:
        """Reads the condition.

        Raises:
            Uncountable: it does not tell the number before the run.
        """
        self.loop = loop
        self.evolution = loop.evolution()
        self.counting = self.evolution.counting
        tests = self.counting.tests(loop.again, loop.going)
        if tests is None:
            raise Uncountable("its condition is more than comparisons of counters with what stays the same")
        self.ways = [way for test in tests if (way := self._way(test)) is not None]

    def tell(self, before: Builder) -> None:
        """Gives the Loop its trip count in the view, emitted before it; nothing else ends it then.

        Raises:
            Uncountable: it cannot be.
        """
        trips = self._steps(before)
        if not self.loop.run_always():
            raise Uncountable("its body reads a condition of unknown shape")
        self.loop.trips = trips

    def _steps(self, e: Builder) -> ir.Value:
        """Emits the number of steps."""
        loop, ways = self.loop, self.ways
        if not loop.view.starts and not self._tested_first(ways):
            # Something else tells whether there is a first step; the tests tell of the steps behind it.
            assert loop.start is not None
            total = self._least(e, at_least=1)
            return e.op(std.Where, e.op(std.Reshape, loop.start, e.ints()), total, e.constant(0))
        tested = not loop.view.starts or all(_holds(LinearForm(0) - way.distance) for way in ways)
        return self._least(e, at_least=0 if tested else 1)

    def _way(self, test: LinearForm) -> Way | None:
        """How long a test of the body holds, which is negative where it does; `None` for ever.

        The body tells of the step behind it: at the first step it would have told one step earlier.
        """
        recurrence = self.evolution.of_sum(test)
        if recurrence is None:
            name = next(x.name for x in test.terms if isinstance(x, ir.Value) and self.evolution.of(x) is None)
            raise Uncountable(f"the condition reads '{name}', of which no step adds the same number")
        stride, value = recurrence.step, recurrence.first
        if stride <= 0 and _holds(value):
            return None
        if stride <= 0:
            raise Uncountable("the condition compares what does not go towards its limit")
        return Way(LinearForm(stride) - value, stride)

    def _tested_first(self, ways: list[Way]) -> bool:
        """Whether the condition of the first step is that of the others, one step earlier."""
        tests = self.counting.tests(self.loop.start)
        expected = [LinearForm(0) - way.distance for way in ways]
        return tests is not None and all(
            _holds(test) or test in others for these, others in ((tests, expected), (expected, tests)) for test in these
        )

    def _least(self, e: Builder, *, at_least: int) -> ir.Value:
        """Emits the least number of steps that one of the ways or the trip count allows.

        Args:
            e: emits; a distance less than nothing counts as nothing.
            at_least: the number of steps that no test is asked for.
        """
        trips = self.loop.trips
        given = None if trips is None or at_least else self.counting.of(trips)
        counts = []
        for way in _shortest([*self.ways, *([] if given is None else [Way(given, 1)])]):
            if not fits(way.distance, self.counting.sources, e.facts):
                raise Uncountable("the distance that a counter goes might be beyond int64")
            counts.append(steps_below(e, written(e, way.distance, self.counting.sources), way.stride))
        if at_least:
            counts = [e.op(std.Max, count, e.constant(at_least)) for count in counts]
        if given is None and trips is not None:
            counts.append(scalar(e, trips))
        if not counts:
            raise Uncountable("its condition never ends it")
        result = counts[0]
        for count in counts[1:]:
            result = e.op(std.Min, result, count)
        return result


def _shortest(ways: list[Way]) -> list[Way]:
    """Those of which none is known to be the shorter one."""
    kept: list[Way] = []
    for way in ways:
        gaps = [(way.distance - other.distance).known for other in kept if other.stride == way.stride]
        if any(gap is not None and gap >= 0 for gap in gaps):
            continue
        kept = [x for x in kept if x.stride != way.stride or not _holds(way.distance - x.distance)]
        kept.append(way)
    return kept


def _holds(test: LinearForm) -> bool:
    """Whether a sum is known to be negative."""
    return test.known is not None and test.known < 0
