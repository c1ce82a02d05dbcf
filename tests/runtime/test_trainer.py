"""The trainer: its steps, what it leaves where it lies, its checkpoints."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import safetensors.numpy

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.records import files, state
from lstm_lower.runtime.training import checkpoint
from tests.support.training_models import char_lstm, quadratic, recorded_char_lstm

Array = np.ndarray[Any, Any]

DIGITS = Path(__file__).parents[2] / "examples" / "onnx_saliency" / "digits.onnx"


def batches(count: int, size: int = 4) -> list[dict[str, Array]]:
    """Windows of random characters."""
    rng = np.random.default_rng(5)
    classes = recorded_char_lstm()["in:dense_b:0"].size
    made = []
    for _ in range(count):
        ids = rng.integers(0, classes, (21, size)).astype(np.int32)
        made.append({"ids:0": ids[:-1], "labels:0": ids[1:]})
    return made


def test_step_returns_what_was_recorded() -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model)
    recorded = recorded_char_lstm()
    chosen = [name for name in trainer.outputs if name != "new_b:0"]
    result = trainer.step(data, chosen)
    assert list(result.outputs) == chosen
    assert result.loss == result.outputs["loss:0"] == pytest.approx(float(recorded["out:loss:0"]), rel=1e-6)
    for name, array in result.outputs.items():
        np.testing.assert_allclose(array, recorded[f"out:{name}"], rtol=1e-4, atol=1e-6)
    for pair in trainer.state.pairs:
        np.testing.assert_allclose(
            trainer.state_dict()[pair.input], recorded[f"out:{pair.output}"], rtol=1e-4, atol=1e-6
        )


def test_steps_equal_a_plain_loop_bit_for_bit() -> None:
    """Also with a batch size that changes on the way, and outputs that are asked for now and then."""
    model, _ = char_lstm()
    trainer = ll.Trainer(model)
    session = ll.Session(model)
    weights = {name: tensor.numpy() for name, tensor in state.initial_values(model).items()}
    data = [*batches(3), *batches(2, size=7), *batches(3)]
    for number, batch in enumerate(data):
        chosen = ["grad_w:0", "new_b:0"] if number % 3 == 1 else []
        result = trainer.step(batch, chosen)
        expected = session.run({**batch, **weights})
        assert result.loss == expected["loss:0"]
        for name in chosen:
            np.testing.assert_array_equal(result.outputs[name], expected[name])
        weights |= {pair.input: expected[pair.output] for pair in trainer.state.pairs if pair.output}
    assert trainer.steps == len(data)
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, weights[name])


class Transfers(collections.Counter[str]):
    """Bytes that onnxruntime's Python layer moves between numpy and its own buffers."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        update, read = ort.OrtValue.update_inplace, ort.OrtValue.numpy

        def update_inplace(value: ort.OrtValue, array: Array) -> None:
            self["to device"] += array.nbytes
            update(value, array)

        def numpy(value: ort.OrtValue) -> Array:
            array: Array = read(value)
            self["to host"] += array.nbytes
            return array

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a step must neither allocate a buffer nor bind one anew")

        monkeypatch.setattr(ort.OrtValue, "update_inplace", update_inplace)
        monkeypatch.setattr(ort.OrtValue, "numpy", numpy)
        for owner, name in [
            (ort.OrtValue, "ortvalue_from_numpy"),
            (ort.OrtValue, "ortvalue_from_shape_and_type"),
            (ort.IOBinding, "bind_cpu_input"),
            (ort.IOBinding, "bind_input"),
            (ort.IOBinding, "bind_output"),
            (ort.IOBinding, "bind_ortvalue_input"),
            (ort.IOBinding, "bind_ortvalue_output"),
            (ort.IOBinding, "copy_outputs_to_cpu"),
            (ort.InferenceSession, "run"),
        ]:
            monkeypatch.setattr(owner, name, refuse)


@pytest.mark.slow
def test_no_weight_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Per step the feeds go to the device and the loss comes back; two buffers per value change places."""
    model, _ = char_lstm()
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    trainer = ll.Trainer(model, session_options=options)
    data = batches(6)
    trainer.step(data[0])
    transfers, places = Transfers(), collections.defaultdict(list)
    with monkeypatch.context() as patch:
        transfers.watch(patch)
        for batch in data[1:]:
            trainer.step(batch)
            for name, address in trainer._device_state.addresses().items():
                places[name].append(address)
    assert transfers["to device"] == sum(array.nbytes for batch in data[1:] for array in batch.values())
    assert transfers["to host"] == 4 * 5
    for addresses in places.values():
        assert addresses[0] == addresses[2] == addresses[4]
        assert addresses[1] == addresses[3] != addresses[0]
    events = json.loads(Path(trainer.session.ort.end_profiling()).read_text())
    ops = {event["args"]["op_name"] for event in events if event.get("args", {}).get("op_name")}
    assert "Scan" in ops
    assert not {op for op in ops if op.startswith("Memcpy")}


@pytest.mark.slow
def test_failed_step_leaves_state() -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model)
    trainer.step(data)
    before = trainer.state_dict()
    with pytest.raises(InvalidInputError):
        trainer.step({"ids:0": np.full((20, 4), 10_000, np.int32), "labels:0": data["labels:0"]})
    after = trainer.state_dict()
    assert trainer.steps == 1
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    assert trainer.step(data).loss < float(recorded_char_lstm()["out:loss:0"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"ids:0": d["ids:0"]}, "'labels:0' requires a value"),
        (lambda d: d | {"w:0": np.zeros(3, np.float32)}, "feed 'w:0' must be one of the data inputs"),
        (lambda d: d | {"ids:0": d["ids:0"].astype(np.int64)}, "'ids:0' requires dtype int32, got int64"),
        (lambda d: d | {"ids:0": d["ids:0"][:19]}, "'ids:0' requires shape"),
        (lambda d: d | {"labels:0": d["labels:0"][:, :2]}, "'labels:0' requires shape"),
    ],
)
def test_wrong_feeds_are_refused(change: Callable[[dict[str, Array]], dict[str, Array]], message: str) -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=message):
            trainer.step(change(data))
        trainer.step(data)


def test_learning_rate_can_change() -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model, learning_rate=0.0)
    first = trainer.step(data).loss
    assert trainer.step(data).loss == first
    trainer.learning_rate = 0.5
    trainer.step(data)
    second = trainer.step(data).loss
    assert second < first
    assert trainer.step({**data, "learning_rate:0": 0.0}).loss == trainer.step(data).loss < second
    assert trainer.learning_rate == 0.0


def test_missing_values_are_refused() -> None:
    model, _ = char_lstm()
    values = {name: tensor.numpy() for name, tensor in state.detach_initial_values(model).items()}
    del values["learning_rate:0"]
    with pytest.raises(InvalidInputError, match="state 'emb:0' requires an initial value"):
        ll.Trainer(model)
    with pytest.raises(InvalidInputError, match="learning_rate requires a value"):
        ll.Trainer(model, initial_values=values)
    with pytest.raises(InvalidInputError, match=r"state 'b:0' requires shape \[128\], got \[2\]"):
        ll.Trainer(model, initial_values=values | {"b:0": np.zeros(2, np.float32)}, learning_rate=1.0)
    with pytest.raises(InvalidInputError, match="initial value 'q' must be one of"):
        ll.Trainer(model, initial_values=values | {"q": np.zeros(2, np.float32)}, learning_rate=1.0)
    with pytest.raises(InvalidModelError, match="without updates requires optimizer="):
        ll.Trainer(quadratic())
    with pytest.raises(InvalidModelError, match=r"requires a training step: .* got neither"):
        ll.Trainer(ll.gradient(DIGITS, of="scores", seeds=True), optimizer="sgd")
    with pytest.raises(InvalidInputError, match="output 'cost' must be one of"):
        ll.Trainer(quadratic(), optimizer="sgd").step({"x": np.ones((2, 3), np.float32)}, ["cost"])


def test_outputs_of_open_size_follow_the_batch() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="sgd")
    for size in (2, 5, 2):
        outputs = trainer.step({"x": np.ones((size, 3), np.float32)}, ["distance"]).outputs
        assert outputs["distance"].shape == (size,)


def test_state_dict_is_checked() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="momentum")
    kept = trainer.state_dict()
    assert list(kept) == ["w", "b", "w/velocity", "b/velocity", "iteration"]
    for wrong, message in [
        ({name: array for name, array in kept.items() if name != "b"}, r"got none of 'b'; load_state_dict\(values"),
        (kept | {"q": kept["b"]}, "got 'q', which is none of them"),
        (kept | {"b": kept["w"]}, r"state 'b' requires shape \[2\], got \[3\]"),
        (kept | {"b": kept["b"].astype(np.float64)}, "state 'b' requires dtype float32, got float64"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            trainer.load_state_dict({name: array + 1 for name, array in wrong.items()})
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, kept[name])


@pytest.mark.parametrize("done", [3, 4])
def test_resume_continues_bit_for_bit(tmp_path: Path, done: int) -> None:
    model, _ = char_lstm()
    data = batches(8)
    whole, first = ll.Trainer(model, accumulate=2, clip_norm=1.0), ll.Trainer(model, accumulate=2, clip_norm=1.0)
    losses = [whole.step(batch).loss for batch in data]
    for batch in data[:done]:
        first.step(batch)
    first.learning_rate = 0.5
    first.save(tmp_path / "checkpoint.safetensors", {"epoch": 2})
    second = ll.Trainer(model, accumulate=2, clip_norm=1.0, learning_rate=9.0)
    assert second.resume(tmp_path / "checkpoint.safetensors") == {"epoch": 2}
    assert (second.steps, second.learning_rate) == (done, 0.5)
    assert [second.step(batch).loss for batch in data[done:]] == losses[done:]
    for name, array in second.state_dict().items():
        np.testing.assert_array_equal(array, whole.state_dict()[name])


def test_checkpoint_before_the_last_stays(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    for number in range(3):
        checkpoint.write(path, {"x": np.full(2, number)}, {"number": number})
    assert checkpoint.read(path)[1] == {"number": 2}
    arrays, notes = checkpoint.read(checkpoint.previous_path(path))
    assert notes == {"number": 1}
    np.testing.assert_array_equal(arrays["x"], [1, 1])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, f"{path.name}.previous"]


@pytest.mark.parametrize("survives", range(7))
def test_writing_may_stop_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int) -> None:
    """After any number of system calls the file of the final name is complete, and the next writing succeeds."""
    path = tmp_path / "checkpoint.safetensors"
    for number in range(2):
        checkpoint.write(path, {"x": np.full(2, number)}, {"number": number})
    calls = 0

    def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > survives:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for owner, name in [
            (Path, "replace"),
            (Path, "unlink"),
            (checkpoint, "_link"),
            (files, "_sync"),
            (safetensors.numpy, "save_file"),
        ]:
            patch.setattr(owner, name, stopping(getattr(owner, name)))
        stopped = False
        try:
            checkpoint.write(path, {"x": np.full(2, 2)}, {"number": 2})
        except KeyboardInterrupt:
            stopped = True
    assert stopped == (survives < 6)
    found = checkpoint.read(path)[1]["number"]
    assert found == (2 if survives >= 5 else 1)
    np.testing.assert_array_equal(checkpoint.read(path)[0]["x"], [found, found])
    checkpoint.write(path, {"x": np.full(2, 3)}, {"number": 3})
    assert checkpoint.read(path)[1] == {"number": 3}


def test_a_flipped_bit_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    trainer = ll.Trainer(quadratic(), optimizer="sgd")
    trainer.save(path, {"sha256": "0" * 64})
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 7):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(InvalidInputError):
            trainer.resume(path)
    path.write_bytes(content)
    assert trainer.resume(path) == {"sha256": "0" * 64}


def test_checkpoints_of_former_versions_have_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    notes = {"steps": 3, "learning_rate": 0.5, "notes": {"epoch": 1}}
    trainer = ll.Trainer(quadratic(), optimizer="sgd")
    safetensors.numpy.save_file(trainer.state_dict(), path, {checkpoint.FORMAT: json.dumps(notes)})
    assert trainer.resume(path) == {"epoch": 1}
    assert trainer.steps == 3


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    trainer = ll.Trainer(quadratic(), optimizer="sgd")
    trainer.save(path)
    trainer.save(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InvalidInputError, match=r"damaged.*the one before it is .*checkpoint.safetensors.previous"):
        trainer.resume(path)
    trainer.resume(checkpoint.previous_path(path))
    with pytest.raises(FileNotFoundError, match="no such file"):
        trainer.resume(tmp_path / "other.safetensors")
    with pytest.raises(InvalidInputError, match=r"a file is required, got a folder of .*checkpoint\.safetensors"):
        trainer.resume(tmp_path)
    safetensors.numpy.save_file({"x": np.zeros(2)}, path)
    with pytest.raises(InvalidInputError, match="a checkpoint of a trainer is required"):
        trainer.resume(path)
