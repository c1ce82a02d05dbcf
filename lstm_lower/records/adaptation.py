"""Low-rank matrices that were added to a model's weights, recorded in the model: they are what is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from lstm_lower.errors import InvalidModelError
from lstm_lower.records.record import Record

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


_RECORD = Record(METADATA_KEY, Adaptation, None)
write = _RECORD.write


def parse(metadata_props: Mapping[str, str]) -> Adaptation | None:
    """What a model records; `None` for one without such matrices.

    Raises:
        InvalidModelError: the record is malformed.
    """
    adaptation = _RECORD.parse(metadata_props)
    if adaptation is not None and adaptation.rank <= 0:
        raise InvalidModelError(f"metadata '{METADATA_KEY}' requires a rank above 0, got {adaptation.rank}")
    return adaptation
