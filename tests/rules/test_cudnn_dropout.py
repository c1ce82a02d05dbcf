"""Dropout between layers: drawn by the forward op, carried by reserve_space, read by the backward op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from tests.support.cudnn_cases import FORWARD, Case
from tests.support.cudnn_models import attributes_of, node_model, training_model

CASE = Case("lstm", 3, bidirectional=True, ragged=True, steps=20, batch=8)
OPERANDS = CASE.operands(dtype=np.float32)


def forward(**more: Any) -> Any:
    attributes = {**CASE.attributes, "dropout": 0.25, "seed": 87, "seed2": 654, **more}
    return ll.raw_ops.CudnnRNNV3(**{name: OPERANDS[name] for name in FORWARD}, **attributes)


def session(case: Case, operands: dict[str, Any], **attributes: Any) -> ll.Session:
    return ll.Session(ll.lower(training_model(case, operands, **attributes)))


def feed(running: ll.Session, operands: dict[str, Any]) -> dict[str, Any]:
    return running.run({name: operands[name] for name in running.inputs})


@pytest.mark.slow
def test_eager_forward_and_backward() -> None:
    out = forward()
    masks = out.reserve_space
    assert masks.shape == (2 * 20 * 8 * 8,)
    np.testing.assert_allclose(np.unique(masks), [0, 1 / 0.75], rtol=1e-6)
    assert np.mean(masks == 0) == pytest.approx(0.25, abs=0.04)
    first, second = masks.reshape(2, -1)
    assert not np.array_equal(first, second)
    attributes = {**CASE.attributes, "dropout": 0.25}
    expected = cudnn_rnn_v3(**{name: OPERANDS[name] for name in FORWARD}, **attributes, masks=masks)
    for name in ("output", "output_h", "output_c"):
        np.testing.assert_allclose(getattr(out, name), expected[name], rtol=0, atol=2e-6)
    operands = {**OPERANDS, **out._asdict()}
    grads = ll.raw_ops.CudnnRNNBackpropV3(**operands, **attributes)
    for name, value in cudnn_rnn_backprop_v3(**operands, **attributes).items():
        np.testing.assert_allclose(getattr(grads, name), value, rtol=0, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "same"), [((1, 2), True), ((2, 1), False), ((0, 0), False)])
def test_seeds(seeds: tuple[int, int], same: bool) -> None:
    """Two sessions with the same seeds draw the same masks; without seeds each draws its own."""
    case = Case("gru", 2, masks=True, steps=20, batch=8)
    operands = case.operands()
    one = feed(session(case, operands, seed=1, seed2=2), operands)["reserve_space"]
    if seeds == (0, 0):
        one = feed(session(case, operands), operands)["reserve_space"]
    other = feed(session(case, operands, seed=seeds[0], seed2=seeds[1]), operands)["reserve_space"]
    assert np.array_equal(one, other) == same


def test_every_run_draws_anew() -> None:
    """Also when every operand is a constant: no optimiser may draw once for ever."""
    case = Case("gru", 2, masks=True, steps=20, batch=8)
    operands = case.operands()
    model = training_model(case, operands, constants=["input_h", "params", "sequence_lengths"], seed=3)
    running = ll.Session(ll.lower(model))
    drawn = [feed(running, operands)["reserve_space"] for _ in range(2)]
    assert not np.array_equal(*drawn)


@pytest.mark.parametrize(
    "more", [{"dropout": 0.0}, {"is_training": False}, {"dropout": 0.5, "is_training": False}], ids=str
)
def test_no_masks(more: dict[str, Any]) -> None:
    out = forward(**more)
    assert out.reserve_space.shape == (0,)
    expected = cudnn_rnn_v3(**{name: OPERANDS[name] for name in FORWARD}, **CASE.attributes)["output"]
    np.testing.assert_allclose(out.output, expected, rtol=0, atol=2e-6)


def test_one_layer_has_nothing_to_drop() -> None:
    case = Case("lstm")
    operands = {**case.operands(), "reserve_space": np.zeros(0)}
    out = ll.raw_ops.CudnnRNNV3(
        **{name: operands[name] for name in FORWARD}, **{**case.attributes, "dropout": 0.9, "seed": 5}
    )
    np.testing.assert_allclose(
        out.output, cudnn_rnn_v3(**{name: operands[name] for name in FORWARD}, **case.attributes)["output"], rtol=1e-12
    )


def test_everything_dropped() -> None:
    out = forward(dropout=1.0)
    assert out.reserve_space.size == 2 * 20 * 8 * 8
    assert not out.reserve_space.any()
    assert np.isfinite(out.output).all()


FOREIGN = r"reserve_space requires the 120 scaled dropout masks .*lower the forward op in the same graph, or pass masks"


@pytest.mark.slow
def test_foreign_reserve_space() -> None:
    """A buffer that cuDNN filled, or none, cannot stand for masks: in lowering, in a session, and eagerly."""
    case = Case("lstm", 2, bidirectional=True, masks=True)
    operands = case.operands()
    attributes = attributes_of("CudnnRNNBackpropV3", case)
    foreign = {**operands, "reserve_space": np.zeros(77)}
    with pytest.raises(ll.InvalidModelError, match=f"CudnnRNNBackpropV3 'rnn': {FOREIGN}.* got 77 elements"):
        ll.lower(node_model("CudnnRNNBackpropV3", foreign, attributes))
    running = ll.Session(node_model("CudnnRNNBackpropV3", operands, attributes, symbols={"reserve_space": ["R"]}))
    feed(running, operands)
    with pytest.raises(ll.InvalidInputError, match=FOREIGN):
        feed(running, foreign)
    with pytest.raises(ll.InvalidInputError, match=FOREIGN):
        ll.raw_ops.CudnnRNNBackpropV3(**foreign, **case.attributes)


@pytest.mark.slow
def test_without_dropout_any_reserve_space_will_do() -> None:
    case = Case("lstm", 2)
    for reserve_space in (np.zeros(5), np.zeros(()), np.full((2, 3), np.nan)):
        grads = ll.raw_ops.CudnnRNNBackpropV3(**{**case.operands(), "reserve_space": reserve_space}, **case.attributes)
        assert np.isfinite(grads.params_backprop).all()
