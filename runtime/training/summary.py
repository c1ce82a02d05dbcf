"""A trainer in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.values import signature


def summary(
    state: TrainingState,
    inputs: Sequence[Any],
    metrics: Sequence[str],
    sizes: Mapping[str, int],
    now: Mapping[str, Any],
) -> str:
    """What a trainer is, and where it is.

    Args:
        state: of its model.
        inputs: data inputs as a session declares them.
        metrics: what its steps return beside the loss.
        sizes: bytes of each value of the state.
        now: further values by name.
    """
    weights = sum(sizes[pair.input] for pair in state.pairs if pair.role == "weight")
    rows = {
        "inputs": ", ".join(f"{value.name} {signature(value)}" for value in inputs) or "none",
        "loss": state.loss or "none",
        "metrics": ", ".join(metrics) or "none",
        "state": f"{len(sizes)} values of {sum(sizes.values()):,} bytes, weights {weights:,} of them",
        **now,
    }
    return "Trainer(" + "".join(f"\n    {name}: {value}" for name, value in rows.items()) + "\n)"
