"""A PyTorch module while it grows: lines of Python that run as they are added, and what they have made."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.fuzz.torch_modules.program import HEADER, Input, Line

# Elements of a tensor, absolute values of its numbers.
MOST_ELEMENTS, LARGEST = 3000, 1e3

Idea = Callable[["Scope"], object]
IDEAS: list[tuple[Idea, float]] = []


class Refused(Exception):  # noqa: N818 (no error: another idea takes its place)
    """An idea does not work out."""


def idea(weight: float = 1.0) -> Callable[[Idea], Idea]:
    """Registers an idea; one of weight 2 is tried twice as often as one of weight 1."""

    def register(function: Idea) -> Idea:
        IDEAS.append((function, weight))
        return function

    return register


class Scope:
    """What has been made so far.

    Attributes:
        random: every choice comes from here.
        inputs: of the module.
        lines: of `forward`.
        values: name -> what it is for the example.
        flags: what is true of the whole module, such as `half`.
    """

    def __init__(self, draw: random.Random) -> None:
        self.random = draw
        self.inputs: list[Input] = []
        self.lines: list[Line] = []
        self.values: dict[str, Tensor] = {}
        self.space: dict[str, Any] = {}
        exec(HEADER, self.space)
        self.space["self"] = nn.Module()
        self._count = 0
        self._made: list[str] = []

    def name(self, letter: str = "v") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def chance(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def choice(self, *options: Any) -> Any:
        return self.random.choice(options)

    def add_input(self, given: Input) -> str:
        self.inputs.append(given)
        self.values[given.name] = eval(given.text, self.space | {"b": 3, "t": 5})
        self.space[given.name] = self.values[given.name]
        return given.name

    def pick(self, test: Callable[[Tensor], bool] = lambda _: True) -> str:
        """A value that passes a test; the newest ones, and those that nothing reads, more often."""
        names = [name for name, value in self.values.items() if test(value)]
        if not names:
            raise Refused
        read = set().union(*(line.reads() for line in self.lines))
        return self.random.choices(
            names, [(1 + place) * (0.2 if name in read else 1) for place, name in enumerate(names)]
        )[0]

    def floats(self, low: int = 0, high: int = 9, test: Callable[[Tensor], bool] = lambda _: True) -> str:
        """A value of the default dtype, with a rank between two."""
        return self.pick(lambda x: x.dtype == torch.float32 and low <= x.dim() <= high and test(x))

    def like(self, name: str) -> str:
        """A value that broadcasts with another one."""
        shape = self.values[name].shape

        def fits(x: Tensor) -> bool:
            try:
                return torch.broadcast_shapes(x.shape, shape) == shape
            except RuntimeError:
                return False

        return self.floats(test=fits)

    def axis(self, name: str, *, negative: bool = True) -> int:
        rank = self.values[name].dim()
        if not rank:
            raise Refused
        return self.random.randrange(-rank if negative else 0, rank)

    def size(self, name: str, axis: int) -> int:
        return self.values[name].shape[axis]

    def layer(self, text: str, letter: str = "m") -> str:
        """Something in `__init__` (`nn.Linear(3, 4)`); how `forward` calls it."""
        held = f"self.{self.name(letter)}"
        self.setup(f"{held} = {text}")
        return held

    def setup(self, text: str) -> None:
        """A line of `__init__`."""
        self._ran(text)
        self._made.append(text)

    def put(self, expression: str, letter: str = "v") -> str:
        """A line that makes one tensor."""
        name = self.name(letter)
        self.run(f"{name} = {expression}", name)
        return name

    def puts(self, count: int, expression: str) -> list[str]:
        """A line that makes several tensors."""
        names = [self.name() for _ in range(count)]
        self.run(f"{', '.join(names)}{',' if count == 1 else ''} = {expression}", *names)
        return names

    def run(self, text: str, *makes: str) -> None:
        """Adds lines of `forward`, if they run and what they make is fit to go on with."""
        self._ran(text)
        found = {name: self.space[name] for name in makes}
        for value in found.values():
            if not isinstance(value, Tensor) or not _is_fit(value):
                raise Refused
        self.values.update(found)
        self.lines.append(Line(text, list(makes), self._made))
        self._made = []

    def _ran(self, text: str) -> None:
        try:
            exec(text, self.space)
        except Exception as error:
            raise Refused from error

    @contextlib.contextmanager
    def whole(self) -> Any:
        """What an idea adds stays only if the idea works out."""
        kept = copy.copy(self.lines), dict(self.values)
        self._made = []
        try:
            yield
        except (Refused, ValueError, IndexError):
            self.lines, self.values = kept
            self._made = []


def _is_fit(value: Tensor) -> bool:
    if not 0 < value.numel() <= MOST_ELEMENTS or value.is_complex() or value.dim() > 6:
        return False
    numbers = value.detach().double()
    return bool(torch.isfinite(numbers).all()) and float(numbers.abs().max()) <= LARGEST


def grow(scope: Scope, count: int) -> None:
    """Tries ideas until there are so many lines more."""
    functions, weights = zip(*IDEAS, strict=True)
    # A module that has few kinds of operations has more of each, and more that meet.
    taste = [weight * scope.choice(0.0, 0.5, 1.0, 4.0) + 1e-3 for weight in weights]
    end = len(scope.lines) + count
    for chosen in scope.random.choices(functions, taste, k=10 * count):
        if len(scope.lines) >= end:
            break
        with scope.whole():
            chosen(scope)
