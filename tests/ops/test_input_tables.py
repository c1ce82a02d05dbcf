"""The tables of good and bad inputs are what they claim, apart from any implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.bad_inputs import BAD_INPUTS, GOOD_INPUTS, TABLE, GoodInput
from tests.support.op_inputs import ATTRIBUTES, OPS, SHAPES, valid_inputs

Signature = dict[str, Any]


def signature(call: dict[str, Any]) -> Signature:
    """What verification can see of a call."""
    shown = {}
    for name, value in call.items():
        array = isinstance(value, np.ndarray)
        scalar = value.item() if array and value.ndim == 0 and value.dtype.kind == "i" else None
        shown[name] = (value.shape, value.dtype, scalar) if array else value
    return shown


def test_ids_are_unique() -> None:
    for table in (BAD_INPUTS, GOOD_INPUTS):
        ids = [(row.op, row.id) for row in table]
        assert len(set(ids)) == len(ids)


def test_every_operand_and_attribute_is_touched_in_every_way() -> None:
    touched = {(row.op, row.fault, row.kind) for row in BAD_INPUTS}
    for op in OPS:
        for name, shape in SHAPES[op].items():
            for kind in ("rank", "dtype", "missing", *(["size"] if shape else [])):
                assert (op, name, kind) in touched, (op, name, kind)
        for name in ATTRIBUTES[op]:
            assert (op, name, "attribute") in touched, (op, name)
    assert {row.op for row in TABLE} == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_a_bad_row_changes_what_it_says_and_no_more(op: str) -> None:
    valid = valid_inputs(op)
    before = signature(valid)
    for row in BAD_INPUTS:
        if row.op == op:
            changed = signature(row.change(valid))
            assert signature(valid) == before, "the argument is left alone"
            differing = {name for name in before.keys() | changed.keys() if before.get(name) != changed.get(name)}
            assert row.fault in differing, row.id
            if not row.id.startswith(("all operands", "float64 inputs", "half inputs")):
                assert differing <= {row.fault, "use_peephole"}, row.id


@pytest.mark.parametrize("row", GOOD_INPUTS, ids=lambda row: f"{row.op}: {row.id}")
def test_a_good_row_is_fine_with_the_oracle(row: GoodInput) -> None:
    for value in ORACLES[row.op](**row.change(valid_inputs(row.op))).values():
        assert np.isfinite(value).all()


@pytest.mark.parametrize("op", OPS)
def test_operands_depend_on_the_seed_alone(op: str) -> None:
    first, again, other = valid_inputs(op, seed=3), valid_inputs(op, seed=3), valid_inputs(op, seed=4)
    for name in SHAPES[op]:
        np.testing.assert_array_equal(first[name], again[name])
        if name != "seq_len_max":
            assert (first[name] != other[name]).all()


def test_operands_lie_in_the_range_of_their_functions() -> None:
    call = valid_inputs("BlockLSTMGrad", T=20)
    for name, low in (("i", 0), ("f", 0), ("o", 0), ("ci", -1), ("co", -1), ("h", -1)):
        assert low <= call[name].min() < low + 0.1
        assert 0.9 < call[name].max() <= 1
    assert valid_inputs("BlockLSTMGrad", T=20, style="wild")["i"].min() < -1.4
