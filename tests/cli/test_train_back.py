"""`lstm-lower train --back`: from a found file to trained weights in the same form, in one command."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from lstm_lower.checkpoints.bundle import find_checkpoint, open_checkpoint
from lstm_lower.cli.main import app
from lstm_lower.runtime.training import checkpoint
from tests.support import tensorflow_programs
from tests.support.tensorflow_programs import ROWS, SEQUENCES, TARGETS


def train(model: Path, back: Path, *more: object) -> Any:
    words = ["--out", back.parent / "run", "--batch-size", 8, "--no-shuffle", "--no-plot", "--back", back, *more]
    return CliRunner().invoke(app, ["train", str(model), *map(str, words)], env={"COLUMNS": "200"})


def three_batches(path: Path, **batch: Any) -> Path:
    """Three times the same batch."""
    np.savez(path, **{name: np.concatenate([x] * 3) for name, x in batch.items()})
    return path


def product(path: Path, *, as_input: bool) -> Path:
    """A model of one product, whose weight is a constant, or an input with a default."""
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    data = [onnx.helper.make_tensor_value_info("x", 1, ["batch", 3])]
    data += [onnx.helper.make_tensor_value_info("w", 1, [3, 2])] if as_input else []
    result = onnx.helper.make_tensor_value_info("y", 1, ["batch", 2])
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "product", data, [result], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("as_input", [False, True])
def test_an_onnx_file_comes_back_with_trained_weights(as_input: bool, tmp_path: Path) -> None:
    model = product(tmp_path / "model.onnx", as_input=as_input)
    before = onnx.load(model)
    data = three_batches(tmp_path / "data.npz", x=ROWS, target=TARGETS)
    options = ("--loss", "mse", "--optimizer", "sgd", "--learning-rate", 0.1, "--data", data)
    result = train(model, tmp_path / "trained.onnx", *options)
    assert result.exit_code == 0, result.output
    after = onnx.load(tmp_path / "trained.onnx")
    (weight,) = (onnx.numpy_helper.to_array(x) for x in after.graph.initializer)
    np.testing.assert_array_equal(weight, checkpoint.read_arrays(tmp_path / "run" / "checkpoint.safetensors")[0]["w"])
    assert np.abs(weight - 1).max() > 1e-3
    assert after.graph.node == before.graph.node
    assert [x.name for x in after.graph.input] == [x.name for x in before.graph.input]
    refused = train(model, model, *options)
    assert refused.exit_code == 1
    assert "another file than the one that is read" in refused.output
    assert onnx.load(model) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ending", "options"),
    [("plain", ".meta", ("--outputs", "loss:0,train")), ("saved", "", ("--signature", "train"))],
)
def test_a_file_of_tensorflow_comes_back_trained(
    kind: str, ending: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow")
    tensorflow_programs.run(kind, "begin", tmp_path)
    x, suffix = (SEQUENCES, "") if kind == "saved" else (ROWS, ":0")
    # What the step needs not may be fed all the same.
    data = three_batches(tmp_path / "data.npz", **{f"x{suffix}": x, f"y{suffix}": TARGETS, "is_training:0": TARGETS})
    result = train(tmp_path / f"begin{ending}", tmp_path / "trained", "--data", data, *options)
    assert result.exit_code == 0, result.output
    assert f"not read from {data}: is_training:0" in result.output
    (tmp_path / "on").mkdir()
    tensorflow_programs.run(kind, "go_on", tmp_path / "trained", tmp_path / "on")
    read = [open_checkpoint(find_checkpoint(path) or path) for path in (tmp_path / "on" / "after", tmp_path / "six")]
    got, wanted = ({name: each.read(name) for name in each.tensors} for each in read)
    for name, value in wanted.items():
        if not value.dtype.hasobject:
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "back"), [(".keras", ".keras"), (".keras", ".weights.h5"), (".h5", ".h5")])
def test_a_file_of_keras_comes_back_trained(ending: str, back: str, tmp_path: Path) -> None:
    """Three steps here and three in Keras, in a process of its own, are six there."""
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.optimizer.build(model.trainable_variables)
    batch = {"x": SEQUENCES, "y": TARGETS[:, :1]}
    np.savez(tmp_path / "data.npz", **batch)
    data = three_batches(tmp_path / "three.npz", **batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Keras about its older form
        model.save(tmp_path / f"model{ending}")
        # Of a HDF5 file Keras 3 reads no loss, and of an optimizer that is given to the command it has no state.
        compiled = ending == ".keras"
        options = () if compiled else ("--loss", "mse", "--optimizer", "sgd")
        result = train(tmp_path / f"model{ending}", tmp_path / f"trained{back}", "--data", data, *options)
        assert result.exit_code == 0, result.output
        if not compiled:
            optimizer = keras.optimizers.SGD(0.01)
            model.compile(optimizer, "mse")
        for _ in range(3):
            model.train_on_batch(batch["x"], batch["y"])
        three = [variable.numpy() for variable in model.weights]
        for _ in range(3):
            model.train_on_batch(batch["x"], batch["y"])
    if compiled:
        tensorflow_programs.run("keras", "go_on", tmp_path / f"trained{back}", tmp_path)
        with np.load(tmp_path / "after.npz") as after:
            for number, variable in enumerate((*model.weights, *model.optimizer.variables)):
                np.testing.assert_allclose(after[f"arr_{number}"], variable.numpy(), rtol=1e-5, atol=1e-6)
    else:
        again = keras.models.load_model(tmp_path / f"trained{back}", compile=False)
        for variable, value in zip(again.weights, three, strict=True):
            np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_what_does_not_fit_a_file_of_keras_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy about Keras
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", x=ROWS, y=TARGETS)
    for back, options, told in (
        ("trained.onnx", (), "--back requires a name in .keras, .weights.h5, .h5"),
        ("trained.keras", ("--outputs", "y"), "--outputs requires a TensorFlow graph"),
        ("trained.keras", ("--trainable", "dense*"), "--trainable requires an ONNX model"),
        ("trained.keras", (), "optimizer requires a name or a Keras optimizer, got none"),
    ):
        result = train(tmp_path / "model.keras", tmp_path / back, "--data", tmp_path / "data.npz", *options)
        assert result.exit_code == 1
        assert told in " ".join(result.output.split())
        assert not (tmp_path / back).exists()
