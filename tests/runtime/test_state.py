"""The record of training state: what is written is read, survives lowering, and is checked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError
from lstm_lower.records import model_files as model_io
from lstm_lower.records import state
from lstm_lower.records.state import StatePair, TrainingState
from tests.support.training_models import char_lstm, quadratic, recorded_char_lstm


@pytest.mark.parametrize("opset", [None, 20])
def test_state_survives_lowering(opset: int | None) -> None:
    model, data = char_lstm()
    lowered = ll.lower(ir.to_proto(model), opset=opset)
    onnx.checker.check_model(lowered, full_check=True)
    kept = ir.from_proto(lowered)
    assert state.read(kept) == state.read(model)
    for name, tensor in state.initial_values(model).items():
        np.testing.assert_array_equal(state.initial_values(kept)[name].numpy(), tensor.numpy())
    session = ll.Session(lowered)
    assert session.inputs == list(data)
    recorded = recorded_char_lstm()
    for name, array in session.run(data).items():
        np.testing.assert_allclose(array, recorded[f"out:{name}"], rtol=1e-4, atol=1e-6)


def test_defaults_are_no_constants() -> None:
    """Equal defaults stay two inputs, and what is fed counts."""
    model, data = char_lstm()
    twins = {name: np.full(32, 0.25, np.float32) for name in ("wci:0", "wcf:0")}
    for name, array in twins.items():
        state.set_initial_value(model, name, array)
    session = ll.Session(ll.lower(model))
    as_default = session.run(data, ["loss:0"])["loss:0"]
    assert session.run({**data, **twins}, ["loss:0"])["loss:0"] == as_default
    changed = {name: session.run({**data, name: 2 * twins[name]}, ["loss:0"])["loss:0"] for name in twins}
    assert len({float(as_default), *(float(loss) for loss in changed.values())}) == 3


@pytest.mark.slow
def test_external_data_is_loaded_late(tmp_path: Path) -> None:
    model, data = char_lstm()
    model_io.save(model, tmp_path / "train.onnx", external_data=True)
    assert len(list(tmp_path.glob("train.onnx.*.data"))) == 1
    trainer = ll.Trainer(tmp_path / "train.onnx")
    assert trainer.step(data).loss == pytest.approx(float(recorded_char_lstm()["out:loss:0"]), rel=1e-5)


def test_names_say_what_is_not_recorded() -> None:
    model, _ = char_lstm()
    del model.metadata_props[state.METADATA_KEY]
    assert state.read(model) == TrainingState()
    found = state.infer(model)
    assert found.loss == "loss:0"
    assert found.learning_rate == "learning_rate:0"
    assert found.pairs[0] == StatePair("emb:0", "new_emb:0", "weight", "grad_emb:0")
    assert [pair.input for pair in found.pairs] == [
        f"{x}:0" for x in ["emb", "w", "wci", "wcf", "wco", "b", "dense_w", "dense_b"]
    ]


def test_detached_values_must_be_fed() -> None:
    model = quadratic()
    values = state.detach_initial_values(model)
    assert sorted(values) == ["b", "w"]
    assert state.initial_values(model) == {}
    assert ll.Session(model).inputs == ["x", "w", "b"]


def pair(**changes: object) -> TrainingState:
    return TrainingState((StatePair(**{"input": "w", "output": None, "gradient": "grad_w"} | changes),), "loss")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pair(input="v"), "state 'v' must be a graph input"),
        (pair(output="w"), "state 'w': 'w' must be a graph output"),
        (pair(gradient="grad_v"), "state 'w': 'grad_v' must be a graph output"),
        (pair(output="grad_b"), "state 'w' requires shape [3], got [2] after the step"),
        (pair(output="loss"), "state 'w' requires shape [3], got [] after the step"),
        (pair(role="bias"), "state 'w' requires a role of"),
        (TrainingState((), "cost"), "loss 'cost' must be a graph output"),
        (TrainingState((), "loss", "rate"), "learning rate 'rate' must be a graph input"),
        (TrainingState((*pair().pairs, *pair().pairs)), "state input 'w' requires one pair, got 2"),
    ],
)
def test_wrong_state_is_refused(wrong: TrainingState, message: str) -> None:
    model = quadratic()
    before = model.metadata_props[state.METADATA_KEY]
    with pytest.raises(InvalidModelError) as caught:
        state.write(model, wrong)
    assert message in str(caught.value)
    assert model.metadata_props[state.METADATA_KEY] == before


MALFORMED = [
    "{",
    "[]",
    "null",
    "[" * 10**5,
    '{"version": 1}',
    '{"version": 1, "loss": null, "pairs": 3}',
    '{"version": 1, "loss": null, "pairs": ["w"]}',
    '{"version": 1, "loss": null, "pairs": [{"in": 1}]}',
    '{"version": 1, "loss": ["loss"], "pairs": []}',
    '{"version": 1, "loss": null, "pairs": [], "learning_rate": {}}',
    '{"version": 1, "loss": null, "pairs": [{"input": ["w"], "output": null}]}',
    '{"version": 1, "loss": null, "pairs": [{"input": "w", "output": 1}]}',
    '{"version": 1, "loss": null, "pairs": [{"input": "w", "output": null, "role": null}]}',
    '{"version": 1, "loss": null, "pairs": [{"input": "w", "output": null, "gradient": {}}]}',
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_record_is_refused(text: str) -> None:
    model = quadratic()
    model.metadata_props[state.METADATA_KEY] = text
    for use in (state.read, ll.Trainer):
        with pytest.raises(InvalidModelError, match="requires the documented form"):
            use(model)


def test_newer_version_is_refused() -> None:
    model = quadratic()
    record = json.loads(model.metadata_props[state.METADATA_KEY])
    model.metadata_props[state.METADATA_KEY] = json.dumps({**record, "version": 2})
    with pytest.raises(InvalidModelError, match="requires version 1, got 2"):
        state.read(model)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("w", np.zeros(4, np.float32), r"'w' requires shape \[3\], got \[4\]"),
        ("w", np.zeros(3, np.float64), "'w' requires dtype FLOAT, got DOUBLE"),
        ("q", np.zeros(3, np.float32), "'q' must be a graph input"),
    ],
)
def test_wrong_initial_value_is_refused(name: str, array: np.ndarray, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InvalidModelError, match=message):
        state.set_initial_value(quadratic(), name, array)
