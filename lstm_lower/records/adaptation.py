"""Low-rank matrices that were added to a model's weights, recorded in the model: they are what is trained."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal, get_args

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told

METADATA_KEY = "lstm_lower.lora"

# A product of matrices, a convolution, or a recurrent layer, which PEFT has no adapters for.
Kind = Literal["linear", "convolution", "recurrent"]


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """What was added.

    Attributes:
        rank: rows of each first matrix.
        alpha: the products are scaled by `alpha / rank`.
        modules: name of a module, or of a weight that belongs to none -> what it is.
    """

    rank: int
    alpha: float
    modules: Mapping[str, Kind]

    @property
    def weights(self) -> list[str]:
        """The initializers that hold the matrices."""
        return [name for module in self.modules for name in names_of(module)]


def names_of(module: str) -> tuple[str, str]:
    """PEFT's names of the two matrices of a module."""
    return f"base_model.model.{module}.lora_A.weight", f"base_model.model.{module}.lora_B.weight"


def write(model: ir.Model, adaptation: Adaptation) -> None:
    """Records it in a model."""
    model.metadata_props[METADATA_KEY] = json.dumps(dataclasses.asdict(adaptation), separators=(",", ":"))


def parse(metadata_props: Mapping[str, str]) -> Adaptation | None:
    """What a model records; `None` for one without such matrices.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(METADATA_KEY)
    if text is None:
        return None
    fault = InvalidModelError(f"metadata '{METADATA_KEY}' requires the form that ll.lora writes, got {text[:80]!r}")
    with damage_told(lambda _: fault):
        held = Adaptation(**json.loads(text))
        sound = all(kind in get_args(Kind) for kind in held.modules.values()) and held.rank > 0
    if not sound:
        raise fault
    return held
