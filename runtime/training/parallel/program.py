"""What a worker runs: the halves of a training step, lowered, as bytes that travel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.records.state import StatePair
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.serialized import default_options, open_serialized
from lstm_lower.runtime.training.parallel.layout import Layout

Array = np.ndarray[Any, Any]


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
    """What every worker is given once.

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
    layout: Layout
    streams: frozenset[str]
    threads: int
    providers: tuple[provider_names.Resolved, ...]
