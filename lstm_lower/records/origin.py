"""Where a model comes from: a mark in its metadata that an import leaves for `lower`.

What a source imports is written for correctness, op by op; `lower` optimises it even if no recurrent op is in it. The
mark is gone afterwards, so that lowering twice changes nothing.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.origin"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a model comes from.

    Attributes:
        source: `tensorflow`, `torch` or `onnx`.
        translated: how many of the source's ops the import has written in ONNX's operators already, so that none of
            them is left for a proof of the lowering to look at; `None` where that is not counted.
    """

    source: str
    translated: int | None = None

    def write(self, model: ir.Model) -> None:
        """Marks a model."""
        _RECORD.write(model, self)


_RECORD = Record(METADATA_KEY, Origin, None)


def read(model: ir.Model) -> Origin | None:
    """A model's mark; `None` where it has none that can be read."""
    try:
        return _RECORD.parse(model.metadata_props)
    except InvalidModelError:
        return None
