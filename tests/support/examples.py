"""How many random examples a test tries: few in the usual run, and as many times more as LSTM_LOWER_EXAMPLES says."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("LSTM_LOWER_EXAMPLES", "1"))


def tried(count: int) -> settings:
    """The same examples in every run; however long one takes."""
    return settings(
        max_examples=count * TIMES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
