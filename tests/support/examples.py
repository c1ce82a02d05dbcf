"""How many examples a test tries: few in the usual run, and as many times more as LSTM_LOWER_EXAMPLES says."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("LSTM_LOWER_EXAMPLES", "1"))

# Opsets of a model of one node, and whether its sizes are open.
FORMS = ((13, True), (18, False), (21, True))


def tried(count: int) -> settings:
    """The same examples in every run; however long one takes."""
    return settings(
        max_examples=count * TIMES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )


def in_some_forms(cases: Sequence[Any]) -> list[Any]:
    """Parameters of a case, an opset and whether sizes are open: an op's first case in all forms, others in one each.

    Where more examples are asked for, every case in all forms.
    """
    chosen, seen = [], collections.Counter[str]()
    for case in cases:
        number = seen[case.op]
        seen[case.op] += 1
        forms = FORMS if number == 0 or TIMES > 1 else FORMS[number % len(FORMS) :][:1]
        chosen += [pytest.param(case, *form, id=f"{case.id}-{form[0]}-{form[1]}") for form in forms]
    return chosen
