"""Where a step keeps what PyTorch's optimizer has in its own state, recorded in the step."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told

METADATA_KEY = "lstm_lower.optimizer"


@dataclasses.dataclass(frozen=True)
class Kept:
    """A value that an optimizer keeps.

    Attributes:
        input: state input of the step.
        keys: where the optimizer has it: in the state of the weight, or in the group.
        weight: name of the weight; `None` for what a group keeps.
        group: number of the group.
    """

    input: str
    keys: tuple[str | int, ...]
    weight: str | None = None
    group: int = 0


def write(model: ir.Model, kept: Iterable[Kept]) -> None:
    """Records it in a step."""
    entries = [dataclasses.asdict(each) for each in kept]
    model.metadata_props[METADATA_KEY] = json.dumps(entries, separators=(",", ":"))


def parse(metadata_props: Mapping[str, str]) -> list[Kept] | None:
    """What a step records; `None` for one whose optimizer is none of PyTorch's.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(METADATA_KEY)
    if text is None:
        return None
    what = f"metadata '{METADATA_KEY}' requires the form that lstm-lower writes, got {text[:80]!r}"
    with damage_told(lambda _: InvalidModelError(what)):
        return [Kept(x["input"], tuple(x["keys"]), x["weight"], x["group"]) for x in json.loads(text)]
