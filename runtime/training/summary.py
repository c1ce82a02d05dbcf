"""A trainer in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import shown, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.values import signature

_CARRYING = (std.Moving, std.Identity, std.Cast)


def summary(
    model: ir.Model,
    state: TrainingState,
    inputs: Sequence[Any],
    metrics: Sequence[str],
    values: Mapping[str, Any],
    now: Mapping[str, Any],
) -> str:
    """What a trainer is, and where it is.

    Weights are grouped by the operator that reads them first, which tells a matrix from a scale of quantized numbers.

    Args:
        model: the step.
        state: of its model.
        inputs: data inputs as a session declares them.
        metrics: what its steps return beside the loss.
        values: arrays, or what has their shapes and dtypes, of the state.
        now: further values by name.
    """
    weights = [pair.input for pair in state.pairs if pair.role == "weight"]
    groups: dict[str, list[str]] = {}
    for name, reader in _readers(model.graph, weights).items():
        groups.setdefault(reader, []).append(f"{name} {list(values[name].shape)}")
    listed = "".join(f"\n        {shown(reader)}: {some(names, most=12)}" for reader, names in groups.items())
    rows = {
        "inputs": ", ".join(shown(f"{value.name} {signature(value)}") for value in inputs) or "none",
        "loss": shown(state.loss or "none"),
        "metrics": ", ".join(map(shown, metrics)) or "none",
        "state": f"{len(values)} values of {_bytes(values.values())}",
        "weights": f"{len(weights)} of {_bytes(values[name] for name in weights)}{listed}" if weights else "none",
        **now,
    }
    return "Trainer(" + "".join(f"\n    {name}: {value}" for name, value in rows.items()) + "\n)"


def _readers(graph: ir.Graph, names: Sequence[str]) -> dict[str, str]:
    """Name of an input -> the operator that first does more with its elements than move or cast them."""
    places = {node: place for place, node in enumerate(all_nodes(graph))}
    found = {}
    for value in (value for value in graph.inputs if value.name in names):
        name, reader = str(value.name), None
        while uses := value.uses():
            reader = min((use.node for use in uses), key=places.__getitem__)
            if not any(kind.matches(reader) for kind in _CARRYING):
                break
            value = reader.outputs[0]
        found[name] = "nothing" if reader is None else reader.op_type
    return found


def _bytes(arrays: Iterable[Any]) -> str:
    return f"{sum(array.dtype.itemsize * array.size for array in arrays):,} bytes"
