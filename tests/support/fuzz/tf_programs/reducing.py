"""Makes a failing program small: steps whose results can be fed instead, results and terms that it fails without."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

from tests.support.fuzz.tf_programs.judging import Finding
from tests.support.fuzz.tf_programs.programs import Program, Source


def reduced(made: Program, finding: Finding, judge: Callable[[Program], Finding], *, seconds: float = 60.0) -> Program:
    """The smallest program found in the time given that fails in the same way."""
    end = time.monotonic() + seconds
    best, progress = made, True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in _candidates(best):
            if time.monotonic() > end:
                break
            if judge(candidate).kind == finding.kind:
                best, progress = candidate, True
                break
    return best


def _candidates(made: Program) -> Iterator[Program]:
    """Smaller programs, the smallest first."""
    size = (len(made.steps) + 1) // 2
    while size:
        for start in range(0, len(made.steps), size):
            yield without(made, range(start, min(start + size, len(made.steps))))
        size //= 2
    for change in ({"rule": "none"}, {"twice": False}, {"form": "function"}):
        changed = dataclasses.replace(made, **change)
        if changed != made:
            yield changed
    for number in made.outputs:
        yield swept(dataclasses.replace(made, outputs=tuple(n for n in made.outputs if n != number)))
    for number in made.terms:
        yield swept(dataclasses.replace(made, terms=tuple(n for n in made.terms if n != number)))
    for place, source in enumerate(made.inputs):
        if source.open:
            fixed = dataclasses.replace(source, open=())
            yield dataclasses.replace(made, inputs=(*made.inputs[:place], fixed, *made.inputs[place + 1 :]))


def without(made: Program, places: range) -> Program:
    """The program without some steps, whose results are fed where they are needed."""
    kept = tuple(step for place, step in enumerate(made.steps) if place not in places)
    return swept(dataclasses.replace(made, steps=kept))


def swept(made: Program) -> Program:
    """Without steps and inputs that nothing needs; with inputs for values that nothing makes."""
    wanted = set(made.outputs) | set(made.terms)
    steps = []
    for step in reversed(made.steps):
        if wanted & set(step.results):
            wanted |= set(step.operands)
            steps.append(step)
    there = {number for step in steps for number in step.results} | {s.id for s in (*made.weights, *made.states)}
    inputs = [source for source in made.inputs if source.id in wanted]
    fed = {source.id for source in inputs}
    new = [Source(n, f"v{n}", made.samples[n]) for n in sorted(wanted - there - fed)]
    return dataclasses.replace(made, steps=tuple(reversed(steps)), inputs=(*inputs, *new))
