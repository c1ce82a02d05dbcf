"""A random program of a seed: what is fed, weights, steps, a loss, gradients and an update."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.fuzz.tf_programs import control, elementwise, more, moving, products, recurrent, state
from tests.support.fuzz.tf_programs.registry import IDEAS
from tests.support.fuzz.tf_programs.scope import FLOATS, WIDE, Array, Scope, Step, Value

# Imported for what they register.
MODULES = (control, elementwise, more, moving, products, recurrent, state)

FORMS = ("function", "function", "saved_model", "frames", "frames", "functions in a graph")
RULES = ("none", "sgd", "momentum", "raw", "raw", "assign")


@dataclasses.dataclass(frozen=True)
class Source:
    """An input or a weight.

    Attributes:
        id: its number.
        name: its name in the graph.
        array: what is fed, or the first value.
        open: axes whose size the graph does not know.
    """

    id: int
    name: str
    array: Array
    open: tuple[int, ...] = ()

    def wide(self, *, wide: bool) -> Array:
        return self.array.astype(WIDE.get(self.array.dtype.name, self.array.dtype.name)) if wide else self.array

    @property
    def sizes(self) -> list[int | None]:
        return [None if axis in self.open else size for axis, size in enumerate(self.array.shape)]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, apart from the kind of graph that it becomes.

    Attributes:
        seed: of which it is the program.
        form: which kind of graph.
        inputs: what is fed.
        weights: variables that are trained.
        states: variables that the steps change.
        steps: ideas in order.
        samples: the numbers of all values in the first run.
        outputs: values that are results.
        terms: values whose weighted means are the loss.
        rule: how weights change.
        twice: whether the loss holds the square of a gradient.
    """

    seed: int
    form: str
    inputs: tuple[Source, ...]
    weights: tuple[Source, ...]
    states: tuple[Source, ...]
    steps: tuple[Step, ...]
    samples: Mapping[int, Array]
    outputs: tuple[int, ...]
    terms: tuple[int, ...]
    rule: str
    twice: bool

    @property
    def in_graph(self) -> bool:
        """Whether it is a graph of TensorFlow 1."""
        return self.form in ("frames", "functions in a graph")

    @property
    def is_coarse(self) -> bool:
        """Whether something in it is float32."""
        return any(sample.dtype == np.float32 for sample in self.samples.values())

    def describe(self) -> str:
        sources = [
            f"{s.name}: {s.array.dtype}{list(s.array.shape)} open {list(s.open)}"
            for s in (*self.inputs, *self.weights, *self.states)
        ]
        steps = [f"{step.idea.__name__} {step.operands} -> {step.results}" for step in self.steps]
        rest = f"outputs {self.outputs}, loss of {self.terms}, {self.form}, {self.rule}" + ", twice" * self.twice
        return "\n".join([*sources, *steps, rest]) + "\n"


def program(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    form = draw.choice(FORMS)
    rng = np.random.default_rng(seed)
    dtype = draw.choice(["float32", "float32", "float64"])
    sources: list[Source] = []

    def source(name: str, array: Array, *, fixed: bool = False) -> Source:
        opened = () if fixed or draw.random() < 1 / 2 else tuple(a for a in range(array.ndim) if draw.random() < 1 / 2)
        sources.append(Source(len(sources), name, array, opened))
        return sources[-1]

    sizes = [draw.randint(1, 4) for _ in range(3)]
    inputs = []
    for number in range(draw.randint(1, 3)):
        shape = [draw.choice(sizes) for _ in range(draw.choice([1, 2, 2, 3, 3, 4]))]
        inputs.append(source(f"x{number}", rng.standard_normal(shape).astype(dtype)))
    for number in range(draw.randint(0, 2)):
        shape = [draw.choice(sizes) for _ in range(draw.choice([0, 1, 1, 2]))]
        inputs.append(source(f"n{number}", rng.integers(-3, 6, shape).astype(draw.choice(["int32", "int64"]))))
    if draw.random() < 1 / 4:
        inputs.append(source("b0", rng.integers(0, 2, [draw.choice(sizes)]).astype(bool)))
    weights = []
    for number in range(draw.randint(1, 2)):
        shape = [draw.choice(sizes) for _ in range(draw.choice([1, 2, 2]))]
        weights.append(source(f"w{number}", (0.5 * rng.standard_normal(shape)).astype(dtype), fixed=True))

    states = []
    if draw.random() < 1 / 3:
        shape = [draw.choice(sizes) for _ in range(draw.choice([0, 1, 2]))]
        states.append(source("s0", (0.5 * rng.standard_normal(shape)).astype(dtype), fixed=True))
    if draw.random() < 1 / 6:
        states.append(source("s1", np.array(2, draw.choice(["int32", "int64"])), fixed=True))

    steps, samples = _grown(draw, sources, weights, states, in_graph=form in ("frames", "functions in a graph"))
    made = [number for number in samples if number >= len(sources)] or [0]
    smooth = [number for number in made if samples[number].dtype.name in FLOATS and samples[number].size]
    terms = draw.sample(smooth, min(len(smooth), draw.randint(1, 3))) or [weights[0].id]
    outputs = draw.sample(made, min(len(made), draw.randint(1, 4)))
    twice = draw.random() < 1 / 24
    return Program(seed, form, tuple(inputs), tuple(weights), tuple(states), steps, samples, tuple(outputs),
                   tuple(terms), draw.choice(RULES), twice)  # fmt: skip


def _grown(
    draw: random.Random,
    sources: Sequence[Source],
    weights: Sequence[Source],
    states: Sequence[Source],
    *,
    in_graph: bool,
) -> tuple[tuple[Step, ...], dict[int, Array]]:
    kept, changing = ({source.id for source in some} for some in (weights, states))
    values = {}
    for source in sources:
        tensor = tf.constant(source.array)
        handle = tensor if source.id in kept else None
        state = tf.Variable(source.array) if source.id in changing else None
        values[source.id] = Value(source.id, tensor, source.array, handle, state)
    scope = Scope(values)
    ideas, factors = [], []
    for idea, weight, graph_only in IDEAS:
        likes = draw.choice([0.0, 0.5, 1.0, 3.0])
        if in_graph or not graph_only:
            ideas.append(idea)
            factors.append(weight * likes + 1e-2)
    steps = []
    for chosen in draw.choices(ideas, factors, k=draw.choice([4, 8, 12, 16])):
        step = scope.grow(chosen, str(draw.randrange(1 << 40)))
        if step is not None:
            steps.append(step)
    return tuple(steps), {number: value.sample for number, value in scope.values.items()}


def replayed(
    made: Program, inputs: Mapping[int, Any], weights: Mapping[int, Any], states: Mapping[int, Any], *, wide: bool
) -> dict[int, Value]:
    """All values in the graph that is being made.

    Args:
        made: the program.
        inputs: tensors that are fed, by number.
        weights: variables that are trained, by number.
        states: variables that the steps change, by number.
        wide: whether float32 became float64.
    """
    values = {number: Value(number, tensor, made.samples[number]) for number, tensor in inputs.items()}
    for number, handle in weights.items():
        values[number] = Value(number, tf.convert_to_tensor(handle), made.samples[number], handle)
    scope = Scope(values, wide=wide)
    for number, variable in states.items():
        if number in made.samples:
            values[number] = Value(number, state.read(variable), made.samples[number], None, variable)
    scope.chain = [values[number].tensor for number in states]
    for step in made.steps:
        scope.replay(step, made.samples)
    return scope.values


def loss_of(made: Program, values: Mapping[int, Value], *, wide: bool) -> Any:
    """A loss whose gradients differ from element to element."""
    total = tf.zeros((), "float64" if wide or not made.is_coarse else "float32")
    for number in made.terms:
        if number in values:
            flat = tf.cast(tf.reshape(values[number].tensor, [-1]), total.dtype)
            places = tf.range(tf.cast(tf.size(flat), flat.dtype))
            total += tf.math.divide_no_nan(
                tf.reduce_sum(flat * (tf.sin(places) + 0.5)), tf.cast(tf.size(flat), flat.dtype)
            )
    return total


def needed(made: Program, outputs: Sequence[int]) -> Program:
    """The program without steps that nothing of these outputs needs."""
    wanted = set(outputs) | set(made.terms)
    steps = []
    for step in reversed(made.steps):
        if wanted & set(step.results):
            wanted |= set(step.operands)
            steps.append(step)
    return dataclasses.replace(made, steps=tuple(reversed(steps)), outputs=tuple(outputs))
