"""Each lowering rule made wrong in turn is seen by a case of the suite."""

from __future__ import annotations

import pytest

from lstm_lower.passes.rules.registry import lowerable
from lstm_lower.registry import key_of
from tests.support import wrong_rules

SLICES = 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLICES))
def test_a_wrong_rule_is_seen(first: int) -> None:
    witnesses = wrong_rules.all_witnesses()
    ours = [op for op in lowerable() if op.__module__.startswith("lstm_lower.")][first::SLICES]
    found = [row for op in ours for row in wrong_rules.rows(op, witnesses.get(key_of(op), ()))]
    assert len(found) >= len(ours)
    assert [row for row in found if not row.seen_by] == []


@pytest.mark.parametrize("op", ["Softsign", "ReluGrad", "LogicalNot", "Shape"])
def test_the_right_rule_fails_no_case(op: str) -> None:
    """Else a wrong one would not be what a case sees."""
    definition = next(found for found in lowerable() if found.op_type == op)
    witnesses = wrong_rules.all_witnesses()[key_of(definition)][:3]
    for _, witness in witnesses:
        witness()
    # Nobody is asked, nobody sees.
    assert [row.seen_by for row in wrong_rules.rows(definition, ())] == [""] * len(definition.outputs)
    assert all(row.seen_by in dict(witnesses) for row in wrong_rules.rows(definition, witnesses))
