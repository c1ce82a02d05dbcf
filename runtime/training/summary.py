"""A trainer in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lstm_lower.errors import some
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.values import signature


def summary(
    state: TrainingState,
    inputs: Sequence[Any],
    metrics: Sequence[str],
    values: Mapping[str, Any],
    now: Mapping[str, Any],
) -> str:
    """What a trainer is, and where it is.

    Args:
        state: of its model.
        inputs: data inputs as a session declares them.
        metrics: what its steps return beside the loss.
        values: arrays, or what has their shapes and dtypes, of the state.
        now: further values by name.
    """
    weights = [pair.input for pair in state.pairs if pair.role == "weight"]
    listed = some([f"{name} {list(values[name].shape)}" for name in weights], most=12)
    rows = {
        "inputs": ", ".join(f"{value.name} {signature(value)}" for value in inputs) or "none",
        "loss": state.loss or "none",
        "metrics": ", ".join(metrics) or "none",
        "state": f"{len(values)} values of {_bytes(values.values())}",
        "weights": f"{len(weights)} of {_bytes(values[name] for name in weights)}: {listed}" if weights else "none",
        **now,
    }
    return "Trainer(" + "".join(f"\n    {name}: {value}" for name, value in rows.items()) + "\n)"


def _bytes(arrays: Iterable[Any]) -> str:
    return f"{sum(array.dtype.itemsize * array.size for array in arrays):,} bytes"
