"""Numbers that these tests draw are the same in each run, whichever tests ran before."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _drawn_alike() -> None:
    if (torch := sys.modules.get("torch")) is not None:  # without PyTorch these tests are skipped
        torch.manual_seed(0)
