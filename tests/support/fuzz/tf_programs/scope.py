"""What an idea sees: values with their numbers, draws, and a place for what it adds.

An idea runs twice: at once, so that sizes and numbers are known, and again in the graph of the program, whichever kind
of graph that is. Both times it draws the same, and it decides by the numbers of the first time alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]

MOST_ELEMENTS = 300
MOST_AXES = 5
LARGEST = 100.0
# Integers are counts and indices, mostly; sums of them stay exact in float32.
LARGEST_INTEGER = 1 << 20

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
WIDE = {"float32": "float64", "complex64": "complex128"}


class Refused(Exception):  # noqa: N818
    """An idea does not work out here."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the program.

    Attributes:
        id: its number.
        tensor: what it is in the graph that is being made.
        sample: its numbers in the first run.
        handle: the weight, if it is the value of one.
        state: another variable, which the program changes, if it is the first value of one.
    """

    id: int
    tensor: Any
    sample: Array
    handle: Any = None
    state: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample.shape

    @property
    def rank(self) -> int:
        return self.sample.ndim

    @property
    def dtype(self) -> str:
        """In the first run; `tensor.dtype` may be wider."""
        return self.sample.dtype.name

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS


@dataclasses.dataclass(frozen=True)
class Step:
    """One use of an idea.

    Attributes:
        idea: the function.
        seed: of its draws.
        operands: the values that it picked, in order.
        results: the values that it added, in order.
    """

    idea: Callable[[Scope], object]
    seed: str
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Scope:
    """Values so far, and what a step may do with them."""

    def __init__(self, values: dict[int, Value], *, wide: bool = False) -> None:
        self.values = values
        self.wide = wide
        # What a change of a variable waits for.
        self.chain: list[Any] = []
        self.draw = random.Random(0)
        self._picks = random.Random(0)
        self._given: list[int] | None = None
        self._picked: list[int] = []
        self._results: list[Value] = []
        self._named: list[int] = []
        self._samples: Mapping[int, Array] = {}

    def pick(self, kind: str = "float", suits: Callable[[Value], bool] = lambda _: True) -> Value:
        """A value: `float`, `integer`, `bool`, `number` or `any`; late ones more often."""
        if self._given is not None:
            number = self._given.pop(0)
        else:
            fits = [value for value in self.values.values() if is_of(value, kind) and suits(value)]
            if not fits:
                raise Refused
            number = self._picks.choices(fits, [1 + place for place in range(len(fits))])[0].id
        self._picked.append(number)
        return self.values[number]

    def like(self, value: Value) -> Value:
        """A value of the same type and sizes."""
        return self.pick("any", lambda other: other.dtype == value.dtype and other.shape == value.shape)

    def of_type(self, value: Value, suits: Callable[[Value], bool] = lambda _: True) -> Value:
        """A value of the same type."""
        return self.pick("any", lambda other: other.dtype == value.dtype and suits(other))

    def numbers(self, value: Any, *shape: int, scale: float = 1.0) -> Any:
        """A constant of random numbers with the dtype of a value or tensor."""
        rng = np.random.default_rng(self.draw.randrange(1 << 30))
        tensor = value.tensor if isinstance(value, Value) else value
        # Rounded to float32 in a wide graph, too.
        drawn = (scale * rng.standard_normal(shape)).astype(np.float32)
        return tf.constant(drawn.astype(tf.as_dtype(tensor.dtype).as_numpy_dtype))

    def add(self, *tensors: Any) -> None:
        """Results of the idea."""
        for tensor in tensors:
            if self._given is None:
                sample = np.asarray(tensor.numpy())
                _check(sample)
                number = len(self.values) + len(self._results)
            else:
                number = self._named.pop(0)
                sample = self._samples[number]
            self._results.append(Value(number, tensor, sample))

    def grow(self, idea: Callable[[Scope], object], seed: str) -> Step | None:
        """Tries an idea in the first run."""
        self._begin(seed, None)
        with contextlib.suppress(Refused, ValueError, IndexError, TypeError, tf.errors.OpError):
            idea(self)
            if self._results:
                self.values |= {value.id: value for value in self._results}
                return Step(idea, seed, tuple(self._picked), tuple(value.id for value in self._results))
        return None

    def replay(self, step: Step, samples: Mapping[int, Array]) -> None:
        """A step in the graph; what does not work out there is left out, and all that reads it."""
        if any(number not in self.values for number in step.operands):
            return
        self._begin(step.seed, list(step.operands))
        self._named, self._samples = list(step.results), samples
        with contextlib.suppress(Refused, ValueError, IndexError, TypeError):
            step.idea(self)
            self.values |= {value.id: value for value in self._results}

    def _begin(self, seed: str, given: list[int] | None) -> None:
        self.draw, self._picks = random.Random(seed), random.Random("picks " + seed)
        self._given, self._picked, self._results = given, [], []


def is_of(value: Value, kind: str) -> bool:
    match kind:
        case "float":
            return value.is_float
        case "integer":
            return value.is_integer
        case "number":
            return value.is_float or value.is_integer
        case "bool":
            return value.dtype == "bool"
        case _:
            return True


def _check(sample: Array) -> None:
    if sample.size > MOST_ELEMENTS or sample.ndim > MOST_AXES or sample.dtype.name not in (*FLOATS, *INTEGERS, "bool"):
        raise Refused
    if sample.dtype.kind == "f" and not (np.isfinite(sample).all() and np.abs(sample).max(initial=0) <= LARGEST):
        raise Refused
    if sample.dtype.kind == "i" and np.abs(sample.astype(np.int64)).max(initial=0) > LARGEST_INTEGER:
        raise Refused
