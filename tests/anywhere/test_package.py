"""The package for JavaScript in Node: what is wrong is told in Python's words, and checkpoints go both ways."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import LstmLowerError, LstmLowerWarning
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import open_data
from lstm_lower.runtime.training.data.table import Padding
from tests.anywhere.support import PACKAGE, compiled, node
from tests.support import bundles

HERE = Path(__file__).parent


def _output(words: Sequence[object], folder: Path) -> Any:
    """What a program prints as JSON."""
    command = [*map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _node(*words: object, folder: Path) -> Any:
    return _output([node(), *words], folder)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("faults")
    ll.export_training(bundles.classifier(), folder / "bundle")
    ll.export_training(bundles.frozen(), folder / "shared")
    assert list((folder / "shared").glob("weights.*.data"))
    return _node(HERE / "faults.mjs", folder / "bundle", folder, folder / "shared", folder=folder)


def test_every_fault_is_told(faults: Any) -> None:
    assert len(faults["told"]) >= 115
    kinds = {"InvalidInputError", "InvalidModelError", "NotFiniteError"}
    assert {name: told for name, told in faults["told"].items() if told is None or told[0] not in kinds} == {}
    assert all(" requires " in message or " require" in message or "must be" in message or "failed" in message
               for _, message in faults["told"].values())  # fmt: skip
    assert faults["same"], "a fault has changed the state"
    assert faults["together"] in (1, 2, 3, 4)
    (warned,) = faults["warned"]
    assert warned.startswith("epoch 1 requires a step whose loss is finite, got none")


def test_a_flipped_bit_is_refused_in_every_file(faults: Any) -> None:
    assert faults["accepted"] == []
    assert set(faults["tried"].values()) == {40}
    kinds = {name.split()[-1].split(".")[0] for name in faults["tried"]}
    assert kinds == {"training", "init", "train", "eval", "predict", "weights", "checkpoint", "adapter"}


X = np.sin(np.arange(24)).astype(np.float32).reshape(4, 6)
TARGET = np.array([0, 1, 2, 1])


def _step(**feeds: Any) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: trainer.step(feeds)


def _fit(**options: Any) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: trainer.fit({"x": X, "target": TARGET}, **options)


def _data(**data: Any) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: trainer.fit(data)


def _rate(value: Any) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: setattr(trainer, "learning_rate", value)


def _state(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: trainer.put_state(change(trainer.state_dict()))


SAME_WORDS: dict[str, Callable[[ll.Trainer], Any]] = {
    "no target": _step(x=X),
    "no feeds": _step(),
    "unknown feed": _step(x=X, target=TARGET, y=1),
    "float64 for float32": _step(x=X.astype(np.float64), target=TARGET),
    "float32 for int64": _step(x=X, target=TARGET.astype(np.float32)),
    "int32 for int64": _step(x=X, target=TARGET.astype(np.int32)),
    "fractions for int64": _step(x=X, target=[0.5, 1, 2, 1]),
    "rank": _step(x=X.reshape(-1), target=TARGET),
    "size": _step(x=X.reshape(6, 4), target=np.array([0, 1, 2, 1, 0, 1])),
    "fewer labels": _step(x=X, target=TARGET[:3]),
    "one label": _step(x=X, target=TARGET[:1]),
    "rate in a text": _rate("ten"),
    "infinite rate": _rate(np.inf),
    "rate beyond float32": _rate(1e300),
    "no labels": _data(x=X[:0], target=[]),
    "rate among feeds": _step(x=X, target=TARGET, learning_rate=np.nan),
    "no epochs": _fit(epochs=0),
    "half an epoch": _fit(epochs=1.5),
    "no batch size": _fit(batch_size=0),
    "negative seed": _fit(seed=-1),
    "data without target": _data(x=X),
    "data of different lengths": _data(x=X, target=TARGET[:3]),
    "data of another rank": _data(x=X.reshape(-1), target=TARGET),
    "data of another size": _data(x=X.reshape(4, 3, 2), target=TARGET),
    "data of another dtype": _data(x=X, target=TARGET.astype(np.float32)),
    "data that the dtype does not hold": _data(x=np.full((4, 6), 1e300), target=TARGET),
    "samples of another rank": _data(x=[X.reshape(-1)], target=TARGET),
    "no data": _data(x=X[:0], target=TARGET[:0]),
    "axis of no input": _fit(sample_axis={"y": 0}),
    "axis that is none": _fit(sample_axis={"x": 2}),
    "axes that differ": _fit(sample_axis={"x": 1}),
    "padding of no input": _fit(pad={"y": 0}),
    "lengths of no input": _fit(lengths={"target": "y"}),
    "buckets that do not ascend": _fit(pad={"x": 0}, buckets=[4, 4]),
    "buckets without padding": _fit(buckets=[4]),
    "buckets of batches": lambda trainer: trainer.fit([{"x": X, "target": TARGET}], pad={"x": 0}, buckets=[4]),
    "metric that is no scalar": _fit(metrics=["new_w"]),
    "state lacks a value": _state(lambda state: dict([*state.items()][1:])),
    "state has one more": _state(lambda state: {**state, "more": 1}),
    "state of another dtype": _state(lambda state: {**state, "w": state["w"].astype(np.float64)}),
    "state of another shape": _state(lambda state: {**state, "w": state["w"].reshape(8, 6)}),
}
# What only differs in the names of the two languages.
TRANSLATED = {"'ten'": "'0.1'", "; array.astype('int64') converts it": ""}


def _translated(message: str) -> str:
    for own, theirs in TRANSLATED.items():
        message = message.replace(own, theirs)
    return message


def test_the_words_are_those_of_python(faults: Any) -> None:
    different = {}
    for name, fault in SAME_WORDS.items():
        with pytest.raises(LstmLowerError) as caught:
            fault(ll.Trainer(bundles.classifier()))
        expected = [type(caught.value).__name__, _translated(str(caught.value))]
        if faults["told"][name] != expected:
            different[name] = (faults["told"][name], expected)
    assert different == {}


@pytest.mark.parametrize(
    ("name", "kind", "start", "end"),
    [
        ("loss that is no number", "NotFiniteError", "step 3: the loss must be finite, got nan; input 'x' has", ""),
        ("label beyond", "InvalidInputError", "onnxruntime failed on these feeds", "below zero is told as 2147483647"),
        ("label below", "InvalidInputError", "onnxruntime failed on these feeds", "below zero is told as 2147483647"),
        ("file of another bundle", "InvalidModelError", "train.onnx requires the ", "export it again"),
        ("later version", "InvalidModelError", "a bundle of version 1 or 2 is required, got 3", "may read it"),
        ("changed description", "InvalidModelError", "training.json requires the hash", "export it again"),
    ],
)  # fmt: skip
def test_what_is_told(faults: Any, name: str, kind: str, start: str, end: str) -> None:
    told, message = faults["told"][name]
    assert told == kind
    assert message.startswith(start)
    assert message.endswith(end)


LENGTHS = np.random.default_rng(1).integers(1, 9, 30)
SEQUENCES = [np.cos(np.arange(3 * length)).astype(np.float32).reshape(length, 3) for length in LENGTHS]
LABELS = np.arange(30) % 3
PADDED: dict[str, Any] = {"pad": {"x": 0.5}, "lengths": {"n": "x"}}


def _sequences(**options: Any) -> Callable[[ll.Trainer], Any]:
    return lambda trainer: trainer.fit({"x": SEQUENCES, "target": LABELS}, **{**PADDED, **options})


WRONG_SEQUENCES: dict[str, Callable[[ll.Trainer], Any]] = {
    "not padded": lambda trainer: trainer.fit({"x": SEQUENCES, "n": LENGTHS.astype(np.int32), "target": LABELS}),
    "no lengths": _sequences(lengths={}),
    "too short a bucket": _sequences(buckets=[2, 4]),
    "samples of two widths": lambda trainer: trainer.fit(
        {"x": [SEQUENCES[0], np.ones((2, 4), np.float32)], "target": LABELS[:2]}, **PADDED
    ),
    "samples of another rank": lambda trainer: trainer.fit(
        {"x": [SEQUENCES[0].reshape(-1)], "target": LABELS[:1]}, **PADDED
    ),
    "labels in sequences": lambda trainer: trainer.fit(
        {"x": SEQUENCES, "target": LABELS.tolist()}, **{**PADDED, "pad": {"target": 0}}
    ),
}


def _padded_in(language: str, folder: Path) -> Any:
    """What the package or the header says of sequences."""
    ll.export_training(bundles.of_sequences(), folder / "bundle")
    data = {"x": [sequence.tolist() for sequence in SEQUENCES], "target": LABELS.tolist()}
    words = ["bundle", json.dumps(data), json.dumps(LENGTHS.tolist())]
    if language == "JavaScript":
        return _node(HERE / "padding.mjs", *words, folder=folder)
    return _output([compiled(folder, HERE / "padding.cpp"), *words], folder)


@pytest.mark.parametrize("language", ["JavaScript", "C++"])
def test_sequences_of_different_lengths(language: str, tmp_path: Path) -> None:
    """Padded and in buckets as in Python: the same batches, the same losses, the same words."""
    told = _padded_in(language, tmp_path)
    held = {"x": SEQUENCES, "target": LABELS}
    options: dict[str, Any] = {"epochs": 2, "batch_size": 4, "seed": 3, "validation": held, **PADDED}
    for name, more in {"longest": {}, "buckets": {"buckets": [4, 8]}}.items():
        history = ll.Trainer(bundles.of_sequences()).fit(held, **options, **more)
        _shuffled_runs_equal(told[name], history.epochs)
    trainer = ll.Trainer(bundles.of_sequences())
    predicted = trainer.predict(held, batch_size=7, **PADDED)["logits"]
    np.testing.assert_allclose(told["predicted"], predicted.ravel(), rtol=1e-5, atol=1e-6)
    for name, fault in WRONG_SEQUENCES.items():
        with pytest.raises(LstmLowerError) as caught:
            fault(ll.Trainer(bundles.of_sequences()))
        assert told["told"][name] == str(caught.value)
    if language == "JavaScript":
        layout = Layout(ll.Trainer(bundles.of_sequences()).data_inputs)
        padding = Padding({"x": 0.5}, {"n": "x"}, (4, 8))
        assert _fingerprints(tmp_path / "run.safetensors")["data"] == open_data(held, layout, padding).fingerprint()
        assert told["warned"] == ["data 'x' is float32[B, T, 3]: values in float64 are converted"]
        assert told["again"], "a run that goes on in the middle of an epoch of buckets differs"


def _arrays(count: int) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {"x": random.standard_normal((count, 6), np.float32), "target": random.integers(0, 3, count)}


def _shuffled_runs_equal(there: list[dict[str, float]], here: list[dict[str, float]]) -> None:
    assert [sorted(logs) for logs in there] == [sorted(logs) for logs in here]
    for logs, own in zip(there, here, strict=True):
        np.testing.assert_allclose([logs[name] for name in sorted(own)], [own[name] for name in sorted(own)], rtol=1e-5)


def test_checkpoints_go_both_ways(tmp_path: Path) -> None:
    """State bit for bit; a run in a folder of `lstm-lower train` goes on in Node, and that in Python again."""
    arrays = _arrays(50)
    np.savez(tmp_path / "data.npz", **arrays)
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    trainer = ll.Trainer(bundles.classifier(), learning_rate=0.5)
    for step in range(3):
        trainer.step(bundles.batch(step))
    trainer.save(tmp_path / "python.safetensors", {"best": [0.1, 3], "worst": float("inf"), "name": "NaN"})

    options: dict[str, Any] = {"epochs": 3, "batch_size": 8, "seed": 7, "validation": arrays}
    whole = ll.Trainer(bundles.classifier()).fit(arrays, **options)
    ll.Trainer(bundles.classifier()).fit(arrays, **{**options, "epochs": 1}, folder=tmp_path / "run")
    shutil.copy(tmp_path / "run" / "checkpoint.safetensors", tmp_path / "run.safetensors")
    words = {
        "bundle": "bundle", "data": "data.npz", "python": "python.safetensors", "node": "node.safetensors",
        "run": "run.safetensors", "batchSize": 8,
    }  # fmt: skip
    told = _node(HERE / "resume.mjs", json.dumps(words), folder=tmp_path)

    assert (told["steps"], told["rate"]) == (3, 0.5)
    assert told["notes"] == {"best": [0.1, 3], "worst": None, "name": "NaN"}
    assert told["accepted"] == []
    assert told["halves"], "ten steps with a rest differ from ten at once"
    (before, notes), (after, kept) = (checkpoint.read(tmp_path / f"{by}.safetensors") for by in ("python", "node"))
    assert {name: array.tobytes() for name, array in before.items()} == {
        name: array.tobytes() for name, array in after.items()
    }
    assert all(kept[name] == notes[name] for name in ("steps", "learning_rate", "notes"))
    again = ll.Trainer(bundles.classifier())
    with pytest.warns(match=r"requires the same providers \(onnxruntime in JavaScript then"):
        assert again.resume(tmp_path / "node.safetensors")["worst"] == float("inf")
    assert {name: array.tobytes() for name, array in again.state_dict().items()} == {
        name: array.tobytes() for name, array in before.items()
    }

    _shuffled_runs_equal(told["epochs"], whole.epochs)
    _shuffled_runs_equal(told["onwards"], whole.epochs)
    # What Node has written takes the place of the run's own checkpoint, and two more epochs follow.
    shutil.copy(tmp_path / "run.safetensors", tmp_path / "run" / "checkpoint.safetensors")
    longer = {**options, "epochs": 5}
    expected = ll.Trainer(bundles.classifier()).fit(arrays, **longer)
    with pytest.warns(match="goes on in numbers that may differ"):
        last = ll.Trainer(bundles.classifier()).fit(arrays, **longer, folder=tmp_path / "run")
    _shuffled_runs_equal(last.epochs, expected.epochs)
    assert last.best is not None
    assert expected.best is not None
    assert last.best.epoch == expected.best.epoch


def _samples(count: int) -> dict[str, Any]:
    x = np.arange(6 * count) % 251
    return {"x": x.astype(np.float32).reshape(count, 6), "target": np.arange(count) % 3}


def _fingerprints(path: Path) -> Any:
    return checkpoint.read(path)[1]["notes"]["fingerprints"]


def test_other_data_are_told_on_both_sides(tmp_path: Path) -> None:
    """A run of Python goes on in Node, and back: what the samples were is known there, too."""
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    options: dict[str, Any] = {"batch_size": 8, "validation": _samples(8), "folder": tmp_path / "run"}
    ll.Trainer(bundles.classifier()).fit(_samples(8), **options)
    kept = tmp_path / "run" / "checkpoint.safetensors"
    shutil.copy(kept, tmp_path / "python.safetensors")
    told = _node(HERE / "fingerprints.mjs", "bundle", folder=tmp_path)
    assert told["before"] == []
    (warned,) = told["warned"]
    assert "requires the same data as before to equal one that was not interrupted, got other samples" in warned

    assert _fingerprints(tmp_path / "few.safetensors") == _fingerprints(kept)
    layout = Layout(ll.Trainer(bundles.classifier()).data_inputs)
    many = open_data(_samples(720_000), layout).fingerprint()
    assert _fingerprints(tmp_path / "many.safetensors")["data"] == many
    shutil.copy(tmp_path / "python.safetensors", kept)
    with pytest.warns(LstmLowerWarning) as caught:
        ll.Trainer(bundles.classifier()).fit(_samples(8), **options, epochs=4)
    assert [str(warning.message) for warning in caught if "got other samples" in str(warning.message)]


RESUMED = """
import { load } from "PACKAGE";
const trainer = await load("bundle");
await trainer.resume("cpp.safetensors");
await trainer.save("again.safetensors");
console.log(trainer.steps);
"""


def test_the_header_for_cpp(tmp_path: Path) -> None:
    """Its checkpoints go to Python and Node and back, its order and its losses are Python's, and so are its words."""
    program = compiled(tmp_path, HERE / "checks.cpp")
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    trainer = ll.Trainer(bundles.classifier(), learning_rate=0.5)
    for step in range(3):
        trainer.step(bundles.batch(step))
    trainer.save(tmp_path / "python.safetensors", {"best": [0.1, 3], "worst": float("inf"), "name": "NaN"})
    told = _output([program, "bundle", "python.safetensors", "cpp.safetensors"], tmp_path)

    assert (told["steps"], told["rate"], told["worst"], told["accepted"]) == (3, 0.5, "Infinity", 0)
    assert told["halves"], "ten steps with a rest differ from ten at once"
    assert told["same"], "a fault has changed the state"
    again = ll.Trainer(bundles.classifier())
    with pytest.warns(match=r"requires the same providers \(onnxruntime in C\+\+ then"):
        assert again.resume(tmp_path / "cpp.safetensors") == {"best": [0.1, 3], "worst": float("inf"), "name": "NaN"}
    (tmp_path / "resumed.mjs").write_text(RESUMED.replace("PACKAGE", PACKAGE.as_uri()))
    assert _node("resumed.mjs", folder=tmp_path) == 3
    expected = {name: array.tobytes() for name, array in trainer.state_dict().items()}
    assert {name: array.tobytes() for name, array in again.state_dict().items()} == expected
    after = checkpoint.read(tmp_path / "again.safetensors")[0]
    assert {name: array.tobytes() for name, array in after.items()} == expected

    arrays = {"x": np.sin(np.arange(300)).astype(np.float32).reshape(50, 6), "target": np.arange(50) % 3}
    whole = ll.Trainer(bundles.classifier())
    history = whole.fit(arrays, epochs=3, batch_size=8, seed=7, validation=arrays)
    _shuffled_runs_equal(told["epochs"], history.epochs)
    _shuffled_runs_equal([told["scores"]], [whole.evaluate(arrays, batch_size=7)])
    for rows, (seed, epoch) in zip(told["orders"], [(7, 2), (1 << 40, 0)], strict=True):
        assert rows == np.random.default_rng([seed, epoch]).permutation(len(rows)).tolist()

    assert len(told["told"]) >= 35
    assert all(" require" in message or "must be" in message or "status" in message
               for message in told["told"].values())  # fmt: skip
    shared = SAME_WORDS.keys() & told["told"].keys()
    assert len(shared) >= 27
    for name in shared:
        with pytest.raises(LstmLowerError) as caught:
            SAME_WORDS[name](ll.Trainer(bundles.classifier()))
        assert told["told"][name] == _translated(str(caught.value))
