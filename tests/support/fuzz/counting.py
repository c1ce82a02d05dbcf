"""Ideas: loops as languages with `while` have them: counters in place of trip counts, stacks, and what pops them."""

from __future__ import annotations

import dataclasses

import numpy as np

from lstm_lower.graph.standard import AT_LEAST_ONE, STEPS
from tests.support.fuzz.control import body_of, entering, graph_of, grow_body, next_state, own, results_of
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value

MIRRORED = {"Less": "Greater", "GreaterOrEqual": "LessOrEqual"}
OPPOSITE = {"Less": "GreaterOrEqual", "GreaterOrEqual": "Less"}


@dataclasses.dataclass
class Count:
    """A counter, its steps, and the comparison that ends the loop."""

    first: Value
    step: int
    test: str
    limit: Value

    def goes_on(self, s: Scope, counter: Value) -> Value:
        """Emits the comparison, in one of the ways to write it."""
        match s.random.choice(["plain", "plain", "mirrored", "not"]):
            case "mirrored":
                return s.one(MIRRORED[self.test], self.limit, counter)
            case "not":
                return s.one("Not", s.one(OPPOSITE[self.test], counter, self.limit))
        return s.one(self.test, counter, self.limit)


def _length(s: Scope, sequence: Value, dtype: str) -> Value:
    """The size of a sequence's first axis."""
    size = s.one("Gather", s.one("Shape", sequence), s.constant(0, np.int64), axis=0)
    if s.chance(0.2):  # min(T, max(1, T)), which is T
        size = s.one("Min", size, s.one("Max", s.constant(1, np.int64), size))
    return size if dtype == "int64" else s.one("Cast", size, to=6)


def _all(s: Scope, tests: list[Value]) -> Value:
    found = tests[0]
    for test in tests[1:]:
        found = s.one("And", found, test)
    return found


@idea(5)
def counted(s: Scope) -> list[Value]:
    """A Loop that ends when a counter reaches a limit and reads a sequence at the counter; perhaps another one back."""
    sequence = s.pick(lambda v: v.rank > 0 and v.shape[0] <= 4)
    dtype = s.random.choice(["int32", "int64"])
    length = _length(s, sequence, dtype)
    zero, one = s.constant(0, dtype), s.constant(1, dtype)
    up = s.chance(0.6)
    count = (
        Count(zero, s.random.choice([1, 1, 1, 2]), "Less", length) if up else Count(length, -1, "GreaterOrEqual", one)
    )
    # In every set of feeds.
    some = any(sequence is s.root.values.get(entry.name) for entry in s.growth.inputs) and sequence.shape[0] > 0
    marked = some and s.chance(0.7)
    s.growth.never_empty |= marked
    made, stacked = _while(s, count, sequence, marked=marked, limited=not marked and s.chance(0.3))
    if not stacked or s.chance(0.4):
        return made
    # What one loop has pushed in every step another one pops.
    back = Count(made[0], -1, "GreaterOrEqual", one) if up and count.step == 1 else count
    pushed = s.random.choice(stacked)
    if pushed.rank == 0 or not pushed.shape[0]:
        return made
    return made + _while(s, back, pushed, marked=marked and back is not count, limited=False)[0]


def _while(s: Scope, count: Count, sequence: Value, *, marked: bool, limited: bool) -> tuple[list[Value], list[Value]]:
    """The Loop's results, the counter's first; and which of them are sequences."""
    body, dtype = body_of(s), count.first.dtype
    beside = [s.pick(lambda v: v.is_float or s.chance(0.3)) for _ in range(s.random.choice([0, 1, 1, 2]))]
    other = s.constant(s.random.randint(-2, 2), s.random.choice(["int32", "int64"]))
    first = [count.first, other, *beside]
    start = [count.goes_on(s, count.first)]
    limit = s.constant(s.random.randint(0, 6), other.dtype) if limited else None
    if limit is not None:
        start.append(s.one("Less", other, limit))
    goes = _all(s, start)
    step, going = entering(body, np.array(0, np.int64)), entering(body, np.array(1, bool))
    inputs = [entering(body, value.sample) for value in first]
    if not np.all(goes.sample):
        # Bodies grow with samples of a step, and here is none.
        raise Refused("no step")
    at = inputs[0] if count.step > 0 else body.one("Sub", inputs[0], body.constant(1, dtype))
    if s.chance(0.3) and abs(count.step) == 1:
        size = body.one("Gather", body.one("Shape", sequence), body.constant(0, np.int64), axis=0)
        at = body.one("Sub", body.one("Sub", size, body.constant(1, np.int64)), step)
    body.one("Gather", sequence, at, axis=0)
    counters = [body.one("Add", inputs[0], body.constant(count.step, dtype))]
    counters.append(body.one("Add", *body.random.sample([inputs[1], body.constant(1, other.dtype)], 2)))
    grow_body(body)
    tests = [count.goes_on(body, counters[0])]
    if limit is not None:
        tests.append(body.one("Less", counters[1], limit))
    again = own(body, _all(body, tests))
    updates = [own(body, value) for value in counters] + [next_state(body, state) for state in inputs[2:]]
    stacked = results_of(body, s.random.randint(0, 2))
    graph = graph_of(body, [step, going, *inputs], [again, *updates, *stacked])
    trips = s.ints(4) if s.chance(0.2) and not marked else None
    made = s.emit("Loop", [trips, goes, *first], len(updates) + len(stacked), body=graph)
    if marked:
        s.nodes[-1].metadata_props.add(key=STEPS, value=AT_LEAST_ONE)
    for value, piece in zip(made[len(updates) :], stacked, strict=True):
        if value.shape[1:] != piece.shape:
            s.drop(value)
    return made, [value for value in made[len(updates) :] if value.name in s.values]
