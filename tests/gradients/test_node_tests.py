"""ONNX's own node tests as tests of gradients: a few; `python -m tests.gradients.node_tests` runs all."""

from __future__ import annotations

import pytest

from lstm_lower.graph import standard as std
from lstm_lower.passes.gradients import registry
from tests.support.node_gradients import outcome

TESTS = [
    "test_add_bcast",
    "test_relu",
    "test_sin",
    "test_matmul_4d",
    "test_reduce_mean_default_axes_keepdims_random",
    "test_softmax_axis_1",
    "test_concat_3d_axis_1",
    "test_gather_negative_indices",
    "test_transpose_all_permutations_4",
    "test_expand_dim_changed",
]


@pytest.mark.parametrize("name", TESTS)
def test_right(name: str) -> None:
    found = outcome(name)
    assert found.kind == "right", found.reason


def test_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    registry._load()
    monkeypatch.setitem(registry.differentiates._rules, std.Sin, lambda _, n: [n.dy])
    monkeypatch.setattr(registry.differentiates, "_found", {})
    assert outcome("test_sin").kind == "wrong"
