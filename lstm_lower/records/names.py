"""Lists of names in a model's metadata, as JSON.

`lstm_lower.casts`: inputs whose feeds are cast, see `casts`.
`lstm_lower.variables`: what a step's model consists of, the names of variables in its framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told

CASTS = "lstm_lower.casts"
VARIABLES = "lstm_lower.variables"


def write(model: ir.Model, key: str, names: Sequence[str]) -> None:
    """Records names in a model."""
    model.metadata_props[key] = json.dumps(list(names))


def parse(metadata_props: Mapping[str, str], key: str) -> frozenset[str]:
    """Reads names from metadata; none where there is no record.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(key, "[]")
    with damage_told(lambda _: InvalidModelError(f"metadata '{key}' requires a list of names, got {text[:80]!r}")):
        return frozenset(f"{name}" for name in list(json.loads(text)))
