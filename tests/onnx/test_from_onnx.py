"""Training steps of ONNX models, through the public interface, against steps that numpy takes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training.losses import MSE
from lstm_lower.passes.training.objective import ProbabilitiesWarning
from lstm_lower.records import state
from tests.support.differences import run

LAYER = """
<ir_version: 8, opset_import: ["" : 18]>
layer (float[B,3] x) => (float[B,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0, 1}, float s = {0.5}>
{ a = MatMul(x, w)  c = Add(a, b)  y = Mul(c, s) }
"""

DROPPING = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,3] x) => (float[B,2] y)
    <float[3,2] w = {1, 2, 3, 4, 5, 6}, float ratio = {0.25}, bool training = {1}>
{ a = Dropout(x, ratio, training)  c = MatMul(a, w)  y = Dropout(c, ratio, training) }
"""


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def _data(rows: int) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    return {
        "x": random.standard_normal((rows, 3), np.float32),
        "target": random.standard_normal((rows, 2), np.float32),
    }


def test_steps_of_gradient_descent() -> None:
    step = ll.from_onnx(_model(LAYER), "mse", "sgd")
    assert [value.name for value in step.graph.output[:2]] == ["loss", "y"]
    trainer = ll.Trainer(step)
    w, b = np.arange(1, 7, dtype=np.float64).reshape(3, 2), np.asarray([0.0, 1.0])
    for rows in (4, 1, 7):
        data = _data(rows)
        error = (data["x"] @ w + b) / 2 - data["target"]
        np.testing.assert_allclose(trainer.step(data).loss, (error**2).mean(), rtol=1e-6)
        slope = error / error.size
        w, b = w - 0.01 * data["x"].T @ slope, b - 0.01 * slope.sum(0)
    found = trainer.state_dict()
    np.testing.assert_allclose(found["w"], w, rtol=1e-6)
    np.testing.assert_allclose(found["b"], b, rtol=1e-6)
    # A single number is no weight unless it is named.
    assert "s" not in found


def _absolute(y: Expr, target: Expr) -> Expr:
    return (y - target).abs().sum([0, 1])


@pytest.mark.parametrize("loss", ["mse", MSE(reduction="mean"), _absolute])
def test_losses_by_name_object_and_function(loss: Any) -> None:
    data = _data(5)
    y = run(_model(LAYER), {"x": data["x"]})["y"]
    error = y - data["target"]
    made = run(ll.lower(ll.from_onnx(_model(LAYER), loss, what="forward")), data)
    expected = np.abs(error).sum() if loss is _absolute else (error**2).mean()
    np.testing.assert_allclose(made["loss"], expected, rtol=1e-6)
    np.testing.assert_array_equal(made["y"], y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainable", "chosen"),
    [("w", {"w"}), (["b", "s"], {"b", "s"}), ("*", {"w", "b", "s"}), (lambda name: name != "w", {"b", "s"})],
)
def test_trainable(trainable: Any, chosen: set[str]) -> None:
    step = ll.from_onnx(_model(LAYER), "mse", trainable=trainable, what="gradients")
    made = {value.name for value in step.graph.output} - {"loss", "y"}
    assert made == {f"grad/{name}" for name in chosen}
    assert {value.name for value in step.graph.input} == {"x", "target"} | chosen


def test_a_mask_of_infinities_is_no_weight() -> None:
    model = _model(LAYER.replace("MatMul(x, w)", "MatMul(masked, w)").replace("{ a", "{ masked = Max(x, mask)  a"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-np.inf, 0, 0], np.float32), "mask"))
    step = ll.from_onnx(model, "mse", what="gradients")
    assert {value.name for value in step.graph.output} == {"loss", "y", "grad/w", "grad/b"}
    made = ll.gradient(model, "y", seeds=True)
    assert {value.name for value in made.graph.output} == {"y", "grad/w", "grad/b", "grad/s"}


def test_floats_of_8_bits_are_no_weights() -> None:
    model = _model(LAYER.replace("Mul(c, s)", "Mul(c, wide)").replace("{ a", "{ wide = Cast <to = 1> (narrow)  a"))
    model.graph.initializer.append(
        onnx.helper.make_tensor("narrow", onnx.TensorProto.FLOAT8E4M3FN, [2], bytes([56, 64]), raw=True)
    )
    model.opset_import[0].version = 19
    made = ll.gradient(model, "y", seeds=True)
    assert {value.name for value in made.graph.output} == {"y", "grad/w", "grad/b"}


def test_bfloat16_is_computed_in_float32() -> None:
    model = _model(LAYER)
    for weight in model.graph.initializer:
        rounded = (onnx.numpy_helper.to_array(weight) * 1.01).astype(ml_dtypes.bfloat16)
        weight.CopyFrom(onnx.numpy_helper.from_array(rounded.astype(np.float32), weight.name))
    narrow = onnx.ModelProto.FromString(model.SerializeToString())
    for value in [*narrow.graph.input, *narrow.graph.output]:
        value.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    del narrow.graph.initializer[:]
    for weight in model.graph.initializer:
        rounded = onnx.numpy_helper.to_array(weight).astype(ml_dtypes.bfloat16)
        narrow.graph.initializer.append(onnx.numpy_helper.from_array(rounded, weight.name))
    data = _data(5)
    expected, found = (ll.Trainer(ll.from_onnx(x, "mse", "sgd")) for x in (model, narrow))
    assert found.step(data).loss == expected.step(data).loss
    np.testing.assert_array_equal(found.state_dict()["w"], expected.state_dict()["w"])


def test_gradients_of_inputs() -> None:
    step = ll.from_onnx(_model(LAYER), "mse", what="input_gradient")
    assert [value.name for value in step.graph.output] == ["loss", "y", "grad/x"]
    assert [value.name for value in step.graph.input] == ["x", "target"]


@pytest.mark.slow
def test_dropout_draws_from_a_stream_of_its_own() -> None:
    step = ll.from_onnx(_model(DROPPING), "mse", "sgd")
    data = {"x": np.ones((400, 3), np.float32), "target": np.zeros((400, 2), np.float32)}
    trainers = [ll.Trainer(step) for _ in range(2)]
    drawn = [trainer.step(data, ["y"]).outputs["y"] for trainer in trainers]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert abs((drawn[0] == 0).mean() - 0.25 - 0.75 * 0.25**3) < 0.03
    again = trainers[0].step(data, ["y"]).outputs["y"]
    assert ((again == 0) != (drawn[0] == 0)).mean() > 0.1
    # Whoever goes on from a state draws what would have been drawn.
    trainers[1].load_state_dict(trainers[0].state_dict())
    assert trainers[1].step(data).loss == trainers[0].step(data).loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mze"}, "loss requires one of the model's outputs, y, a loss of"),
        ({"loss": "y"}, "loss requires a scalar, got one of shape"),
        ({"loss": lambda: 0}, "loss requires a function of the model's 1 outputs"),
        (
            {"loss": "mse", "trainable": "v"},
            "trainable requires names or patterns of weights, such as w, b, s, got 'v'",
        ),
        ({"loss": "mse", "what": "all"}, "what requires one of"),
        ({"loss": "mse", "optimizer": "sgd", "what": "forward"}, "optimizer requires what='train', got 'forward'"),
        ({"loss": "mse", "optimizer": "sdg"}, "optimizer requires one of"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_onnx(_model(LAYER), **options)


HEAD = '<ir_version: 8, opset_import: ["" : 18]> agraph (float[B, 3] x) => '
INDICES = f"""{HEAD} (int64[B] i, float[B, 3] p) <float[3] w = {{1, 2, 3}}>
{{ p = Mul(x, w)  i = ArgMax<axis=1, keepdims=0>(p) }}"""
INTEGERS = f"""{HEAD} (float[B, 3] y) <int8[3] q = {{1, 2, 3}}, float s = {{0.5}}>
{{ w = DequantizeLinear(q, s)  y = Mul(x, w) }}"""
CONSTANT = HEAD + "(float[B, 3] y) <float[3] w = {1, 2, 3}> { r = Floor(w)  y = Mul(x, r) }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INDICES, "a floating dtype, got 'i' of INT64; in Python, a function of all outputs and targets takes 'p'"),
        (INTEGERS, "got integers that are dequantized; ll.lora gives these low-rank"),
        (CONSTANT, "got none; trainable chooses among w"),
        (HEAD + "(float[B, 3] y) { y = Abs(x) }", "got a model without initializers of a floating"),
    ],
)
def test_says_what_there_is_in_place_of_weights(text: str, message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_onnx(_model(text), "mse", "sgd")


def test_targets_that_a_function_does_not_read_are_no_inputs() -> None:
    step = ll.from_onnx(_model(INDICES), lambda _i, p, _t, t_p: MSE()(p, t_p), "sgd")
    assert [x.name for x in step.graph.input][:2] == ["x", "target_1"]


@pytest.mark.parametrize("loss", ["mse", lambda y, target: ((y - target) * (y - target)).sum((0, 1)) / 6.0])
def test_an_optional_output_is_the_tensor_in_it(loss: Any) -> None:
    model, data = _model(LAYER), _data(3)
    (plain,) = ll.Session(ll.from_onnx(model, "mse", what="forward")).run(data, ["loss"]).values()
    model.graph.node.append(onnx.helper.make_node("Optional", ["y"], ["z"]))
    wrapped = onnx.helper.make_optional_type_proto(model.graph.output[0].type)
    model.graph.output[0].CopyFrom(onnx.helper.make_value_info("z", wrapped))
    result = ll.Trainer(ll.from_onnx(model, loss, "sgd")).step(data, ["z"])
    assert result.loss == pytest.approx(plain, rel=1e-6)
    assert result.outputs["z"].shape == (3, 2)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("mse", r"loss requires a first output that is a tensor, got 'y' of seq\(tensor\(float\)\); give the model"),
        (lambda _, target: target.sum(0), "loss requires for each target an output that is a tensor, got 'y' of seq"),
    ],
)
def test_a_sequence_is_no_prediction(loss: Any, message: str) -> None:
    text = "<ir_version: 8, opset_import: ['' : 18]> m (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }"
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_onnx(_model(text.replace("'", '"')), loss)


def _with_weights_as_inputs(**outputs: str) -> onnx.ModelProto:
    """A layer as an import writes it with its weights as inputs, which it records; `outputs` has new values of some."""
    model = ir.from_proto(_model(LAYER))
    for name in ("w", "b"):
        model.graph.inputs.append(model.graph.initializers[name])
    for name, output in outputs.items():
        node = ir.node("Identity", [model.graph.initializers[name]])
        node.outputs[0].name, node.outputs[0].type = output, ir.TensorType(ir.DataType.FLOAT)
        node.outputs[0].shape = model.graph.initializers[name].shape
        model.graph.append(node)
        model.graph.outputs.append(node.outputs[0])
    roles: dict[str, state.Role] = dict.fromkeys(outputs, "slot")
    pairs = [
        state.StatePair(name, outputs.get(name), roles.get(name, "weight"), variable=f"layer/{name}")
        for name in ("w", "b")
    ]
    state.write(model, state.TrainingState(tuple(pairs)))
    return ir.to_proto(model)


@pytest.mark.parametrize("trainable", [None, "w"])
def test_weights_that_are_inputs_already(trainable: str | None) -> None:
    """The step is that of the same model with constants, and knows them under their framework's names."""
    ours, expected = (
        ll.Trainer(ll.from_onnx(model, "mse", "sgd", trainable=trainable))
        for model in (_with_weights_as_inputs(), _model(LAYER))
    )
    for rows in (4, 2):
        assert ours.step(_data(rows)).loss == expected.step(_data(rows)).loss
    for name in expected.state_dict():
        np.testing.assert_array_equal(ours.state_dict()[name], expected.state_dict()[name])
    pairs = {pair.input: pair for pair in ours.state.pairs}
    assert (pairs["w"].variable, pairs["b"].variable) == ("layer/w", "layer/b")
    assert (pairs["w"].output is not None, pairs["b"].output is not None) == (True, trainable is None)


@pytest.mark.parametrize(("loss", "made"), [("cross_entropy", "Softmax <axis = 1>"), ("bce_with_logits", "Sigmoid")])
def test_a_loss_of_scores_is_told_of_probabilities(loss: str, made: str, tmp_path: Path) -> None:
    text = LAYER.replace("y = Mul(c, s)", f"z = Mul(c, s)  p = {made} (z)  y = Identity(p)")
    onnx.save(_model(text), tmp_path / "model.onnx")
    with pytest.warns(ProbabilitiesWarning, match="takes scores, and 'y' is S") as told:
        ll.from_onnx(tmp_path / "model.onnx", loss, "sgd")
    (said,) = re.findall(
        r"extract_model\('model.onnx', 'scores.onnx', (\[.*?\]), (\[.*?\]), check_model=F", str(told[0].message)
    )
    files = [str(tmp_path / name) for name in ("model.onnx", "scores.onnx")]
    onnx.utils.extract_model(*files, *map(ast.literal_eval, said), check_model=False)
    ll.from_onnx(files[1], loss, "sgd")
    # Where a model records more than a file that is cut has, it is cut before.
    if loss == "cross_entropy":
        open_head = ll.replace_head(_model(text.replace("z = Mul(c, s)", "").replace("(z)", "(c)")), None)
        with pytest.warns(ProbabilitiesWarning, match=r"ends the file before it; call ll\.replace_head"):
            ll.from_onnx(open_head, loss, "sgd", trainable="head.*")


def test_what_a_model_updates_itself_is_not_trained() -> None:
    step = ll.from_onnx(_with_weights_as_inputs(b="b/new"), "mse", "sgd")
    pairs = {pair.input: pair for pair in state.read(ir.from_proto(step)).pairs}
    assert (pairs["w"].output is not None, pairs["b"].output) == (True, "b/new")
    with pytest.raises(ll.InvalidInputError, match="got a model that has new values of b, w already"):
        ll.from_onnx(_with_weights_as_inputs(w="w/new", b="b/new"), "mse", "sgd")
