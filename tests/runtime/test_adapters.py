"""Adapters: what training has changed of a bundle's model, alone and put into it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import safetensors.numpy

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError
from lstm_lower.runtime.training import checkpoint
from tests.support.bundles import batch, classifier, frozen

X = batch(99)["x"]


def _trained(step: Any, steps: int = 5) -> ll.Trainer:
    trainer = ll.Trainer(step)
    for number in range(steps):
        trainer.step(batch(number))
    return trainer


def _predicted(folder: Path, adapter: Path) -> np.ndarray[Any, Any]:
    session = ort.InferenceSession(ll.merge(folder, adapter).SerializeToString())
    return np.asarray(session.run(None, {"x": X})[0])


def test_an_adapter_is_what_training_has_changed(tmp_path: Path) -> None:
    folder, path = tmp_path / "bundle", tmp_path / "adapter.safetensors"
    ll.export_training(frozen(), folder)
    trainer = _trained(frozen())
    ll.export_adapter(folder, trainer, path)
    assert set(safetensors.numpy.load_file(path)) == {"v"}
    assert path.stat().st_size < 1000
    np.testing.assert_array_equal(_predicted(folder, path), trainer.predict({"x": X})["logits"])
    # A checkpoint has more, of which an adapter takes its part.
    trainer.save(tmp_path / "checkpoint.safetensors")
    ll.export_adapter(folder, tmp_path / "checkpoint.safetensors", tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    # The bundle is as it was.
    before = ort.InferenceSession(folder / "predict.onnx").run(None, {"x": X})[0]
    np.testing.assert_array_equal(before, ll.Trainer(frozen()).predict({"x": X})["logits"])


def test_statistics_of_layers_are_part_of_it(tmp_path: Path) -> None:
    folder, path = tmp_path / "bundle", tmp_path / "adapter.safetensors"
    ll.export_training(classifier(), folder)
    trainer = _trained(classifier())
    ll.export_adapter(folder, trainer, path)
    assert set(safetensors.numpy.load_file(path)) == {"w", "v", "scale", "shift", "mean", "variance"}
    np.testing.assert_allclose(_predicted(folder, path), trainer.predict({"x": X})["logits"], rtol=1e-5, atol=1e-6)


def test_files_of_other_programs(tmp_path: Path) -> None:
    """Plain safetensors with the right arrays, which say nothing of a bundle."""
    folder, path = tmp_path / "bundle", tmp_path / "adapter.safetensors"
    ll.export_training(frozen(), folder)
    value = np.ones((48, 3), np.float32)
    safetensors.numpy.save_file({"v": value}, path, {"format": "pt"})
    assert not np.array_equal(_predicted(folder, path), ll.Trainer(frozen()).predict({"x": X})["logits"])
    wrong = [{"v": value[:3]}, {"v": value.astype(np.float64)}, {}, {"v": value, "more": value}]
    for arrays in wrong:
        safetensors.numpy.save_file(arrays, path)
        with pytest.raises(InvalidInputError, match=r"adapter\.safetensors"):
            ll.merge(folder, path)
    safetensors.numpy.save_file({"v": value}, path, {"another": "program"})
    with pytest.raises(InvalidInputError, match=r"arrays without metadata are required.*another"):
        ll.merge(folder, path)
    # A checkpoint and a trainer serve as well.
    trainer = _trained(frozen())
    trainer.save(path)
    np.testing.assert_array_equal(_predicted(folder, path), trainer.predict({"x": X})["logits"])
    assert ll.merge(folder, trainer) == ll.merge(folder, path)


@pytest.mark.slow
def test_what_is_damaged_or_of_another_bundle_is_refused(tmp_path: Path) -> None:
    folder, path = tmp_path / "bundle", tmp_path / "adapter.safetensors"
    ll.export_training(frozen(), folder)
    ll.export_adapter(folder, _trained(frozen(), 1), path)
    for file in [path, *(folder / name for name in ("training.json", "predict.onnx")), *folder.glob("*.data")]:
        content = file.read_bytes()
        for number in range(40):
            place = (2 * number + 1) * len(content) // 80
            file.write_bytes(content[:place] + bytes([content[place] ^ 1 << number % 8]) + content[place + 1 :])
            with pytest.raises(LstmLowerError):
                ll.merge(folder, path)
        file.write_bytes(content)
    ll.merge(folder, path)
    ll.export_training(frozen(), tmp_path / "other", opset=20)
    with pytest.raises(InvalidInputError, match="an adapter of this bundle is required, got one of another"):
        ll.merge(tmp_path / "other", path)
    ll.export_adapter(tmp_path / "other", _trained(frozen(), 1), tmp_path / "of_other.safetensors")
    ll.merge(tmp_path / "other", tmp_path / "of_other.safetensors")
    with pytest.raises(InvalidInputError, match="'v' is required, got none; it is of another model"):
        ll.export_adapter(folder, ll.Trainer(ll.from_onnx(*OTHER)), path)
    ll.export_training(frozen(), tmp_path / "less", files=("init", "train"))
    with pytest.raises(InvalidModelError, match=r"a bundle with predict\.onnx is required"):
        ll.merge(tmp_path / "less", path)
    with pytest.raises(FileNotFoundError):
        ll.merge(tmp_path / "nowhere", path)
    assert checkpoint.read_arrays(path)[0]["v"].shape == (48, 3)


OTHER = (Path(__file__).parents[2] / "examples" / "torch_forecaster" / "forecaster.onnx", "mse", "sgd")
