"""The inputs and outputs that an onnxruntime session declares, and arrays that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_lower.dtypes import native, numpy_dtype
from lstm_lower.errors import InvalidInputError, InvalidModelError

Array = np.ndarray[Any, Any]


def dtype_of(declared: Any) -> np.dtype[Any] | None:
    """The numpy dtype of an input or output; `None` for strings, sequences and what numpy has no numbers for."""
    return numpy_dtype(declared.type)


def number_dtype(declared: Any) -> np.dtype[Any]:
    """The numpy dtype of an input or output that must have one.

    Raises:
        InvalidModelError: it has none.
    """
    dtype = dtype_of(declared)
    if dtype is None:
        raise InvalidModelError(f"'{declared.name}' requires numbers that numpy has, got {declared.type}")
    return dtype


def signature(declared: Any) -> str:
    """Dtype and shape of an input, such as `float32[batch, 8, 8]`."""
    return f"{dtype_of(declared) or declared.type}[{', '.join(map(str, declared.shape))}]"


def as_feed(value: Any, declared: Any, what: str) -> Any:
    """A value as onnxruntime takes it for an input: an array; of a sequence a list of them; nothing of an optional one.

    Args:
        value: of a tensor as for `as_array`, of a sequence a list or tuple of such, of an optional input also `None`.
        declared: the input.
        what: what it is, for the error.

    Raises:
        InvalidInputError: it is not one for this input.
    """
    kind, is_optional = _inner(declared.type, "optional")
    if is_optional and value is None:
        return None
    element, is_sequence = _inner(kind, "seq")
    if not is_sequence:
        return as_array(value, numpy_dtype(kind), what)
    if not isinstance(value, (list, tuple)):
        more = ", or None" if is_optional else ""
        raise InvalidInputError(f"{what} requires a list of arrays{more}, got {type(value).__name__}")
    return [as_array(one, numpy_dtype(element), f"{what}, element {i},") for i, one in enumerate(value)]


def _inner(type_: str, outer: str) -> tuple[str, bool]:
    """The text within `outer(...)`, and whether it is one."""
    is_one = type_.startswith(f"{outer}(")
    return (type_[len(outer) + 1 : -1] if is_one else type_), is_one


def as_array(value: Any, dtype: np.dtype[Any] | None, what: str) -> Array:
    """A value as an array that onnxruntime can read.

    Args:
        value: an array, or a number or nested list, which have no dtype of their own.
        dtype: the dtype required; `None` takes any.
        what: what it is, for the error.

    Raises:
        InvalidInputError: numpy makes no array of it, or it has another dtype.
    """
    array = native(value, what)
    if dtype is None or array.dtype == dtype:
        return array
    # An array of another dtype is a mistake.
    plain = not isinstance(value, (np.ndarray, np.generic))
    if not plain or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InvalidInputError(f"{what} requires dtype {dtype}, got {array.dtype}")
    converted = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted, array):
        raise InvalidInputError(f"{what} requires numbers that {dtype} holds, got {value}")
    return converted


def shortest(number: Array) -> float:
    """The number with the fewest digits that is this one in its dtype: 0.005, not 0.004999999888."""
    return float(str(number.reshape(-1)[0]))
