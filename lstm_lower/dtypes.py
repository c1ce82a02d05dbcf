"""Dtypes by numpy-style name, and as ONNX's schemas and onnxruntime write them."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError

DType = ir.DataType
DTYPES: dict[str, DType] = {
    "bool": DType.BOOL,
    "int8": DType.INT8,
    "int16": DType.INT16,
    "int32": DType.INT32,
    "int64": DType.INT64,
    "uint8": DType.UINT8,
    "uint16": DType.UINT16,
    "uint32": DType.UINT32,
    "uint64": DType.UINT64,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
    "float32": DType.FLOAT,
    "float64": DType.DOUBLE,
    "complex64": DType.COMPLEX64,
    "complex128": DType.COMPLEX128,
}

# The dtype of the two parts of complex numbers.
PARTS = {DType.COMPLEX64: DType.FLOAT, DType.COMPLEX128: DType.DOUBLE}

# onnx_ir makes these sets anew whenever a dtype is asked, which takes longer than most questions about a node.
_FLOATS = frozenset(dtype for dtype in DType if dtype.is_floating_point())
_INTEGERS = frozenset(dtype for dtype in DType if dtype.is_integer())


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


def is_floating(dtype: DType | None) -> TypeGuard[DType]:
    """Whether a dtype is known and of floats."""
    return dtype in _FLOATS


def is_integer(dtype: DType | None) -> TypeGuard[DType]:
    """Whether a dtype is known and of integers."""
    return dtype in _INTEGERS


def is_complex(dtype: DType | None) -> bool:
    """Whether a dtype is of complex numbers."""
    return dtype in PARTS


def parts_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The real and the imaginary parts of complex numbers, along a last axis of two."""
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view(array.real.dtype)


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
    for name, other in DTYPES.items():
        if other == dtype:
            return name
    return dtype.name.lower()


def type_string(type_: ir.TypeProtocol | None) -> str | None:
    """A type as schemas write it, such as `seq(tensor(float))`; `None` when it is not known."""
    if isinstance(type_, ir.TensorType | ir.SparseTensorType):
        kind = "tensor" if isinstance(type_, ir.TensorType) else "sparse_tensor"
        return None if type_.dtype == DType.UNDEFINED else f"{kind}({type_.dtype.name.lower()})"
    if isinstance(type_, ir.SequenceType | ir.OptionalType):
        inner = type_string(type_.elem_type)
        kind = "seq" if isinstance(type_, ir.SequenceType) else "optional"
        return None if inner is None else f"{kind}({inner})"
    return None


_BY_TYPE_STRING = {type_string(ir.TensorType(dtype)): dtype for dtype in DType}


def numpy_dtype(type_: str) -> np.dtype[Any] | None:
    """Numpy's dtype for a type such as `tensor(float)`; `None` for what numpy itself has no numbers for."""
    dtype = _BY_TYPE_STRING.get(type_)
    result = None if dtype is None else dtype.numpy()
    return result if result is not None and result.isbuiltin == 1 and result.kind in "biuf" else None
