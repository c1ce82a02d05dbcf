"""What trains here goes on in TensorFlow: three steps here and three there are six there, slots included."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.checkpoints.bundle import find_checkpoint, open_checkpoint
from tests.support.tensorflow_programs import ROWS, SEQUENCES, TARGETS, momentum_module, run

pytest.importorskip("tensorflow")

KINDS = ("plain", "renamed", "sliced", "saved", "objects")


@pytest.fixture(scope="module", params=KINDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A program, and the folder with its states before it trains, after three steps and after six."""
    folder = tmp_path_factory.mktemp(request.param)
    run(request.param, "begin", folder)
    return request.param, folder


@functools.cache
def step_of(kind: str, path: Path) -> Any:
    if kind == "objects":
        module = momentum_module()
        return ll.from_tensorflow(module.train)
    if kind == "saved":
        return ll.from_tensorflow(path, signature="train")
    return ll.from_tensorflow(f"{path}.meta", outputs=["loss:0", "train"])


def trained(kind: str, path: Path) -> ll.Trainer:
    """A trainer after three steps."""
    trainer = ll.Trainer(step_of(kind, path))
    feeds = {"x": SEQUENCES, "y": TARGETS} if kind == "saved" else {"x": ROWS, "y": TARGETS}
    for _ in range(3):
        trainer.step({f"{name}{'' if kind in ('saved', 'objects') else ':0'}": x for name, x in feeds.items()})
    return trainer


def values(path: Path) -> dict[str, Any]:
    found = find_checkpoint(path)
    assert found is not None
    checkpoint = open_checkpoint(found)
    read = {name: checkpoint.read(name) for name in checkpoint.tensors}
    return {name: value for name, value in read.items() if not value.dtype.hasobject}


def assert_equal(path: Path, expected: Path) -> None:
    got, wanted = values(path), values(expected)
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_three_steps_here_and_three_there_are_six(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    trained(kind, folder / "begin").to_tensorflow(tmp_path / "three", like=folder / "begin")
    assert_equal(tmp_path / "three", folder / "three")
    run(kind, "go_on", tmp_path / "three", tmp_path)
    assert_equal(tmp_path / "after", folder / "six")


@pytest.mark.slow
def test_three_steps_there_and_three_here_are_six(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    if kind == "objects":
        pytest.skip("a function holds its values itself")
    trained(kind, folder / "three").to_tensorflow(tmp_path / "six", like=folder / "begin")
    assert_equal(tmp_path / "six", folder / "six")


@pytest.mark.slow
def test_in_place(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    trainer = trained(kind, folder / "begin")
    trainer.to_tensorflow(tmp_path / "three", like=folder / "begin")
    before = values(tmp_path / "three")
    trainer.to_tensorflow(tmp_path / "three", like=tmp_path / "three")
    after = values(tmp_path / "three")
    assert all((after[name] == value).all() for name, value in before.items())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("program", ["plain"], indirect=True)
def test_variables_under_their_own_names(program: tuple[str, Path], tmp_path: Path) -> None:
    import tensorflow as tf

    kind, folder = program
    trained(kind, folder / "begin").to_tensorflow(tmp_path / "three")
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "three")
    reader = tf.train.load_checkpoint(str(tmp_path / "three"))
    expected = {name: value for name, value in values(folder / "three").items() if name != "unused"}
    assert set(reader.get_variable_to_shape_map()) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(reader.get_tensor(name), value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["sliced"], indirect=True)
def test_a_slice_needs_what_it_is_a_slice_of(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    trainer = trained(kind, folder / "begin")
    with pytest.raises(ll.InvalidInputError, match=r"like requires the checkpoint .* since 'net/v/part_0' is a slice"):
        trainer.to_tensorflow(tmp_path / "three")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("program", ["saved"], indirect=True)
def test_a_saved_model_keeps_all_else(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    source = tmp_path / "source"
    shutil.copytree(folder / "begin", source)
    (source / "assets").mkdir(exist_ok=True)
    (source / "assets" / "words.txt").write_text("a\n")
    trainer = trained(kind, folder / "begin")
    trainer.to_tensorflow(tmp_path / "three", like=source)
    assert (tmp_path / "three" / "saved_model.pb").read_bytes() == (source / "saved_model.pb").read_bytes()
    assert (tmp_path / "three" / "assets" / "words.txt").read_text() == "a\n"
    # It would tell what the variables were.
    assert not (tmp_path / "three" / "fingerprint.pb").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="that of a SavedModel, is required"):
        trainer.to_tensorflow(tmp_path / "mine", like=source)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["saved"], indirect=True)
def test_another_programs_checkpoint_is_refused(program: tuple[str, Path], tmp_path: Path) -> None:
    kind, folder = program
    data = Path(__file__).parents[1] / "data" / "tensorflow_files" / "bundle" / "model.ckpt"
    with pytest.raises(ll.InvalidInputError, match="like requires a checkpoint with the weights of the step"):
        trained(kind, folder / "begin").to_tensorflow(tmp_path / "three", like=data)
    with pytest.raises(ll.InvalidInputError, match="checkpoint requires a prefix"):
        trained(kind, folder / "begin").to_tensorflow(tmp_path / "three", like=tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("program", ["saved"], indirect=True)
def test_a_step_of_scores_alone_predicts_by_the_signature_that_infers(
    program: tuple[str, Path], tmp_path: Path
) -> None:
    import tensorflow as tf

    kind, folder = program
    trainer = trained(kind, folder / "begin")
    trainer.to_tensorflow(tmp_path / "three", like=folder / "begin")
    expected = tf.saved_model.load(str(tmp_path / "three")).signatures["infer"](x=SEQUENCES)["scores"]
    predicted = trainer.predict({"x": SEQUENCES})
    assert list(predicted) == ["scores"]
    np.testing.assert_allclose(predicted["scores"], expected, rtol=1e-5, atol=1e-6)
    loss = trainer.evaluate({"x": SEQUENCES, "y": TARGETS})["loss"]
    np.testing.assert_allclose(loss, np.mean((expected - TARGETS) ** 2), rtol=1e-5)
    ll.export_training(trainer, tmp_path / "bundle")
    ours = ll.Session(tmp_path / "bundle" / "predict.onnx").run({"x": SEQUENCES})
    np.testing.assert_allclose(ours["scores"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_that_drops_at_random_predicts_by_it_too(tmp_path: Path) -> None:
    """Its own loss is no measure."""
    import tensorflow as tf

    x, y = tf.TensorSpec((None, 3), name="x"), tf.TensorSpec((None, 2), name="y")
    weight = tf.Variable(np.ones((3, 2), np.float32), name="w")

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.nn.dropout(x, 0.5) @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return {"loss": loss}

    module = tf.Module()
    module.weight = weight
    module.train = tf.function(train, input_signature=[x, y])
    module.infer = tf.function(lambda x: {"scores": x @ weight}, input_signature=[x])
    tf.saved_model.save(module, str(tmp_path), signatures={"train": module.train, "infer": module.infer})
    trainer = ll.Trainer(ll.from_tensorflow(tmp_path, signature="train"))
    trainer.step({"x": ROWS, "y": TARGETS})
    expected = ROWS @ trainer.weights()["w"]
    np.testing.assert_allclose(trainer.predict({"x": ROWS})["scores"], expected, rtol=1e-5)
    with pytest.raises(ll.InvalidModelError, match="evaluating requires an evaluation with a loss or a metric"):
        trainer.evaluate({"x": ROWS, "y": TARGETS})
