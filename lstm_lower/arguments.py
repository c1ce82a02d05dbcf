"""Checks of arguments that, if wrong, would fail somewhere inside with a message that names no argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from lstm_lower.errors import InvalidInputError, LstmLowerError, LstmLowerWarning, UnsupportedOpError

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Those of the largest size that ONNX can declare, 2**63 - 1.
_DIGITS = 19


def explained(told: Callable[[Exception], str]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Turns unknown arguments, and what a framework raises unexpectedly, into errors.

    Args:
        told: what is required in place of what such an exception tells, what came, and a way on.

    Returns:
        A decorator. What it decorates raises `InvalidInputError` for arguments that its signature does not have, and
        `UnsupportedOpError` for an exception that is none of ours.
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        names = ", ".join(signature.parameters)

        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise InvalidInputError(f"{function.__name__} requires {names}, got: {error}") from error
            try:
                return function(*args, **kwargs)
            except (LstmLowerError, LstmLowerWarning, MemoryError):
                raise
            except Exception as error:
                raise UnsupportedOpError(f"{function.__name__} requires {told(error)}") from error

        return called

    return decorated


def mapping(what: str, value: object, of: str = "names to arrays") -> Mapping[Any, Any]:
    """A dictionary, or whatever else has keys.

    Args:
        what: the argument.
        value: what came.
        of: what leads to what.

    Raises:
        InvalidInputError: it is none.
    """
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} requires a dictionary of {of}, got {type(value).__name__}")
    return value


def names(what: str, value: object) -> list[str]:
    """Names in a list, tuple or set; a single one stands in none.

    Raises:
        InvalidInputError: it is none, or holds anything but names.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{what} requires names in a list, got {value!r}")
    listed = list(value)
    for name in listed:
        if not isinstance(name, str):
            raise InvalidInputError(f"{what} requires names in a list, got {name!r} in it")
    return listed


def size(text: str) -> int | None:
    """A size in decimal digits; `None` for any other text, and for more digits than those of sizes in ONNX."""
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None


def whole(what: str, value: object, least: int = 1) -> int:
    """A whole number that int64 holds.

    Raises:
        InvalidInputError: it is none, too small or too large.
    """
    number = getattr(value, "__index__", None)
    if number is None or isinstance(value, bool) or not least <= number() < 2**63:
        raise InvalidInputError(f"{what} requires a whole number, at least {least}, got {value!r}")
    return int(number())
