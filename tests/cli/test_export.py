"""`lstm-lower export`, and what `lower --state` makes of initial values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.runtime.training import page
from tests.support.bundles import batch, classifier
from tests.support.command_line import TRAIN, fail, run, succeed
from tests.support.training_models import recorded_char_lstm

DATA = Path(__file__).parents[1] / "data"
FORECASTER = Path(__file__).parents[2] / "examples/torch_forecaster/forecaster.onnx"


@pytest.mark.slow
def test_export(tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "step.onnx")
    text = succeed("export", tmp_path / "step.onnx")
    assert "data: x Bx6, target B" in text
    about = json.loads((tmp_path / "step.bundle" / "training.json").read_text())
    assert set(about["files"]) == {"init", "train", "eval", "predict"}
    data = json.loads(succeed("export", tmp_path / "step.onnx", "-o", tmp_path / "b", "--files", "train", "--json"))
    assert data["files"] == ["train.onnx", "training.json"]
    assert {path.name for path in (tmp_path / "b").iterdir()} == set(data["files"])


@pytest.mark.slow
def test_export_of_trained_state(tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "step.onnx")
    trainer = ll.Trainer(tmp_path / "step.onnx")
    trainer.step(batch(0))
    trainer.save(tmp_path / "checkpoint.safetensors")
    succeed("export", tmp_path / "step.onnx", "-o", tmp_path / "b", "--trained", tmp_path / "checkpoint.safetensors")
    predict = onnx.load(tmp_path / "b" / "predict.onnx")
    (w,) = [onnx.numpy_helper.to_array(x) for x in predict.graph.initializer if x.name == "w"]
    np.testing.assert_array_equal(w, trainer.state_dict()["w"])


@pytest.mark.slow
def test_export_of_a_step_that_records_nothing(tmp_path: Path) -> None:
    fed = ("in:ids:0", "in:labels:0", "in:learning_rate:0")
    recorded = {name: value for name, value in recorded_char_lstm().items() if name[:3] == "in:" and name not in fed}
    np.savez(tmp_path / "weights.npz", **recorded)
    options = ("--initial", tmp_path / "weights.npz", "--learning-rate", 0.1, "--files", "init,train,eval")
    succeed("export", TRAIN, "-o", tmp_path / "b", *options)
    about = json.loads((tmp_path / "b" / "training.json").read_text())
    assert about["loss"] == "loss:0"
    assert about["learning_rate"] == {"name": "learning_rate:0", "dtype": "float32", "shape": [], "value": 0.1}
    values = {name.removeprefix("in:"): value for name, value in recorded.items()}
    ll.Trainer(TRAIN, initial_values=values, learning_rate=0.1).save(tmp_path / "trained")
    succeed("export", TRAIN, "-o", tmp_path / "d", "--trained", tmp_path / "trained", *options[4:])
    assert (tmp_path / "d" / "init.onnx").read_bytes() == (tmp_path / "b" / "init.onnx").read_bytes()
    assert "weights.npz: a complete checkpoint" in fail("export", TRAIN, "--trained", tmp_path / "weights.npz")
    text = fail("export", TRAIN, "-o", tmp_path / "c")
    assert "init requires a value of every state" in text
    assert not (tmp_path / "c").exists()
    assert "files requires" in fail("export", TRAIN, "-o", tmp_path / "c", "--files", "train,test")


@pytest.mark.slow
def test_training_of_any_model(tmp_path: Path) -> None:
    model = FORECASTER
    options = ("--loss", "mse", "--optimizer", "sgd", "--learning-rate", 0.1, "--trainable", "head.*")
    past, target = np.ones((8, 3, 1), np.float32), np.ones((8, 24), np.float32)
    np.savez(tmp_path / "data.npz", past=past, target=target)
    run_folder, bundle = tmp_path / "run", tmp_path / "bundle"
    arguments = ("train", model, "--data", tmp_path / "data.npz", "--batch-size", 8, "--no-plot", "--out", run_folder)
    assert run(*arguments, *options).exit_code == 0
    succeed("export", model, "-o", bundle, *options, "--trained", run_folder / "best.safetensors")
    pairs = json.loads((bundle / "training.json").read_text())["state"]
    assert {pair["input"] for pair in pairs if pair["role"] == "weight"} == {"head.weight", "head.bias"}
    step = ll.Trainer(ll.from_onnx(model, "mse", trainable=["head.*"]), optimizer="sgd", learning_rate=0.1)
    step.step({"past": past, "target": target})
    ((held,),) = [ort.InferenceSession(bundle / "predict.onnx").run(None, {"past": past})]
    np.testing.assert_allclose(held, next(iter(step.predict({"past": past}).values())), rtol=1e-6)
    assert "loss requires mse, as the run there has it, got l1" in fail(*arguments, *options, "--loss", "l1")
    assert "(--loss and --optimizer)" in fail(*arguments)
    assert "--loss and --optimizer too" in fail("export", model, "-o", tmp_path / "c")
    assert "--loss requires --optimizer" in fail("export", model, "-o", tmp_path / "c", "--loss", "mse")
    assert "--trainable requires --loss" in fail("export", model, "-o", tmp_path / "c", "--trainable", "head.*")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_export_of_a_tensorflow_graph(tmp_path: Path) -> None:
    model, folder = DATA / "graphs/block_lstm_train.saved_model", tmp_path / "b"
    options = ("--signature", "train_assign", "-o", folder)
    text = run("export", model, *options).stderr
    assert "predictions require a step made of a model with outputs" in text
    assert "files without 'predict' exports the rest" in text
    result = run("export", model, *options, "--files", "init,train,eval")
    assert result.exit_code == 0, result.output
    about = json.loads((folder / "training.json").read_text())
    sessions = {name: ort.InferenceSession(folder / f"{name}.onnx") for name in ("init", "train", "eval")}
    names = [pair["input"] for pair in about["state"]]
    state = dict(zip(names, sessions["init"].run(names, {}), strict=True))
    data = {entry["name"]: np.ones((5, 2), entry["dtype"]) for entry in about["data"]}
    (trained,) = sessions["train"].run([about["loss"]], state | data)
    state = {name: state[name] for name in about["eval"]["state"]}
    (evaluated,) = sessions["eval"].run([about["loss"]], state | data)
    np.testing.assert_allclose(evaluated, trained, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["lower", "optimize", "gradient"])
@pytest.mark.parametrize(("form", "defaults"), [(None, True), ("defaults", True), ("inputs", False)])
def test_commands_say_which_files_not_every_runtime_can_train(
    tmp_path: Path, command: str, form: str | None, *, defaults: bool
) -> None:
    onnx.save(classifier(), tmp_path / "step.onnx")
    result = run(command, tmp_path / "step.onnx", "-o", tmp_path / "low.onnx", *(["--state", form] if form else []))
    assert result.exit_code == 0
    assert ("cannot feed" in result.stderr) is (form is None)
    made = onnx.load(tmp_path / "low.onnx")
    held = {tensor.name for tensor in made.graph.initializer} & {value.name for value in made.graph.input}
    assert bool(held) is defaults


def test_state_requires_a_form(tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "step.onnx")
    assert "--state requires inputs, defaults or INPUT=OUTPUT" in fail(
        "lower", tmp_path / "step.onnx", "-o", tmp_path / "x.onnx", "--state", "input"
    )


def test_export_of_a_page(tmp_path: Path) -> None:
    """The page, the package and the bundle; with the npm package onnxruntime-web nothing is taken from elsewhere."""
    onnx.save(classifier(), tmp_path / "step.onnx")
    succeed("export", tmp_path / "step.onnx", "--page")
    site = tmp_path / "step.site"
    assert {path.name for path in site.iterdir()} == {
        "bundle", "index.html", "index.js", "page.css", "page.js", "worker.js",
    }  # fmt: skip
    assert (site / "bundle" / "training.json").is_file()
    assert 'data-onnxruntime="https://cdn.jsdelivr.net/npm/onnxruntime-web@' in (site / "index.html").read_text()

    package = tmp_path / "onnxruntime-web" / "dist"
    package.mkdir(parents=True)
    for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs"):
        (package / name).write_text(name)
    options = ("-o", tmp_path / "other", "--page", "--onnxruntime-web", package.parent)
    assert "requires dist/ort-wasm-simd-threaded.wasm" in fail("export", tmp_path / "step.onnx", *options)
    assert not (tmp_path / "other").exists()
    (package / "ort-wasm-simd-threaded.wasm").write_text("wasm")
    told = json.loads(succeed("export", tmp_path / "step.onnx", *options, "--json"))
    assert {"bundle/training.json", "index.html", "onnxruntime-web/ort.wasm.min.mjs"} <= set(told["files"])
    assert {str(path.relative_to(tmp_path / "other")) for path in (tmp_path / "other").rglob("*.*")} == set(
        told["files"]
    )
    assert 'data-onnxruntime="onnxruntime-web/"' in (tmp_path / "other" / "index.html").read_text()
    assert "--onnxruntime-web requires --page" in fail(
        "export", tmp_path / "step.onnx", "--onnxruntime-web", package.parent
    )


def test_the_page_takes_the_version_that_is_tested() -> None:
    root = Path(__file__).parents[2]
    version = json.loads((root / "package.json").read_text())["devDependencies"]["onnxruntime-web"]
    assert f"onnxruntime-web@{version}/dist/" in (root / "runtime/javascript/page/index.html").read_text()
    assert f"onnxruntime-web@{version}/dist/" in page.ELSEWHERE
