"""Replaces an attribute of a foreign object or class for a while (monkey-patching)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
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
def all_replaced(*values: tuple[Any, str, Any]) -> Iterator[None]:
    """Puts values in the places of several attributes: holder, name and value of each."""
    with contextlib.ExitStack() as held:
        for each in values:
            held.enter_context(replaced(*each))
        yield


@contextlib.contextmanager
def contents_kept(*held: dict[Any, Any] | list[Any] | set[Any]) -> Iterator[None]:
    """Undoes what the block does to containers themselves, such as dictionaries of objects' attributes."""
    before = [(each, dict(each) if isinstance(each, dict) else list(each)) for each in held]
    try:
        yield
    finally:
        for each, kept in before:
            each.clear()
            (each.extend if isinstance(each, list) else each.update)(kept)


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
def names_added(holders: Iterable[dict[str, Any]], values: Mapping[str, Any]) -> Iterator[None]:
    """Puts values under names that are not there yet, as of modules' globals, within the block."""
    added = []
    try:
        for names in holders:
            for name in values.keys() - names.keys():
                names[name] = values[name]
                added.append((names, name))
        yield
    finally:
        for names, name in added:
            del names[name]
