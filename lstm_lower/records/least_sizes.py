"""The least sizes of inputs that a model takes: a loop whose first and last steps stand beside it needs one between.

onnxruntime runs no Scan of no steps, and fails by itself with an error that names a node. A session says what is
required of which input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidInputError, InvalidModelError, damage_told

METADATA_KEY = "lstm_lower.least_sizes"

# Input -> axis -> the least size.
LeastSizes = Mapping[str, Mapping[int, int]]


def write(model: ir.Model, sizes: LeastSizes) -> None:
    """Records least sizes, where there are any."""
    if sizes:
        model.metadata_props[METADATA_KEY] = json.dumps(sizes)


def parse(metadata_props: Mapping[str, str]) -> LeastSizes:
    """Reads least sizes from metadata, for example a session's.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = metadata_props.get(METADATA_KEY, "{}")
    what = f"metadata '{METADATA_KEY}' requires the form that lstm-lower writes, got {text[:80]!r}"
    with damage_told(lambda _: InvalidModelError(what)):
        return {
            str(name): {int(axis): int(size) for axis, size in axes.items()} for name, axes in json.loads(text).items()
        }


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
