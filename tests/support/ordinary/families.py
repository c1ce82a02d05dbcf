"""The families of cases: each module of this package with `cases()`, and a recording of its own."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from tests.support import ordinary
from tests.support.ordinary.case import Case

_MODULES = [
    importlib.import_module(f"{ordinary.__name__}.{found.name}")
    for found in pkgutil.iter_modules(ordinary.__path__)
    if found.name != "families"
]
MODULES = {module.__name__.rpartition(".")[2]: module for module in _MODULES if hasattr(module, "cases")}


@cache
def cases(family: str) -> tuple[Case, ...]:
    """A family's cases, by id."""
    found: dict[str, Case] = {}
    for case in MODULES[family].cases():
        assert case.id not in found, f"two cases {case.id}"
        found[case.id] = case
    return tuple(found.values())


def all_cases() -> list[tuple[str, Case]]:
    """Every case with its family."""
    return [(family, case) for family in MODULES for case in cases(family)]
