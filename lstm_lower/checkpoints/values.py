"""Dtypes and constants of TensorFlow's messages as ONNX and numpy have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.checkpoints.messages import DataType, attribute
from lstm_lower.errors import InvalidModelError, UnsupportedOpError

Array = np.ndarray[Any, Any]

STRING: int = DataType.Value("DT_STRING")
RESOURCE: int = DataType.Value("DT_RESOURCE")

# The last version of graphs in which a placeholder could not be told to be a scalar.
_LAST_WITHOUT_SCALARS = 21

# A dtype of a reference to a variable is the variable's plus this.
_REFERENCE = 100

_ONNX = {
    "DT_FLOAT": ir.DataType.FLOAT,
    "DT_DOUBLE": ir.DataType.DOUBLE,
    "DT_INT32": ir.DataType.INT32,
    "DT_UINT8": ir.DataType.UINT8,
    "DT_INT16": ir.DataType.INT16,
    "DT_INT8": ir.DataType.INT8,
    "DT_STRING": ir.DataType.STRING,
    "DT_COMPLEX64": ir.DataType.COMPLEX64,
    "DT_INT64": ir.DataType.INT64,
    "DT_BOOL": ir.DataType.BOOL,
    "DT_BFLOAT16": ir.DataType.BFLOAT16,
    "DT_UINT16": ir.DataType.UINT16,
    "DT_COMPLEX128": ir.DataType.COMPLEX128,
    "DT_HALF": ir.DataType.FLOAT16,
    "DT_UINT32": ir.DataType.UINT32,
    "DT_UINT64": ir.DataType.UINT64,
    "DT_FLOAT8_E5M2": ir.DataType.FLOAT8E5M2,
    "DT_FLOAT8_E4M3FN": ir.DataType.FLOAT8E4M3FN,
}
_TO_ONNX: dict[int, ir.DataType] = {DataType.Value(name): dtype for name, dtype in _ONNX.items()}
_FROM_ONNX = {dtype: number for number, dtype in _TO_ONNX.items()}

# Where a tensor lists its values; integers of up to 32 bits share one list.
_LISTS = {
    ir.DataType.FLOAT: "float_val",
    ir.DataType.DOUBLE: "double_val",
    ir.DataType.STRING: "string_val",
    ir.DataType.COMPLEX64: "scomplex_val",
    ir.DataType.INT64: "int64_val",
    ir.DataType.BOOL: "bool_val",
    ir.DataType.COMPLEX128: "dcomplex_val",
    ir.DataType.FLOAT16: "half_val",
    ir.DataType.BFLOAT16: "half_val",
    ir.DataType.UINT32: "uint32_val",
    ir.DataType.UINT64: "uint64_val",
    ir.DataType.FLOAT8E5M2: "float8_val",
    ir.DataType.FLOAT8E4M3FN: "float8_val",
}

# A message holds no more, and so no graph that TensorFlow wrote has a larger constant, however short its list is.
_LARGEST = 2**31

_MOST_COMPARED = 2**16


def base_dtype(number: int) -> int:
    """A dtype without the mark of a reference."""
    return number - _REFERENCE if number > _REFERENCE else number


def onnx_dtype(number: int) -> ir.DataType | None:
    """ONNX's dtype for one of TensorFlow, reference or not; `None` where it has none."""
    return _TO_ONNX.get(base_dtype(number))


def is_foreign(number: int) -> bool:
    """Whether a dtype is one of texts, handles or variants, which a model does not hold; 0 stands for any."""
    return number != 0 and onnx_dtype(number) in (None, ir.DataType.STRING)


def tensorflow_dtype(dtype: ir.DataType) -> int:
    """TensorFlow's number for ONNX's dtype.

    Raises:
        UnsupportedOpError: it has none.
    """
    found = _FROM_ONNX.get(dtype)
    if found is None:
        raise UnsupportedOpError(f"a dtype that TensorFlow has is required, got {dtype.name}")
    return found


def numpy_dtype(number: int, what: str) -> np.dtype[Any]:
    """Numpy's dtype for one of TensorFlow; `object` for strings.

    Raises:
        InvalidModelError: there is none; `what` begins the message.
    """
    found = onnx_dtype(number)
    if found is None:
        raise InvalidModelError(f"{what} requires a dtype of numbers, bools or strings, got {dtype_text(number)}")
    return np.dtype(object) if found == ir.DataType.STRING else found.numpy()


def dtype_text(number: int) -> str:
    """A dtype for messages and listings: `float32`, `resource`."""
    number = base_dtype(number)
    found = _TO_ONNX.get(number)
    if found is not None:
        return "string" if found == ir.DataType.STRING else found.numpy().name
    try:
        return str(DataType.Name(number)).removeprefix("DT_").lower()
    except ValueError:
        return f"DataType {number}"


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """Sizes of a TensorShapeProto, `None` for one that is open; `None` for a shape of unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(dim.size if dim.size >= 0 else None for dim in proto.dim)


def placeholder_shape(node: Any, producer: int) -> tuple[int | None, ...] | None:
    """Sizes of a Placeholder, by the version of its graph's format: before 22 a scalar's shape stood for any."""
    shape = shape_of(attribute(node, "shape").shape) if "shape" in node.attr else None
    return None if shape == () and producer <= _LAST_WITHOUT_SCALARS else shape


def known_shape(proto: Any, what: str) -> tuple[int, ...]:
    """Sizes of a shape of which none may be open.

    Raises:
        InvalidModelError: one is, or the rank; `what` begins the message.
    """
    if proto.unknown_rank or any(dim.size < 0 for dim in proto.dim):
        got = "an unknown rank" if proto.unknown_rank else [dim.size for dim in proto.dim]
        raise InvalidModelError(f"{what} requires a shape of known sizes, got {got}")
    return tuple(dim.size for dim in proto.dim)


def tensor_value(proto: Any, what: str = "a tensor") -> Array:
    """The value of a TensorProto; strings are bytes in an array of objects. It may be a view that cannot be written.

    Args:
        proto: the tensor.
        what: what it is, the beginning of the errors.

    Raises:
        InvalidModelError: dtype, shape and content do not fit each other.
    """
    dtype = numpy_dtype(proto.dtype, what)
    shape = known_shape(proto.tensor_shape, what)
    return array_of(proto, dtype, proto.dtype, shape, what)


def only_number(node: Any) -> float | None:
    """The number that every element of a Const is; `None` where they differ, are complex, or are too many to look."""
    try:
        array = tensor_value(attribute(node, "value").tensor)
    except InvalidModelError:
        return None
    if not 0 < array.size <= _MOST_COMPARED or array.dtype.hasobject or np.iscomplexobj(array):
        return None
    first = array.flat[0]
    return float(first) if (array == first).all() else None


def array_of(proto: Any, dtype: np.dtype[Any], number: int, shape: Sequence[int], what: str) -> Array:
    """What a TensorProto holds, where its dtype and shape stand elsewhere; arguments and errors as `tensor_value`'s."""
    count = math.prod(shape)
    width = max(dtype.itemsize, 1)
    if count * width > _LARGEST:
        raise InvalidModelError(f"{what} requires at most 2 GB, got shape {list(shape)} of {dtype_text(number)}")
    if proto.tensor_content:
        if dtype.hasobject or len(proto.tensor_content) != count * width:
            got = f"{len(proto.tensor_content)} for shape {list(shape)} of {dtype_text(number)}"
            raise InvalidModelError(f"{what} requires {count * width} bytes, got {got}")
        flat = np.frombuffer(proto.tensor_content, dtype.newbyteorder("<")).astype(dtype, copy=False)
    else:
        flat = _listed(proto, dtype, number)
        if len(flat) > count:
            raise InvalidModelError(f"{what} requires {count} values for shape {list(shape)}, got {len(flat)}")
        flat = _filled(flat, dtype, count)
    try:
        return flat.reshape(shape)
    except ValueError as error:
        raise InvalidModelError(f"{what} requires a shape that numpy can hold, got {list(shape)}") from error


def _filled(flat: Array, dtype: np.dtype[Any], count: int) -> Array:
    """A list of values at its full length: the last one stands for all that follow, zeros for an empty list."""
    if len(flat) == count:
        return flat
    # One that is used is charged; it may be looked at more than once.
    budget.check("a constant of fewer values than its shape has", "bytes", (count - len(flat)) * dtype.itemsize)
    last = flat[-1:] if len(flat) else np.array([b""] if dtype.hasobject else [0], dtype)
    if len(flat) <= 1:
        return np.broadcast_to(last, (count,))
    return np.concatenate([flat, np.broadcast_to(last, (count - len(flat),))])


def _listed(proto: Any, dtype: np.dtype[Any], number: int) -> Array:
    onnx = _TO_ONNX[base_dtype(number)]
    name = _LISTS.get(onnx, "int_val")
    given = getattr(proto, name)
    if name == "float8_val":
        return np.frombuffer(given, np.uint8).view(dtype)
    if name == "half_val":
        return np.array(given, np.int64).astype(np.uint16).view(dtype)
    if name in ("scomplex_val", "dcomplex_val"):
        return np.array(given[: len(given) // 2 * 2], np.float64).astype(_part(dtype)).view(dtype)
    if name == "string_val":
        texts = np.empty(len(given), object)
        texts[:] = list(given)
        return texts
    # Narrow integers are stored as wide ones.
    return np.array(given, np.int64).astype(dtype) if name == "int_val" else np.array(given, dtype)


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype.itemsize == np.dtype(np.complex64).itemsize else np.float64)
