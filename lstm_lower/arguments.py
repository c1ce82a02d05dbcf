"""Checks of arguments whose wrong types would fail somewhere inside, in words that name no argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lstm_lower.errors import InvalidInputError


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
    found = list(value)
    for name in found:
        if not isinstance(name, str):
            raise InvalidInputError(f"{what} requires names in a list, got {name!r} in it")
    return found


def whole(what: str, value: object, least: int = 1) -> int:
    """A whole number.

    Raises:
        InvalidInputError: it is none, or too small.
    """
    number = getattr(value, "__index__", None)
    if number is None or isinstance(value, bool) or number() < least:
        raise InvalidInputError(f"{what} requires a whole number, at least {least}, got {value!r}")
    return int(number())
