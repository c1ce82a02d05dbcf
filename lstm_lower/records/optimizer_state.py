"""Where a step keeps what PyTorch's optimizer has in its own state, recorded in the step."""

from __future__ import annotations

import dataclasses

from lstm_lower.records.record import Record

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


_RECORD = Record(METADATA_KEY, list[Kept], None)
write, parse = _RECORD.write, _RECORD.parse
