"""The program of a worker: the halves of a training step, lowered, as bytes that travel."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.dtypes import is_floating
from lstm_lower.errors import InvalidModelError
from lstm_lower.passes.lower import lower
from lstm_lower.passes.training.split import Halves
from lstm_lower.records.state import StatePair
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.serialized import default_options, open_serialized, serialize

# What workers exchange in every step: gradients and statistics, in one vector.


Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class VectorLayout:
    """Gradients and statistics in one vector of one dtype, so that they travel and are summed at once.

    Attributes:
        dtype: float64 where one of them is, else float32, in which halves add up, too.
        gradients: output -> shape and dtype, in order.
        statistics: output -> shape and dtype, behind them.
    """

    dtype: np.dtype[Any]
    gradients: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
    statistics: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

    @property
    def gradient_size(self) -> int:
        """Number of elements of all gradients."""
        return sum(int(np.prod(shape)) for shape, _ in self.gradients.values())

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.gradient_size + sum(int(np.prod(shape)) for shape, _ in self.statistics.values())

    def parts(self, vector: Array) -> dict[str, Array]:
        """Views of a vector in each one's shape, in the vector's dtype."""
        by_name, start = {}, 0
        for name, (shape, _) in (*self.gradients.items(), *self.statistics.items()):
            size = int(np.prod(shape))
            by_name[name] = vector[start : start + size].reshape(shape)
            start += size
        return by_name

    def bounds(self, chunks: int) -> list[tuple[int, int]]:
        """Where each of some chunks of the vector begins and ends."""
        edges = [self.size * number // chunks for number in range(chunks + 1)]
        return list(itertools.pairwise(edges))


@dataclasses.dataclass(frozen=True)
class Half:
    """A lowered half.

    Attributes:
        data: the model.
        weights: its large constants by name.
        pairs: the state that it reads; those that it moves on have an output.
    """

    data: bytes
    weights: dict[str, Array]
    pairs: tuple[StatePair, ...]

    def open(self, threads: int, providers: Sequence[provider_names.Resolved]) -> ort.InferenceSession:
        """A session.

        Args:
            threads: that one run may use.
            providers: full names, with options.
        """
        options = default_options()
        options.intra_op_num_threads = threads
        return open_serialized(self.data, self.weights, options, providers)


@dataclasses.dataclass(frozen=True)
class Program:
    """The job that every worker is given once.

    Attributes:
        gradients: the half from state and data to gradients.
        updates: the half from gradients to new state.
        pairs: the whole state.
        loss: name of the loss.
        learning_rate: name of the learning rate, or `None`.
        layout: where gradients, and behind them statistics, lie in one long vector.
        streams: state that the gradient half moves on without looking at data.
        threads: of each worker.
        providers: full names, with options.
    """

    gradients: Half
    updates: Half
    pairs: tuple[StatePair, ...]
    loss: str
    learning_rate: str | None
    layout: VectorLayout
    streams: frozenset[str]
    threads: int
    providers: tuple[provider_names.Resolved, ...]


# From a training step to what its workers run.


def program_of(halves: Halves, *, threads: int, providers: Sequence[provider_names.Resolved]) -> Program:
    """Lowers the halves of a step whose state has no initial values.

    Args:
        halves: of the step.
        threads: that each worker computes with.
        providers: full names, with options.

    Raises:
        InvalidModelError: the step has no loss, a gradient's shape is not known, or without its weights a half is
            larger than a protobuf may be.
        UnsupportedOpError: the step holds ops that cannot be lowered.
    """
    pairs, loss = halves.state.pairs, halves.state.loss
    if loss is None:
        raise InvalidModelError("workers require a step with a loss, got none")
    target = provider_names.target_of(providers)
    return Program(
        _half(halves.gradients, pairs, target),
        _half(halves.updates, pairs, target),
        pairs,
        loss,
        halves.state.learning_rate,
        layout_of(halves),
        halves.streams,
        threads,
        tuple(providers),
    )


def _half(model: ir.Model, pairs: Sequence[StatePair], target: str | None) -> Half:
    inputs = {value.name for value in model.graph.inputs}
    outputs = {value.name for value in model.graph.outputs}
    own = tuple(
        dataclasses.replace(pair, output=pair.output if pair.output in outputs else None)
        for pair in pairs
        if pair.input in inputs
    )
    try:
        data, weights = serialize(lower(model, target=target))
    except ValueError as error:
        raise InvalidModelError(f"workers require a model below 2 GB without its weights: {error}") from error
    return Half(data, weights, own)


def layout_of(halves: Halves) -> VectorLayout:
    """The layout of what a gradient half returns.

    Raises:
        InvalidModelError: a shape or dtype is not known, or a statistic has no mean.
    """
    inputs = {value.name: value for value in (*halves.gradients.graph.inputs, *halves.updates.graph.inputs)}
    read = {value.name for value in halves.updates.graph.inputs}
    shown = {pair.gradient: pair for pair in halves.state.pairs if pair.gradient in read}
    gradients = {str(name): _form(inputs[pair.input]) for name, pair in shown.items()}
    moved = [pair for pair in halves.state.pairs if pair.input in halves.statistics]
    for pair in moved:
        kind = inputs[pair.input].dtype
        if not is_floating(kind):
            raise InvalidModelError(f"workers require statistics that have a mean, got '{pair.input}' of {kind}")
    statistics = {str(pair.output): _form(inputs[pair.input]) for pair in moved}
    wide = any(dtype == np.float64 for _, dtype in (*gradients.values(), *statistics.values()))
    return VectorLayout(np.dtype(np.float64 if wide else np.float32), gradients, statistics)


def _form(value: ir.Value) -> tuple[tuple[int, ...], np.dtype[Any]]:
    sizes = [] if value.shape is None else [size for size in value.shape if isinstance(size, int)]
    if value.shape is None or value.dtype is None or len(sizes) != len(value.shape):
        raise InvalidModelError(f"state '{value.name}' requires a known shape, got {value.shape}")
    return tuple(sizes), value.dtype.numpy()
