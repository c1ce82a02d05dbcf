"""Which inputs of a model are state, and which outputs are their next values: kept in the model's metadata.

With it a training loop can be driven from the file alone: run, then feed each output back as the input it belongs to.

Metadata key `lstm_lower.state`: a JSON list of objects with
    name       the variable's name in the framework that the model came from,
    input      the graph input that takes its value, or null where the value is a constant of the model,
    output     the graph output that holds its next value, or null where a run leaves it as it is,
    trainable  whether an optimizer trains it; false for step counters, moments and the like.
An input's initial value is the initializer of the same name, where the model has one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from lstm_lower.errors import InvalidModelError

METADATA_KEY = "lstm_lower.state"


@dataclasses.dataclass(frozen=True)
class StateEntry:
    """One variable of the model.

    Attributes:
        name: its name.
        input: graph input of its value, or `None`.
        output: graph output of its next value, or `None`.
        trainable: whether an optimizer trains it.
    """

    name: str
    input: str | None
    output: str | None
    trainable: bool = True


def write_state(entries: Iterable[StateEntry]) -> dict[str, str]:
    """The metadata that records the entries; nothing when there are none."""
    listed = [dataclasses.asdict(entry) for entry in entries]
    return {METADATA_KEY: json.dumps(listed)} if listed else {}


def read_state(metadata: Mapping[str, str]) -> list[StateEntry]:
    """Reads the entries back.

    Args:
        metadata: key -> value, for example `session.get_modelmeta().custom_metadata_map`.

    Raises:
        InvalidModelError: the record is damaged.
    """
    text = metadata.get(METADATA_KEY)
    if text is None:
        return []
    try:
        return [StateEntry(**entry) for entry in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise InvalidModelError(
            f"metadata '{METADATA_KEY}' requires a JSON list of entries, got {text[:80]!r}"
        ) from error
