"""First values of state that are drawn when training starts, since sizes of it are open until then.

The record is in the model's metadata under the key `lstm_lower.first_values`, as JSON:

    {"head.weight": {"low": -0.125, "high": 0.125, "stream": [0, 0]},
     "head.weight/m": {"low": 0.0, "high": 0.0, "stream": [0, 0]}, ...}

All other state has its first value as its input's default, see `records.state`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import onnx_ir as ir

from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.first_values"


@dataclasses.dataclass(frozen=True)
class Draw:
    """Numbers of equal probability between two bounds; one number everywhere where these are equal.

    Attributes:
        low: the lower bound.
        high: the upper bound.
        stream: the seed, and the number of the draw among those of the seed.
    """

    low: float
    high: float
    stream: tuple[int, int] = (0, 0)


_RECORD = Record(METADATA_KEY, dict[str, Draw], dict[str, Draw]())
parse = _RECORD.parse


def add(model: ir.Model, draws: Mapping[str, Draw]) -> None:
    """Records draws by state input, beside those that a model records."""
    _write(model, {**parse(model.metadata_props), **draws})


def remove(model: ir.Model, names: Collection[str]) -> None:
    """Takes draws out of what a model records."""
    _write(model, {name: draw for name, draw in parse(model.metadata_props).items() if name not in names})


def _write(model: ir.Model, draws: Mapping[str, Draw]) -> None:
    model.metadata_props.pop(METADATA_KEY, None)
    if draws:
        _RECORD.write(model, {**draws})
