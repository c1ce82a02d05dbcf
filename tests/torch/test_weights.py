"""Weights as safetensors that PyTorch reads literally."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")


def test_a_module_loads_what_was_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 2)
    )
    x, y = torch.randn(8, 3), torch.arange(8) % 2
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    step = ll.from_torch(module, x, torch.nn.CrossEntropyLoss(), optimizer, example_targets=y)
    trainer = ll.Trainer(step)
    for _ in range(3):
        trainer.step({"input": x.numpy(), "target": y.numpy()})
    trainer.save_weights(tmp_path / "weights.safetensors")
    other = copy.deepcopy(module)
    assert other.load_state_dict(safetensors.load_file(tmp_path / "weights.safetensors"))
    np.testing.assert_allclose(
        other.eval()(x).detach(), trainer.predict({"input": x.numpy()})["output"], rtol=1e-5, atol=1e-6
    )
    assert other[1].num_batches_tracked == 3
    safetensors.save_file(module.state_dict(), tmp_path / "first.safetensors")
    trainer.load_weights(tmp_path / "first.safetensors")
    np.testing.assert_allclose(
        module.eval()(x).detach(), trainer.predict({"input": x.numpy()})["output"], rtol=1e-5, atol=1e-6
    )
    trainer.export(tmp_path / "predict.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "predict.onnx", providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["input"]
    np.testing.assert_allclose(
        session.run(["output"], {"input": x.numpy()})[0], module(x).detach(), rtol=1e-5, atol=1e-6
    )
