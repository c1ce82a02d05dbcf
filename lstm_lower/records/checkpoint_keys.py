"""Where a TensorFlow checkpoint has the values of a step's state, recorded in the step.

Most variables stand under their own names. Those of objects stand under a path of attributes, those of partitioned
variables are slices of another tensor, and a saver may call them otherwise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from lstm_lower.errors import InvalidModelError, damage_told

METADATA_KEY = "lstm_lower.checkpoint"


@dataclasses.dataclass(frozen=True)
class CheckpointKey:
    """Where a checkpoint has the value of a state.

    Attributes:
        input: state input of the step.
        key: the tensor's name in the checkpoint.
        box: where the value begins and ends along each axis of the tensor; `None` where it is all of it.
        is_complex: whether the tensor has complex numbers, which are pairs `[..., 2]` in the step.
    """

    input: str
    key: str
    box: tuple[tuple[int, int], ...] | None = None
    is_complex: bool = False


def write(metadata_props: dict[str, str], keys: Iterable[CheckpointKey]) -> None:
    """Records keys in a step's metadata; nothing where there are none."""
    entries = [dataclasses.asdict(each) for each in keys]
    if entries:
        metadata_props[METADATA_KEY] = json.dumps(entries, separators=(",", ":"))


def parse(metadata_props: Mapping[str, str]) -> dict[str, CheckpointKey]:
    """State input -> its key, of those that do not stand under their own names.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(METADATA_KEY, "[]")
    what = f"metadata '{METADATA_KEY}' requires the form that lstm-lower writes, got {text[:80]!r}"
    with damage_told(lambda _: InvalidModelError(what)):
        return {str(x["input"]): _key(x) for x in json.loads(text)}


def _key(entry: Mapping[str, Any]) -> CheckpointKey:
    box = entry["box"]
    sides = None if box is None else tuple((int(start), int(stop)) for start, stop in box)
    return CheckpointKey(str(entry["input"]), str(entry["key"]), sides, bool(entry["is_complex"]))
