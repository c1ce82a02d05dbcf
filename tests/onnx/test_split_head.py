"""Heads that are trained on features that were kept, next to whole models whose other layers are frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.runtime.training import checkpoint
from tests.onnx.test_open_class_count import model as dense
from tests.support.quantized_models import data, quantized

LAYERS = ("transformer", "crnn", "lstm")


def _features(model: onnx.ModelProto, x: Any) -> Any:
    return ll.Session(model).run({"x": x})["features"]


def _predicted(model: onnx.ModelProto, x: Any) -> Any:
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("form", ["float", "dynamic"])
@pytest.mark.parametrize("kind", LAYERS)
def test_losses_are_those_of_a_frozen_trunk(
    kind: str, form: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    whole = ll.replace_head(quantized(kind, form, tmp_path_factory.getbasetemp()), classes=5)
    features, head = ll.split_head(whole)
    x = data(kind)
    target = np.arange(len(x)) % 5
    kept = _features(features, x)
    assert [tensor.name for tensor in head.graph.initializer] == ["head.weight", "head.bias"]
    assert not {"head.weight", "head.bias"} & {tensor.name for tensor in features.graph.initializer}
    trainer = ll.Trainer(ll.from_onnx(head, "cross_entropy", "adam"), learning_rate=0.02)
    frozen = ll.Trainer(ll.from_onnx(whole, "cross_entropy", "adam", trainable="head.*"), learning_rate=0.02)
    losses = [
        [one.step({name: inputs, "target": target}).loss for _ in range(10)]
        for one, name, inputs in ((trainer, "features", kept), (frozen, "x", x))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
    # The whole model again, with the head as it is now: of a trainer, of a checkpoint, of a file of weights.
    trainer.save(tmp_path / "checkpoint.safetensors")
    trainer.save_weights(tmp_path / "weights.safetensors")
    # What a bundle of the head sends back, from wherever it is trained.
    ll.export_training(
        ll.from_onnx(head, "cross_entropy", "adam"), tmp_path / "bundle", files=("init", "train", "predict")
    )
    ll.export_adapter(tmp_path / "bundle", trainer, tmp_path / "adapter.safetensors")
    expected = frozen.predict({"x": x})["y"]
    for given in (trainer, *(tmp_path / f"{name}.safetensors" for name in ("checkpoint", "weights", "adapter"))):
        np.testing.assert_allclose(_predicted(ll.merge(whole, given), x), expected, rtol=1e-3, atol=1e-4)


def test_a_head_as_it_is_and_one_of_an_open_count() -> None:
    """What is before the last layer and that layer, one after the other, are the model."""
    x = np.random.default_rng(5).standard_normal((7, 4), np.float32)
    features, head = ll.split_head(dense())
    (got,) = ort.InferenceSession(head.SerializeToString()).run(None, {"features": _features(features, x)})
    np.testing.assert_allclose(got, _predicted(dense(), x), rtol=1e-6)
    assert head.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "B"
    whole = ll.replace_head(dense(), None, seed=3)
    features, head = ll.split_head(whole)
    assert [value.name for value in features.graph.input] == ["x"]
    trainer = ll.Trainer(ll.from_onnx(head, "cross_entropy", "sgd"), sizes={"classes": 5})
    step = ll.from_onnx(whole, "cross_entropy", "sgd", trainable="head.*")
    frozen = ll.Trainer(step, sizes={"classes": 5})
    target = np.arange(7) % 5
    assert (
        trainer.step({"features": _features(features, x), "target": target}).loss
        == frozen.step({"x": x, "target": target}).loss
    )
    merged = ll.merge(whole, trainer)
    assert [value.name for value in merged.graph.input] == ["x"]
    np.testing.assert_allclose(_predicted(merged, x), frozen.predict({"x": x})["y"], rtol=1e-6, atol=1e-6)


def test_layers_have_their_form_for_inference() -> None:
    """What drops half of the features in training drops none of those that are kept."""
    dropping = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        f (float[B,4] x) => (float[B,3] y, float[B,8] z) <float half = {0.5}, bool yes = {1}>
        { a = MatMul(x, u)  h = Tanh(a)  z = Identity(h)  d = Dropout(h, half, yes)  y = MatMul(d, v) }""")
    dropping.graph.initializer.extend(dense().graph.initializer[1:])
    features, head = ll.split_head(dropping)
    x = np.ones((2, 4), np.float32)
    results = ll.Session(features).run({"x": x})
    assert set(results) == {"features", "z"}
    np.testing.assert_array_equal(results["features"], results["z"])
    assert [value.name for value in head.graph.output] == ["y"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = MatMul(x, w)", "features that the model computes alike each time, got an input"),
        ("n = RandomNormalLike(x)  m = Add(x, n)  y = MatMul(m, w)", "draws random numbers"),
        ("m = MatMul(x, w)  y = Relu(m)", "split_head requires a first output that a product with a matrix makes"),
    ],
)
def test_what_cannot_be_split(body: str, message: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17]> f (float[B,2] x) => (float[B,2] y)
        <float[2,2] w = {{1, 2, 3, 4}}> {{ {body} }}""")
    with pytest.raises(UnsupportedOpError, match=message):
        ll.split_head(model)


def test_what_cannot_be_merged(tmp_path: Path) -> None:
    whole, path = ll.replace_head(dense(), None), tmp_path / "weights.safetensors"
    weight, bias = np.zeros((8, 5), np.float32), np.zeros(5, np.float32)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"other": bias}, "weights of the model are required, .*got 'other'; merge into the model that was trained"),
        ({"head.weight": weight}, r"a value of 'head\.bias' is required"),
        ({"head.weight": weight, "head.bias": bias[:4]}, r"'head\.bias' requires float32\[5\]"),
        ({"head.weight": weight.astype(np.float64), "head.bias": bias}, "requires float32"),
        ({"head.weight": weight, "head.bias": bias, "more": bias}, "got 'more'"),
    ]
    for arrays, message in wrong:
        checkpoint.write_arrays(path, arrays)
        with pytest.raises(InvalidInputError, match=message):
            ll.merge(whole, path)
    with pytest.raises(InvalidInputError, match="an adapter requires the path of a file, or a trainer, got NoneType"):
        ll.merge(whole, None)  # type: ignore[arg-type]
    other = ll.Trainer(ll.from_onnx(ll.split_head(dense())[1], "cross_entropy", "sgd"))
    with pytest.raises(InvalidInputError, match="the trainer: weights of the model are required"):
        ll.merge(whole, other)


def test_a_checkpoint_of_weights_that_the_model_lacks(tmp_path: Path) -> None:
    """They are not left out in silence; what the optimizer keeps is."""
    path = tmp_path / "checkpoint.safetensors"
    whole = ll.replace_head(dense(), 5)
    trainer = ll.Trainer(ll.from_onnx(whole, "cross_entropy", "adam"))
    trainer.save(path)
    features, head = ll.split_head(whole)
    for part, lacking in ((head, "u"), (features, "head.weight")):
        with pytest.raises(
            InvalidInputError, match=f"weights of the model are required, .*got '{lacking}'; merge into"
        ):
            ll.merge(part, path)
    weights = {value.name: onnx.numpy_helper.to_array(value) for value in ll.merge(whole, path).graph.initializer}
    for name, trained in trainer.weights().items():
        np.testing.assert_array_equal(weights[name], trained)
    notes = checkpoint.read(path)[1]
    checkpoint.write(path, checkpoint.read(path)[0], {**notes, "weights": "head.weight"})
    with pytest.raises(InvalidInputError, match="its notes name no weights"):
        ll.merge(head, path)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    x, target = random.standard_normal((20, 4), np.float32), np.arange(20) % 5
    onnx.save(dense(), "model.onnx")
    np.savez("data.npz", x=x, target=target)

    def done(*words: str) -> Any:
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    options = ["--loss", "cross_entropy", "--optimizer", "adam", "--no-plot", "--epochs", "3", "--dim", "classes=5"]
    done("head", "model.onnx", "-o", "whole.onnx", "--seed", "3")
    done("split", "whole.onnx", "-o", "halves")
    kept = ["--keep", "target", "--batch-size", "8"]
    done("run", "halves/features.onnx", "--inputs", "data.npz", *kept, "-o", "features.npz")
    heads = done("train", "halves/head.onnx", "--data", "features.npz", "--out", "run", *options)
    whole = done("train", "whole.onnx", "--data", "data.npz", "--out", "frozen", "--trainable", "head.*", *options)
    np.testing.assert_allclose(heads["loss"], whole["loss"], rtol=1e-5)
    done("merge", "whole.onnx", "run/checkpoint.safetensors", "-o", "tuned.onnx")
    done("merge", "whole.onnx", "frozen/checkpoint.safetensors", "-o", "other.onnx")
    tuned, other = (_predicted(onnx.load(name), x) for name in ("tuned.onnx", "other.onnx"))
    np.testing.assert_allclose(tuned, other, rtol=1e-5, atol=1e-5)
    assert tuned.shape == (20, 5)
    for words, message in (
        (["run", "halves/features.onnx", "--inputs", "data.npz", "--keep", "label"], "--keep requires names"),
        (["merge", "whole.onnx", "data.npz"], "damaged"),
        (["split", "features.npz"], "features.npz"),
        (["head", "model.onnx", "-o", "model.onnx"], "model.onnx"),
    ):
        failed = CliRunner().invoke(app, words)
        assert failed.exit_code == 1, words
        assert message in failed.output
