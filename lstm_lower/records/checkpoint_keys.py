"""Where a TensorFlow checkpoint has the values of a step's state, recorded in the step.

Most variables stand under their own names. Those of objects stand under a path of attributes, those of partitioned
variables are slices of another tensor, and a saver may call them otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from lstm_lower.records.record import Record

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


_RECORD = Record(METADATA_KEY, list[CheckpointKey], list[CheckpointKey]())


def write(model: ir.Model, keys: Sequence[CheckpointKey]) -> None:
    """Records keys in a step; nothing where there are none."""
    if keys:
        _RECORD.write(model, [*keys])


def parse(metadata_props: Mapping[str, str]) -> dict[str, CheckpointKey]:
    """State input -> its key, of those that do not stand under their own names.

    Raises:
        InvalidModelError: the record is malformed.
    """
    return {key.input: key for key in _RECORD.parse(metadata_props)}
