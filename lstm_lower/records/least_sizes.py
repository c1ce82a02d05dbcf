"""The least sizes of inputs that a model takes: a loop whose first and last steps stand beside it needs one between.

onnxruntime runs no Scan of no steps, and fails by itself with an error that names a node. A session says what is
required of which input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidInputError
from lstm_lower.records.record import Record

METADATA_KEY = "lstm_lower.least_sizes"

# Input -> axis -> the least size.
LeastSizes = Mapping[str, Mapping[int, int]]

_RECORD = Record(METADATA_KEY, dict[str, Mapping[int, int]], dict[str, Mapping[int, int]]())
parse = _RECORD.parse


def write(model: ir.Model, sizes: LeastSizes) -> None:
    """Records least sizes, where there are any."""
    if sizes:
        _RECORD.write(model, {**sizes})


def check(sizes: LeastSizes, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Refuses feeds that are smaller.

    Raises:
        InvalidInputError: one is.
    """
    for name, axes in sizes.items():
        shape = arrays[name].shape if name in arrays else ()
        for axis, least in axes.items():
            if axis < len(shape) and shape[axis] < least:
                raise InvalidInputError(
                    f"input '{name}' requires a size of {least} or more along axis {axis}, got shape "
                    f"{format_shape(shape)}: the model's loop leaves out first or last steps, and needs one",
                    operand=name,
                )
