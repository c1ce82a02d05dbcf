"""Plug-in providers in tests: which of them run on this machine."""

from __future__ import annotations

import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime import providers
from lstm_lower.runtime.provider_table import ROWS

PLUGINS = [row.short for row in ROWS if row.plugin is not None]


def needs(short: str) -> None:
    """Skips a test of a plug-in that is not installed, or has no device on a machine of this maker."""
    row = next(row for row in ROWS if row.short == short)
    assert row.plugin is not None
    pytest.importorskip(row.plugin.package)
    if not runs_here(short):
        pytest.skip(f"{short} runs on {row.plugin.machines}")


def runs_here(short: str) -> bool:
    """Whether an installed plug-in has a device on this machine."""
    try:
        providers.resolve([short])
    except InvalidInputError:
        return False
    return True
