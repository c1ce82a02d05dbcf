"""How a step was made: its optimizer and its loss by name, with their options, recorded in it.

Nothing is computed from the record. It is for those who read `training.json`, and want to know what they have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.recipe"

# Of an array with more elements, such as a table of learning rates, nothing is recorded.
_LONGEST = 4096
# What JSON has no number for.
_WORDS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


@dataclasses.dataclass(frozen=True)
class Choice:
    """A loss, an optimizer or a schedule.

    Attributes:
        name: its class.
        options: its arguments as JSON holds them; `None` for what JSON does not hold.
    """

    name: str
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Updates:
    """What updates some of the weights.

    Attributes:
        optimizer: the optimizer.
        schedule: of its learning rate, or `None`.
        weights: state inputs.
    """

    optimizer: Choice
    schedule: Choice | None
    weights: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is known of how a step was made.

    Attributes:
        updates: by group of weights; none where the optimizer is not known.
        loss: what is minimised; `None` where it is a formula of the user's own, or not known.
        limits: what a trainer does with gradients and weights beside that: `accumulate`, `clip_norm`, `clip_value`,
            `ema`, as far as it does.
    """

    updates: Sequence[Updates] = ()
    loss: Choice | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)


_RECORD = Record(METADATA_KEY, Recipe, Recipe())
parse = _RECORD.parse


def choice_of(chosen: Any) -> Choice:
    """A choice that is an object with fields."""
    fields = dataclasses.fields(chosen) if dataclasses.is_dataclass(chosen) else ()
    return Choice(type(chosen).__name__, {field.name: plain(getattr(chosen, field.name)) for field in fields})


def plain(value: Any) -> Any:
    """An option as JSON holds it: infinities as words, objects as choices, `None` for what it cannot hold."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else _WORDS[str(value)]
        case np.ndarray() | np.generic() if value.size <= _LONGEST:
            return plain(value.tolist())
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case Sequence() if len(value) <= _LONGEST:
            return [plain(each) for each in value]
        case _:
            return dataclasses.asdict(choice_of(value)) if dataclasses.is_dataclass(value) else None


def add(model: ir.Model, **more: Any) -> None:
    """Records more of how a step was made, in place of what was recorded of these attributes.

    Args:
        model: the step.
        more: attributes of a `Recipe`.
    """
    _RECORD.write(model, dataclasses.replace(parse(model.metadata_props), **more))
