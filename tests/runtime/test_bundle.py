"""Bundles: steps as files that a plain onnxruntime trains, with nothing of ours."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError
from lstm_lower.passes.training import losses, optimizers, schedules, torch_optimizers, updates
from lstm_lower.records import state
from tests.support import schema
from tests.support.bundles import batch, classifier, classifier_alone, frozen, plain_loop
from tests.support.command_line import succeed
from tests.support.training_models import quadratic


@pytest.mark.slow
@pytest.mark.parametrize("external", [False, True])
def test_plain_loop_equals_the_trainer_bit_for_bit(tmp_path: Path, *, external: bool) -> None:
    step = classifier()
    assert ll.export_training(step, tmp_path / "bundle", external_data=external) == tmp_path / "bundle"
    folder = tmp_path / "bundle"
    names = {f"{name}.onnx" for name in ("init", "train", "eval", "predict")} | {"training.json"}
    data = {path.name for path in folder.glob("*.onnx.*.data")} if external else set()
    assert {path.name for path in folder.iterdir()} - data == names
    losses, state, about = plain_loop(folder, 10)
    trainer = ll.Trainer(step)
    assert losses == [trainer.step(batch(number)).loss for number in range(10)]
    trained = trainer.state_dict()
    for name, value in state.items():
        np.testing.assert_array_equal(value, trained[name])
    assert len(set(losses)) == 10

    evaluated = ort.InferenceSession(folder / "eval.onnx")
    feeds = {name: state[name] for name in about["eval"]["state"]} | batch(99)
    loss, logits = evaluated.run(["loss", "logits"], feeds)
    assert [entry["name"] for entry in about["eval"]["predictions"]] == ["logits"]
    # Weights go to where the description says, without protobuf.
    contents = {}
    for pair in about["state"]:
        if (place := pair["predict"]) is not None:
            content = contents.setdefault(place["file"], bytearray((folder / place["file"]).read_bytes()))
            assert place["length"] == state[pair["input"]].nbytes
            content[place["offset"] : place["offset"] + place["length"]] = state[pair["input"]].tobytes()
    assert {pair["input"] for pair in about["state"] if pair["predict"]} == set(about["eval"]["state"])
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    onnx.checker.check_model(folder / "predict.onnx", full_check=True)
    predict = ort.InferenceSession(folder / "predict.onnx")
    assert [value.name for value in predict.get_inputs()] == ["x"]
    np.testing.assert_allclose(predict.run(None, {"x": batch(99)["x"]})[0], logits, rtol=1e-6, atol=1e-6)

    # The same as of a trainer that stands there.
    ll.export_training(trainer, tmp_path / "trained", files=["predict", "init"])
    again = ort.InferenceSession(tmp_path / "trained" / "predict.onnx")
    np.testing.assert_array_equal(
        again.run(None, {"x": batch(99)["x"]})[0], predict.run(None, {"x": batch(99)["x"]})[0]
    )
    first = ort.InferenceSession(tmp_path / "trained" / "init.onnx").run(["w"], {})[0]
    np.testing.assert_array_equal(first, trained["w"])
    assert not np.isnan(loss)


def test_a_bundle_for_a_target(tmp_path: Path) -> None:
    step = Path(__file__).parents[2] / "examples/keras_digits/digits_train.onnx"
    for target in (None, "webgpu-web"):
        ll.export_training(step, tmp_path / "bundle", files=["init", "train"], target=target)
        ops = {node.op_type for node in onnx.load(tmp_path / "bundle" / "train.onnx").graph.node}
        assert ("Scan" in ops) is (target is None)
    succeed("export", step, "-o", tmp_path / "again", "--target", "webgpu-web", "--files", "init,train")
    assert (tmp_path / "again/train.onnx").read_bytes() == (tmp_path / "bundle/train.onnx").read_bytes()
    with pytest.raises(InvalidInputError, match="target requires one of"):
        ll.export_training(step, tmp_path / "bundle", target="abacus")


def test_inputs_have_no_defaults(tmp_path: Path) -> None:
    ll.export_training(classifier(), tmp_path)
    for name in ("train", "eval", "predict"):
        model = onnx.load(tmp_path / f"{name}.onnx")
        assert not {tensor.name for tensor in model.graph.initializer} & {value.name for value in model.graph.input}
        assert {entry.domain for entry in model.opset_import} == {""}
    about = json.loads((tmp_path / "training.json").read_text())
    assert (about["format"], about["version"]) == ("lstm-lower.bundle", 2)
    assert about["data"] == [{"name": "x", "dtype": "float32", "shape": ["B", 6], "sample_axis": 0},
                             {"name": "target", "dtype": "int64", "shape": ["B"], "sample_axis": 0}]  # fmt: skip
    roles = {pair["input"]: pair["role"] for pair in about["state"]}
    assert roles["w"] == "weight"
    assert roles["mean"] == "slot"
    assert roles["dropout_stream"] == "counter"


def _tensors(path: Path) -> dict[str, onnx.TensorProto]:
    graph = onnx.load(path, load_external_data=False).graph
    return {tensor.name: tensor for tensor in graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL}


def test_weights_that_no_step_changes_are_written_once(tmp_path: Path) -> None:
    ll.export_training(frozen(), tmp_path)
    (shared,) = tmp_path.glob("*.data")
    about = json.loads((tmp_path / "training.json").read_text())
    assert {name: entry["data"] for name, entry in about["files"].items()} == {
        "init": [], **{file: [shared.name] for file in ("train", "eval", "predict")}
    }  # fmt: skip
    assert set(about["hashes"]) == {path.name for path in tmp_path.iterdir()} - {"training.json"}
    for name in ("train", "eval", "predict"):
        assert set(_tensors(tmp_path / f"{name}.onnx")) == {"u", "w"}
    losses, state, _ = plain_loop(tmp_path, 5)
    trainer = ll.Trainer(frozen())
    assert losses == [trainer.step(batch(number)).loss for number in range(5)]
    # What training changes is in the model that predicts, whose bytes alone are overwritten.
    (pair,) = [pair for pair in about["state"] if pair["predict"]]
    assert pair["predict"]["file"] == "predict.onnx"
    with (tmp_path / "predict.onnx").open("r+b") as file:
        file.seek(pair["predict"]["offset"])
        file.write(state["v"].tobytes())
    result = ort.InferenceSession(tmp_path / "predict.onnx").run(None, {"x": batch(9)["x"]})[0]
    np.testing.assert_array_equal(result, trainer.predict({"x": batch(9)["x"]})["logits"])

    whole = tmp_path / "whole"
    ll.export_training(frozen(), whole, external_data=False)
    assert not list(whole.glob("*.data"))
    assert (
        sum(path.stat().st_size for path in tmp_path.glob("*.*"))
        < sum(path.stat().st_size for path in whole.iterdir()) - 2 * shared.stat().st_size + 1000
    )
    ll.export_training(frozen(), tmp_path / "apart", external_data=True)
    assert {path.name.partition(".")[0] for path in (tmp_path / "apart").glob("*.data")} == {
        "init",
        "predict",
        "weights",
    }
    assert plain_loop(whole, 5)[0] == plain_loop(tmp_path / "apart", 5)[0] == losses
    # Another bundle takes the place of the file of weights, too.
    ll.export_training(classifier(), tmp_path / "apart")
    assert not list((tmp_path / "apart").glob("*.data"))


def test_hashes(tmp_path: Path) -> None:
    """Of every file, and of the description itself with zeros in place of its own."""
    ll.export_training(classifier(), tmp_path)
    text = (tmp_path / "training.json").read_text()
    about = json.loads(text)
    assert about["digest"] == hashlib.sha256(text.replace(about["digest"], "0" * 64).encode()).hexdigest()
    assert set(about["hashes"]) == {path.name for path in tmp_path.glob("*.onnx")}
    for name, entry in about["hashes"].items():
        content = (tmp_path / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_how_a_step_was_made(tmp_path: Path) -> None:
    """The optimizer, the loss and what a trainer adds, with their options."""
    rate = torch_optimizers.AdamW(0.5, weight_decay=0.25)
    step = ll.from_onnx(classifier_alone(), losses.CrossEntropy(weight=np.ones(3), label_smoothing=0.5))
    groups = [updates.Group(rate, ["w"]), updates.Group(optimizers.SGD(0.25), schedule=schedules.StepLR(7, 0.5))]
    trainer = ll.Trainer(step, optimizer=groups, clip_norm=2, accumulate=3)
    ll.export_training(trainer, tmp_path, class_names=["cat", "dog", "owl"])
    about = json.loads((tmp_path / "training.json").read_text())
    assert about["loss_function"] == {
        "name": "CrossEntropy",
        "options": {
            "reduction": "mean", "weight": [1.0, 1.0, 1.0], "ignore_index": -100, "label_smoothing": 0.5,
            "target": "indices",
        },
    }  # fmt: skip
    first, second = about["optimizer"]
    assert (first["name"], first["options"]["weight_decay"], first["weights"]) == ("AdamW", 0.25, ["w"])
    assert (second["name"], second["options"]["learning_rate"]) == ("SGD", 0.25)
    assert (second["schedule"]["name"], second["weights"]) == ("StepLR", ["v", "scale", "shift"])
    assert about["trainer"] == {"accumulate": 3, "clip_norm": 2.0, "clip_value": None, "ema": None}
    assert about["class_names"] == ["cat", "dog", "owl"]

    ll.export_training(classifier("sgd"), tmp_path, files="train")
    about = json.loads((tmp_path / "training.json").read_text())
    assert about["class_names"] is None
    assert [entry["name"] for entry in about["optimizer"]] == ["SGD"]
    for wrong in ([], ["a", "a"], [1]):
        with pytest.raises(InvalidInputError, match="class_names"):
            ll.export_training(classifier(), tmp_path, class_names=wrong)  # type: ignore[arg-type]


def test_how_a_step_of_pytorch_was_made(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = torch.nn.Linear(4, 3)
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.RMSprop(module.parameters(), 0.5, alpha=0.75), 3)
    ll.export_training(ll.from_torch(module, torch.zeros(5, 4), torch.nn.HuberLoss(delta=2), schedule), tmp_path)
    about = json.loads((tmp_path / "training.json").read_text())
    assert about["loss_function"] == {"name": "Huber", "options": {"reduction": "mean", "delta": 2.0}}
    (entry,) = about["optimizer"]
    assert (entry["name"], entry["options"]["alpha"], entry["schedule"]["name"]) == ("RMSprop", 0.75, "StepLR")
    assert entry["weights"] == ["weight", "bias"]


def test_runtimes_that_are_named_are_those_of_the_tests(tmp_path: Path) -> None:
    ll.export_training(classifier(), tmp_path)
    about = json.loads((tmp_path / "training.json").read_text())
    packages = json.loads((Path(__file__).parents[2] / "package.json").read_text())["devDependencies"]
    assert about["tested"] == {name: packages[name] for name in ("onnxruntime-node", "onnxruntime-web")}


def _changed(about: dict[str, object], change: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in {**about, **change}.items() if value != "gone"}


def test_the_schema(tmp_path: Path) -> None:
    """It is one, knows both versions, refuses what is none of them, and every key has a line in the documentation."""
    ll.export_training(classifier(), tmp_path)
    about = json.loads((tmp_path / "training.json").read_text())
    check = schema.validator()
    check.check_schema(check.schema)
    since = dict.fromkeys(check.schema["then"]["required"], "gone")
    assert check.is_valid(about)
    assert check.is_valid(_changed(about, {**since, "version": 1}))
    for change in [{"version": 3}, {"hashes": "gone"}, {"loss": 1}, {"more": 1}, {"state": [{}]}, {"optimizer": {}}]:
        assert not check.is_valid(_changed(about, change)), change
    text = (schema.PATH.parent / "bundle.md").read_text()
    described = text[text.index("## training.json") : text.index("## Evaluating a step")]
    keys = check.schema["properties"]
    for each in (keys, keys["state"]["items"]["properties"], keys["trainer"]["properties"]):
        assert [name for name in each if f"`{name}`" not in described] == []


def test_another_bundle_takes_the_place_of_one(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ll.export_training(classifier(), tmp_path, external_data=True)
    ll.export_training(classifier("sgd"), tmp_path, files="train")
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "train.onnx", "training.json"}
    with pytest.raises(LstmLowerError):
        ll.export_training(quadratic(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "train.onnx", "training.json"}


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        if path.name == "eval.onnx":
            raise OSError(errno.ENOSPC, "No space left on device")

    ll.export_training(classifier(), tmp_path / "before")
    monkeypatch.setattr("lstm_lower.runtime.training.bundle.check_loadable", full)
    before = {path.name: path.read_bytes() for path in (tmp_path / "before").iterdir()}
    for name in ("before", "new"):
        with pytest.raises(OSError, match="No space left"):
            ll.export_training(classifier("sgd"), tmp_path / name)
    assert {path.name: path.read_bytes() for path in (tmp_path / "before").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"ends at its gradients.*ll\.Trainer\(step, optimizer='sgd'\)"):
        ll.export_training(quadratic(), tmp_path / "a")
    ll.export_training(ll.Trainer(quadratic(), optimizer="sgd"), tmp_path / "a")
    with pytest.raises(InvalidInputError, match="files requires"):
        ll.export_training(classifier(), tmp_path / "b", files=["predictions"])  # type: ignore[list-item]
    without = ll.from_onnx(onnx.parser.parse_model(NOISY), "mse", "sgd")
    with pytest.raises(LstmLowerError, match=r"random numbers.*files without 'eval' and 'predict' exports the rest"):
        ll.export_training(without, tmp_path / "b")
    ll.export_training(without, tmp_path / "b", files=("init", "train"))
    unknown = ll.Trainer(quadratic(), optimizer="sgd").model
    assert not state.initial_values(unknown)
    with pytest.raises(InvalidInputError, match="init requires a value of every state"):
        ll.export_training(unknown, tmp_path / "c")
    assert not (tmp_path / "c").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        ll.export_training(classifier(), tmp_path / "file")


NOISY = """
<ir_version: 8, opset_import: ["" : 17]>
layer (float[B,3] x) => (float[B,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}>
{ noise = RandomNormalLike(x)  n = Add(x, noise)  y = MatMul(n, w) }
"""
