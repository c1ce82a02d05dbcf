"""What evaluates a step: recorded where it is made, derived where it is certain, refused elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.passes.training.evaluation import evaluation_of, prediction_of, predictions_of
from lstm_lower.records import attachments, evaluation, model_files
from lstm_lower.records import state as training_state
from tests.support.differences import run
from tests.support.training_models import GRAPHS, quadratic

NORMALIZED = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,3] x) => (float[B,2] y)
    <float[3] scale = {1, 2, 3}, float[3] shift = {0, 1, 0}, float[3] mean = {1, 0, -1}, float[3] variance = {1, 2, 3},
     float[3,2] w = {1, 2, 3, 4, 5, 6}, float ratio = {0.25}, bool training = {1}>
{ a, m, v = BatchNormalization <training_mode = 1> (x, scale, shift, mean, variance)
  c = Dropout(a, ratio, training)  y = MatMul(c, w) }
"""

NOISY = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,3] x) => (float[B,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}>
{ noise = RandomNormalLike(x)  n = Add(x, noise)  y = MatMul(n, w) }
"""


def _trainer(step: onnx.ModelProto) -> tuple[ll.Trainer, ir.Model]:
    return ll.Trainer(step), evaluation_of(model_files.load(step))


def test_layers_are_evaluated_in_their_form_for_inference() -> None:
    trainer, found = _trainer(ll.from_onnx(onnx.parser.parse_model(NORMALIZED), "mse", "sgd"))
    random = np.random.default_rng(0)
    data = {"x": random.standard_normal((5, 3), np.float32), "target": random.standard_normal((5, 2), np.float32)}
    trainer.step(data)
    state = trainer.state_dict()
    inputs = {str(value.name) for value in found.graph.inputs}
    assert inputs == {"x", "target", "scale", "shift", "mean", "variance", "w"}
    made = ll.Session(ll.lower(found)).run(data | {name: x for name, x in state.items() if name in inputs})
    centred = (data["x"] - state["mean"]) / np.sqrt(state["variance"] + 1e-5)
    y = (centred * state["scale"] + state["shift"]) @ state["w"]
    np.testing.assert_allclose(made["y"], y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made["loss"], ((y - data["target"]) ** 2).mean(), rtol=1e-5)
    assert predictions_of(found) == ["y"]
    assert {value.name for value in prediction_of(found).graph.inputs} == {
        "x",
        "scale",
        "shift",
        "mean",
        "variance",
        "w",
    }


def test_what_is_random_by_nature_is_refused_by_name() -> None:
    step = ll.from_onnx(onnx.parser.parse_model(NOISY), "mse", "sgd")
    assert evaluation.METADATA_KEY not in {entry.key for entry in step.metadata_props}
    with pytest.raises(UnsupportedOpError, match=r"RandomNormalLike .*random numbers"):
        evaluation_of(model_files.load(step))


def _frozen() -> onnx.ModelProto:
    """A layer behind a large constant, which is not trained."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        layer (float[B,400] x) => (float[B,2] y) <float[2] b = {0, 1}>
        { a = MatMul(x, fixed)  y = Add(a, b) }"""
    )
    fixed = np.random.default_rng(0).standard_normal((400, 2), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(fixed, "fixed"))
    return model


@pytest.mark.parametrize("lost", [False, True])
def test_constants_stand_in_the_step_alone_as_long_as_it_has_them(*, lost: bool) -> None:
    step = ll.from_onnx(_frozen(), "mse", "sgd", trainable="b")
    (record,) = [entry.value for entry in step.metadata_props if entry.key == evaluation.METADATA_KEY]
    assert "fixed" in record
    if lost:
        # What a pass makes another constant of goes into the record.
        loaded = model_files.load(step)
        kept = attachments.references(loaded)
        loaded.graph.initializers["fixed"].name = "moved"
        with pytest.raises(InvalidModelError, match="constant 'fixed'"):
            evaluation.of(loaded)
        attachments.restore(loaded, kept)
    else:
        loaded = model_files.load(ll.lower(step))
    x, target = np.ones((3, 400), np.float32), np.zeros((3, 2), np.float32)
    found = evaluation.of(loaded)
    assert found is not None
    b = np.asarray([1, 2], np.float32)
    made = run(ir.to_proto(found), {"x": x, "target": target, "b": b})
    np.testing.assert_allclose(made["y"], run(_frozen(), {"x": x})["y"] - [0, 1] + b, rtol=1e-5)


def test_forward_part_of_a_step_that_records_nothing() -> None:
    found = evaluation_of(quadratic())
    assert [value.name for value in found.graph.outputs] == ["loss", "distance"]
    assert [value.name for value in found.graph.inputs] == ["x", "w", "b"]
    assert predictions_of(found) == ["distance"]
    step = model_files.load(GRAPHS / "char_lstm_train.onnx")
    found = evaluation_of(step)
    state = training_state.of(step)
    assert state.loss in [value.name for value in found.graph.outputs]
    assert not {value.name for value in found.graph.outputs} & {pair.output for pair in state.pairs}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("{", "the documented form"), ('{"version":7,"constants":{}}', "version 1, got 7"),
     ('{"version":1,"constants":{},"model":"AAAA"}', "the documented form")],
)  # fmt: skip
def test_malformed_records(wrong: str, message: str) -> None:
    step = model_files.load(ll.from_onnx(_frozen(), "mse", trainable="b"))
    step.metadata_props[evaluation.METADATA_KEY] = wrong
    with pytest.raises(InvalidModelError, match=message):
        evaluation.of(step)


def _counted(model: ir.Model) -> ir.Model:
    """A step whose running sum of data follows them without a gradient."""
    with_sum = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        q (float[3] x, float[3] w, float[3] sum) => (float loss, float[3] grad_w, float[3] new_sum)
        { r = Sub (w, x)  s = Mul (r, r)  loss = ReduceSum <keepdims = 0> (s)  grad_w = Add (r, r)
          new_sum = Add (sum, x) }"""
    )
    return ir.from_proto(with_sum)


def test_state_that_follows_the_data_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="state 'sum', which follows the data"):
        evaluation_of(_counted(quadratic()))
