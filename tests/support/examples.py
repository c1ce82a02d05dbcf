"""How many examples a test tries: few in the usual run, and as many times more as LSTM_LOWER_EXAMPLES says."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterable, Iterator
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


@contextlib.contextmanager
def named(case: object) -> Iterator[None]:
    """Says of a failure which of a test's cases it is of."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{case}: {error}") from error


def by_op(cases: Iterable[Any]) -> list[Any]:
    """Parameters of an op's cases, a list for each op."""
    found: dict[str, list[Any]] = {}
    for case in cases:
        found.setdefault(case.op, []).append(case)
    return [pytest.param(group, id=op) for op, group in found.items()]


def in_some_forms(cases: Iterable[Any]) -> list[Any]:
    """Parameters of an op's cases, an opset and whether sizes are open: the first in all forms, others in one each.

    Where more examples are asked for, every case in all forms.
    """
    found: dict[tuple[str, tuple[int, bool]], list[Any]] = {}
    seen = collections.Counter[str]()
    for case in cases:
        number = seen[case.op]
        seen[case.op] += 1
        for form in FORMS if number == 0 or TIMES > 1 else FORMS[number % len(FORMS) :][:1]:
            found.setdefault((case.op, form), []).append(case)
    return [pytest.param(group, *form, id=f"{op}-{form[0]}-{form[1]}") for (op, form), group in found.items()]
