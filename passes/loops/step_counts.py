"""How many steps loops in Python have: how sizes of inputs go by it, and which steps are others.

All of it is told by running a module, whose calls are counted; nothing here knows of a model.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.records import lengths as records
from lstm_lower.records.lengths import Law, Place

# Steps that are traced: four that are rolled up (`LoopRerolling`), and others at either end; and where a loop of so few
# is another one than that of one more, so that more of them are first and last ones.
STEPS, MORE_STEPS = 6, 8


# What is called, and the line of code that does.
Call = tuple[Any, str]


@dataclasses.dataclass(frozen=True)
class Length:
    """A number of steps.

    Attributes:
        laws: inputs and axes whose sizes go by it -> how.
        example: how many there are in the example.
        steps: how many there are in the model that all others are compared with.
        line: a line of the module's code that runs once a step.
        most: how many steps are alike, and the line that makes later ones others; `None` where all are.
    """

    laws: Mapping[Place, Law]
    example: int
    steps: int
    line: str
    most: tuple[int, str] | None = None

    @property
    def takes_rests(self) -> bool:
        """Whether sizes between whole chunks have it, too."""
        return any(law.rest for law in self.laws.values())

    @property
    def place(self) -> Place:
        """The first of its axes, which tells it from others."""
        return next(iter(self.laws))

    def may_end(self, steps: int) -> bool:
        """Whether it may be open up to so many steps: one of whole chunks is tried before."""
        return self.most is None and steps >= self.example and not (self.takes_rests and self.steps < MORE_STEPS)

    @property
    def given(self) -> list[Place]:
        """Axes whose sizes are numbers in a trace, as they follow from how many steps it has."""
        return [place for place, law in self.laws.items() if law.times is None and not law.rest]

    def sizes(self, steps: int) -> dict[Place, int]:
        """The sizes of the axes for so many steps, those of others being the example's."""
        return {place: law.slope * steps + law.offset + law.rest // 2 for place, law in self.laws.items()}

    def of_whole_chunks(self, sizes: Mapping[Place, int]) -> Length:
        """The same of sizes that differ from the example's by whole chunks."""
        laws = {place: Law(law.slope, sizes[place] - law.slope * self.example) for place, law in self.laws.items()}
        return dataclasses.replace(self, laws=laws)

    @property
    def bounds(self) -> dict[Place, tuple[int, str]]:
        """How large axes may be, and why."""
        if self.most is None:
            return {}
        steps, line = self.most
        return {
            place: (law.slope * steps + law.offset + law.rest, line)
            for place, law in self.laws.items()
            if law.times is None
        }

    def recorded(self, least: int) -> records.Length:
        """What a model records of it that takes so many steps at least."""
        return records.Length(records.by_input(self.laws), least)


# How often a line runs at least that is one of a loop.
_REPEATED = 2


def risen(before: Mapping[Call, int], after: Mapping[Call, int]) -> list[Call]:
    """What is called more often than before, and twice or more."""
    return [call for call, count in after.items() if count > max(before.get(call, 0), _REPEATED - 1)]


def are_even(calls: Iterable[Call], counts: Sequence[Mapping[Call, int]], further: int) -> list[bool]:
    """Whether what is called grows by as much with each step: how often it is before one, behind it, and so many on."""
    each = ([ran.get(call, 0) for ran in counts] for call in calls)
    return [last - first == further * (second - first) for first, second, last in each]


def likely(counts: Collection[int], sizes: Collection[int]) -> Iterator[tuple[int, dict[int, int]]]:
    """Numbers of steps that there may be, the likeliest first, with sizes and how much of them comes with each step.

    Args:
        counts: how often lines run.
        sizes: those of the example.
    """
    # Small steps first: of some modules several of them make another one, too.
    each = counts, {count + 1 for count in counts}, {*sizes} if counts else ()
    numbers = [steps for some in each for steps in sorted(some, reverse=True) if steps >= _REPEATED]
    # Sizes that are one off, or by a part of a step, are so by chance more often than multiples.
    for steps, within in itertools.product(numbers, (1, math.inf)):
        slopes = {size: _slope(size, steps) for size in sizes if size % steps < within}
        yield steps, {size: slope for size, slope in slopes.items() if slope}


def _slope(size: int, steps: int) -> int:
    """How much of a size comes with each of some steps, if hardly anything is left or one is missing; 0 else."""
    slope, rest = divmod(size, steps)
    return slope if rest < max(slope, 2) else int(size == steps - 1)


# Axes with their sizes -> how often what is called.
Ran = Callable[[Mapping[Place, int]], Mapping[Call, int]]


def with_rest(length: Length, sizes: Mapping[Place, int], calls: Sequence[Call], ran: Ran) -> Length:
    """A length that sizes between whole chunks have, too, where as much is called for them as for whole ones.

    Args:
        length: of sizes that differ from the example's by whole chunks.
        sizes: the example's.
        calls: what is called once a step.
        ran: how often what is called for other sizes.
    """
    (place, law), *_ = length.laws.items()
    if law.slope == 1 or {*length.laws.values()} != {law} or law.times is not None:
        return length
    size, slope, counts = sizes[place], law.slope, _counts(length.laws, sizes[place], calls, ran)
    if not all(counts(further) in (counts(0), counts(slope)) for further in (1, slope - 1)):
        return length
    stop = size + _change(counts, 0, slope)
    between = Law(slope, -(-stop % slope), rest=slope - 1)
    laws, example = dict.fromkeys(length.laws, between), (size - between.offset) // slope
    return dataclasses.replace(length, laws=laws, example=example)


def growth(places: Collection[Place], size: int, calls: Sequence[Call], ran: Ran) -> int:
    """How much of a size comes with a step, by where two more of them begin; 0 where that is nowhere near.

    Args:
        places: axes of one size.
        size: that of the example.
        calls: what is called once a step.
        ran: how often what is called for other sizes.
    """
    counts = _counts(places, size, calls, ran)
    if counts(size) <= counts(0):
        return 0
    first = _change(counts, 0, size)
    return _change(counts, first, first + size) - first


def _counts(places: Collection[Place], size: int, calls: Sequence[Call], ran: Ran) -> Callable[[int], list[int]]:
    """How often what is called where axes of a size are larger by a number."""

    @functools.cache
    def counts(further: int) -> list[int]:
        each = ran(dict.fromkeys(places, size + further))
        return [each.get(call, 0) for call in calls]

    return counts


def _change(counts: Callable[[int], list[int]], start: int, stop: int) -> int:
    """The first number behind one at which something else is counted, up to another number."""
    return bisect.bisect_left(range(stop), x=True, lo=start + 1, key=lambda further: counts(further) > counts(start))


def open_in_trace(
    lengths: Sequence[Length], traced: Sequence[Length], places: Collection[Place], sizes: Mapping[Place, int]
) -> list[Length]:
    """Lengths without those of axes that a trace has closed; of chunks there are whole ones still.

    Args:
        lengths: all of them.
        traced: those that the trace is of.
        places: axes that are open in it.
        sizes: the example's.
    """
    closed = [each for each in traced if not all(place in places for place in each.laws)]
    whole = [each.of_whole_chunks(sizes) for each in closed if each.takes_rests]
    return [*(each for each in lengths if each not in closed), *whole]


def products(lengths: Sequence[Length], longer: Length | None = None) -> list[tuple[Place, int, Place]]:
    """Axes of one example whose sizes are numbers times those of others: axis, number and other axis.

    Args:
        lengths: how many steps there are.
        longer: one of these of which there is a step more.
    """
    return [
        (place, length.steps + (length == longer), law.times)
        for length in lengths
        for place, law in length.laws.items()
        if law.times is not None
    ]


# What is called -> the numbers that each call is handed.
Calls = Mapping[Call, Sequence[Sequence[float]]]


def uneven(ran: Callable[[int], tuple[Calls, Any]], few: int, far: int) -> Iterator[tuple[int, str]]:
    """Numbers of steps that are the least for which a line does not go on to run as it begins, and the line.

    Where states forget what was, results far behind do not show a step in between that is another one.

    Args:
        ran: what is called in so many steps, and what comes of it.
        few: a number of steps.
        far: a large one.
    """

    def is_odd(call: Call, steps: int) -> bool:
        first, second, last = (ran(each)[0].get(call, ()) for each in (few, few + 1, steps))
        a_step = len(second) - len(first)
        if len(last) - len(first) != a_step * (steps - few):
            return True
        if a_step < 1:
            # Numbers of as many calls as before go by how many steps there are.
            return not _are_even([[*itertools.chain(*each)] for each in (first, second, last)], (few, few + 1, steps))
        # A line may call a function several times in a step.
        even, still = (all(_are_even(each[place::a_step]) for place in range(a_step)) for each in (first, last))
        return even and not still

    if far < few + 2:
        return
    for call in dict.fromkeys(call for steps in (few, few + 1, far) for call in ran(steps)[0]):
        if is_odd(call, far):
            yield bisect.bisect_left(range(far), x=True, lo=few + 2, key=functools.partial(is_odd, call)), call[1]


def _are_even(numbers: Sequence[Sequence[float]], places: Sequence[int] | None = None) -> bool:
    """Whether numbers grow by the same from each call, or place, to the next."""
    if len({len(each) for each in numbers}) > 1:
        return False
    array = np.nan_to_num(np.array(numbers, np.float64), posinf=0, neginf=0)
    slopes = np.diff(array, axis=0).T / np.diff(range(len(numbers)) if places is None or not numbers else places)
    return bool(np.allclose(np.diff(slopes, axis=-1), 0, atol=1e-9 * np.abs(array).max(initial=1)))
