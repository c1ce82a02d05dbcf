"""Lists of names in a model's metadata, as JSON.

`lstm_lower.casts`: inputs whose feeds are cast, see `fitted`.
`lstm_lower.variables`: what a step's model consists of, the names of variables in its framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.records.record import Record

CASTS = "lstm_lower.casts"
VARIABLES = "lstm_lower.variables"


def write(model: ir.Model, key: str, names: Sequence[str]) -> None:
    """Records names in a model."""
    Record(key, list[str], ()).write(model, [*names])


def parse(metadata_props: Mapping[str, str], key: str) -> frozenset[str]:
    """Reads names from metadata; none where there is no record.

    Raises:
        InvalidModelError: the record is malformed.
    """
    return frozenset(Record(key, list[str], ()).parse(metadata_props))


# Inputs whose feeds are cast, as the framework that a model came from casts them.
# They are in the model's metadata under the key `lstm_lower.casts` (`names`). `Session` and `Trainer` take arrays of
# any numeric dtype for them, and a last axis of size 1 more or less than the input has.


def fitted(array: np.ndarray[Any, Any], dtype: np.dtype[Any] | None, shape: Sequence[Any] | None) -> Any:
    """A feed in the dtype and rank of its input, where that is a matter of casting and of a last axis of size 1."""
    if dtype is not None and array.dtype.kind in "biuf" and dtype.kind in "biuf":
        array = array.astype(dtype, copy=False)
    if shape is not None and array.ndim == len(shape) + 1 and array.shape[-1] == 1:
        return array[..., 0]
    if shape is not None and array.ndim == len(shape) - 1 and shape[-1] == 1:
        return array[..., None]
    return array
