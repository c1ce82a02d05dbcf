"""Dtypes by numpy-style name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError

DType = ir.DataType
DTYPES: dict[str, DType] = {
    "bool": DType.BOOL,
    "int8": DType.INT8,
    "int32": DType.INT32,
    "int64": DType.INT64,
    "uint32": DType.UINT32,
    "uint64": DType.UINT64,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
    "float32": DType.FLOAT,
    "float64": DType.DOUBLE,
}


def native(value: Any, what: str) -> np.ndarray[Any, Any]:
    """A value as an array in the machine's byte order, as onnxruntime and onnx_ir take all bytes to be.

    Args:
        value: an array, number or nested list.
        what: what it is, for the error.

    Raises:
        InvalidInputError: numpy makes no array of it.
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidInputError(f"{what} requires an array, got {type(value).__name__}: {error}") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def all_dtypes() -> tuple[DType, ...]:
    """Every dtype that an operand may have."""
    return tuple(DTYPES.values())


def dtype_of(name: str) -> DType | None:
    """The dtype of a numpy-style name; `None` for a type variable."""
    return DTYPES.get(name)


def dtype_name(dtype: DType | None) -> str:
    """The numpy-style name of a dtype, for messages: `float32`."""
    if dtype is None:
        return "unknown"
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    return dtype.name.lower()
