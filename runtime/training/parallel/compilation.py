"""From a training step to what its workers run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.passes.lower import lower
from lstm_lower.passes.training.split import Halves
from lstm_lower.records.state import StatePair
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.serialized import serialize
from lstm_lower.runtime.training.parallel.layout import Layout
from lstm_lower.runtime.training.parallel.program import Half, Program


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


def layout_of(halves: Halves) -> Layout:
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
        if kind is None or not kind.is_floating_point():
            raise InvalidModelError(f"workers require statistics that have a mean, got '{pair.input}' of {kind}")
    statistics = {str(pair.output): _form(inputs[pair.input]) for pair in moved}
    wide = any(dtype == np.float64 for _, dtype in (*gradients.values(), *statistics.values()))
    return Layout(np.dtype(np.float64 if wide else np.float32), gradients, statistics)


def _form(value: ir.Value) -> tuple[tuple[int, ...], np.dtype[Any]]:
    sizes = [] if value.shape is None else [size for size in value.shape if isinstance(size, int)]
    if value.shape is None or value.dtype is None or len(sizes) != len(value.shape):
        raise InvalidModelError(f"state '{value.name}' requires a known shape, got {value.shape}")
    return tuple(sizes), value.dtype.numpy()
