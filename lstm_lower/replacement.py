"""Replaces an attribute of a foreign object or class for a while (monkey-patching)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
