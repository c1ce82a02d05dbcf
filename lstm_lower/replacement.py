"""Replaces an attribute of a foreign object or class for a while (monkey-patching)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Puts a value in an attribute's place within the block; one that is inherited is inherited again afterwards."""
    own = name in vars(holder)
    before = vars(holder)[name] if own else None
    setattr(holder, name, value)
    try:
        yield
    finally:
        if own:
            setattr(holder, name, before)
        else:
            delattr(holder, name)


@contextlib.contextmanager
def standing_in(holder: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Puts attributes in an object's own within the block, past what its class does when one is set."""
    before = dict(vars(holder)) if attributes else {}
    if attributes:
        vars(holder).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                vars(holder)[name] = before[name]
            else:
                del vars(holder)[name]


@contextlib.contextmanager
def names_added(names: dict[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Puts values under names that are not there yet, as of a module's globals, within the block."""
    added = {name: value for name, value in values.items() if name not in names}
    names.update(added)
    try:
        yield
    finally:
        for name in added:
            del names[name]
