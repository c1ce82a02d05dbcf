"""Sizes at which a step is compared with its module, beside those of the example.

PyTorch says which decisions a module's code takes by sizes (`branches`), but not those of its own functions, nor those
that are taken while a trace becomes ONNX. What follows from them shows where the step runs beside the module.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy
from torch import Tensor

from lstm_lower.passes.loops.step_counts import uneven
from lstm_lower.records.lengths import Place
from lstm_lower.torch.axes import Axes
from lstm_lower.torch.branches import axes_of, sizes_of, sizes_to_try
from lstm_lower.torch.export import Traced
from lstm_lower.torch.lengths import Counting
from lstm_lower.torch.modes import Watching
from lstm_lower.torch.trials import RefusedError, Trials, of_fewer, resized

# How many steps show whether later ones are alike, or the most that a module takes: few are traced.
_FAR = 1024
# How much work running it so long may be, in elements of results, and that of an operator in them.
_WORK, _CALL = 1 << 27, 1 << 11
# Of how many elements examples may be that become more than twice as large.
_LARGE = 1 << 20

# Open size -> number.
Sizes = Mapping[Any, int]


@dataclasses.dataclass(frozen=True)
class Size:
    """What an open size is to be.

    Attributes:
        symbol: the open size.
        number: what it is.
        where: what code makes it differ from others.
        end: the number of steps before which none is another one, and why, where the length may end there.
    """

    symbol: Any
    number: int
    where: str = ""
    end: tuple[int, str] | None = None


class OpenSizes:
    """The open sizes of a trace.

    Attributes:
        example: what they are in the example.
        where: where the module's code decides by one first.
    """

    def __init__(self, traced: Traced) -> None:
        self._names, self._tensors = traced.names, traced.tensors
        self._trials = Trials(traced.step, traced.names, traced.tensors)
        self._sizes = sizes_of(traced.program, traced.names)
        self.example: dict[Any, int] = {
            size: self._trials.sizes[place] for place, size in self._sizes.items() if getattr(size, "is_symbol", False)
        }
        steps = {sympy.Symbol(f"steps_{number}"): length for number, length in enumerate(traced.lengths)}
        self.example.update({symbol: length.example for symbol, length in steps.items()})
        for symbol, length in steps.items():
            for place, law in length.laws.items():
                slope = law.slope if law.times is None else self._sizes[law.times]
                size = self._sizes[place] - slope * length.example if law.rest else law.offset
                self._sizes[place] = slope * symbol + size
        # Open size -> the number of steps that it is.
        self.lengths = steps
        self._decided, self._bounds = sizes_to_try(traced.program), traced.bounds
        self.where = {symbol: next(iter(sizes.values()), "") for symbol, sizes in self._decided.items()}

    def decided(self, said: str) -> Axes:
        """Axes by which the module's code decides, with what is said of them."""
        return self.axes(dict.fromkeys(self._decided, said))

    def alone(self) -> Iterator[Size]:
        """Sizes at which code decides otherwise by an open size, or loops take many steps."""
        for symbol, sizes in self._decided.items():
            for size, where in sizes.items():
                yield Size(symbol, size, where)
        for symbol, length in self.lengths.items():
            ran, least = functools.cache(functools.partial(self._ran, symbol)), length.example + 1
            far, _ = length.most or (_FAR, "")
            taken = range(least, far + 1)
            far = far if ran(far)[1] else least - 1 + bisect.bisect_left(taken, x=True, key=lambda x: not ran(x)[1])
            if far < least:
                continue
            for edge, line in sorted(dict(uneven(ran, length.steps, far)).items()):
                end = (edge - 1, f"more steps run {line} otherwise") if length.may_end(edge - 1) else None
                # What a line does may show a few steps later, and be forgotten soon.
                for steps in (edge + 1, edge + length.steps):
                    yield Size(symbol, min(steps, far), f"steps that run {line} otherwise: ", end)
            # What overflows shows nothing.
            finite = (far >> halvings for halvings in range(4) if far >> halvings >= least)
            if steps := next((size for size in finite if not any(bool(x.isnan().any()) for x in ran(size)[1])), 0):
                yield Size(symbol, steps)

    def _ran(self, symbol: Any, steps: int) -> tuple[Mapping[Any, Any], Sequence[Tensor]]:
        """What the module calls in so many steps, and its results; nothing where it refuses them, or works for long."""
        left, inputs = _WORK, self.inputs(self._tensors, {**self.example, symbol: steps})

        def look(x: Tensor) -> None:
            nonlocal left
            left -= _CALL + x.numel()
            if left < 0:
                raise RefusedError

        with contextlib.suppress(RefusedError), Counting() as counting:
            return counting.numbers, self._trials.results(inputs, Watching(look))
        return {}, ()

    def grown(self) -> Iterator[Sizes]:
        """All sizes larger, more than twice, or by a little. Equal ones become unequal first, then stay equal."""
        factors = (2, 1) if sum(tensor.numel() for tensor in self._tensors) <= _LARGE else (1,)
        sizes = [*self.example.values()]
        places = dict.fromkeys([(*range(len(sizes)),), (*map(sizes.index, sizes),)])
        for factor, numbers in itertools.product(factors if sizes else (), places):
            pairs = zip(self.example.items(), numbers, strict=True)
            yield {symbol: factor * size + 1 + number for (symbol, size), number in pairs}

    def inputs(self, tensors: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
        """Inputs of some sizes, or as large as they may be, with values like those of others."""

        def size(place: Place, given: int) -> int:
            value = sympy.sympify(self._sizes[place]).subs(sizes)
            known = int(value) if value.is_Integer else given
            return min(known, self._bounds[place][0]) if place in self._bounds else known

        given = zip(self._names, tensors, strict=False)
        found = [resized(x, [size((name, axis), each) for axis, each in enumerate(x.shape)]) for name, x in given]
        return of_fewer(found, (Fraction(size, self.example[symbol]) for symbol, size in sizes.items()))

    def axes(self, said: Mapping[Any, str]) -> Axes:
        """Input -> axis whose size is made of open ones -> what is said of these."""
        return axes_of(self._sizes, said)
