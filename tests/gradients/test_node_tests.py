"""ONNX's own node tests as tests of gradients: a few; `python -m tests.gradients.node_tests` runs all."""

from __future__ import annotations

import pytest

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, detached
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


TWICE = [
    "test_gelu_tanh_1",
    "test_layer_normalization_2d_axis0",
    "test_reduce_log_sum_exp_keepdims_random",
    "test_scatter_elements_with_axis",
    "test_gru_defaults",
    "test_convtranspose_group_2",
]


@pytest.mark.parametrize("name", TWICE)
def test_right_twice(name: str) -> None:
    found = outcome(name, twice=True)
    assert found.kind == "right", found.reason


def test_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    registry._load()
    monkeypatch.setitem(registry.differentiates._rules, std.Sin, lambda *given: [given[-1][0]])
    monkeypatch.setattr(registry.differentiates, "_found", {})
    assert outcome("test_sin").kind == "wrong"


def test_finds_what_is_wrong_in_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient that hides what it depends on is right once."""
    registry._load()

    def square(op: std.Mul, b: Builder, dys: registry.Cotangents) -> registry.Gradients:
        return [dys[0] * detached(b.operand(op, 1)), dys[0] * b.operand(op)]

    monkeypatch.setitem(registry.differentiates._rules, std.Mul, square)
    monkeypatch.setattr(registry.differentiates, "_found", {})
    assert outcome("test_mul_example").kind == "right"
    assert outcome("test_mul_example", twice=True).kind == "wrong"
