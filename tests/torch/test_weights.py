"""Weights as safetensors that PyTorch reads literally."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")


@pytest.mark.slow
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
    with pytest.raises(InvalidInputError, match="strict=False"):
        trainer.load_state_dict(module.state_dict())
    trainer.load_state_dict(module.state_dict(), strict=False)
    trainer.export(tmp_path / "predict.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "predict.onnx", providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["input"]
    np.testing.assert_allclose(
        session.run(["output"], {"input": x.numpy()})[0], module(x).detach(), rtol=1e-5, atol=1e-6
    )


class _Everything(torch.nn.Module):
    """Parameters and buffers of every kind: trained, frozen, tied, unread, complex, computed, in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.first, self.frozen, self.unread = (
            nn.Linear(3, 4),
            nn.Linear(4, 4).requires_grad_(requires_grad=False),
            nn.Linear(2, 2),
        )
        self.again, self.last = self.first, nn.Linear(3, 4)
        self.last.weight = self.first.weight
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.batch, self.fixed = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))
        self.register_buffer("place", torch.arange(4.0))
        self.register_buffer("beside", torch.randn(2))
        self.register_buffer("between", torch.ones(2), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.fixed(self.batch(self.normed(self.frozen(self.first(x))) + self.place)) * (self.turn * 2j).real


@pytest.mark.slow
def test_a_state_dict_is_the_modules_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, other, third = _Everything(), _Everything(), _Everything()
    module.fixed.eval()
    x, y = torch.randn(5, 3), torch.randn(5, 4)
    trainer = ll.Trainer(ll.lower(ll.from_torch(module, x, "mse", torch.optim.SGD(module.parameters(), 0.1))))
    for _ in range(2):
        trainer.step({"x": x.numpy(), "target": y.numpy()})
    held = trainer.state_dict()
    assert held.keys() - module.state_dict().keys() == {"iteration"}
    assert other.load_state_dict({name: torch.from_numpy(value) for name, value in trainer.weights().items()})
    for name in ("frozen.weight", "unread.bias", "place", "beside", "fixed.running_var", "fixed.num_batches_tracked"):
        assert torch.equal(other.state_dict()[name], module.state_dict()[name])
    assert other.again.weight is other.first.weight
    assert not torch.equal(other.first.weight, module.first.weight)
    trainer.to_torch(third)
    for name, value in third.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    np.testing.assert_allclose(
        third.eval()(x).detach(), trainer.predict({"x": x.numpy()})["output"], rtol=1e-5, atol=1e-6
    )
    safetensors.save_model(module, str(tmp_path / "first.safetensors"))
    trainer.load_weights(tmp_path / "first.safetensors")
    np.testing.assert_array_equal(trainer.weights()["turn"], module.turn.detach())
    trainer.load_state_dict({**held, "beside": held["beside"] + 1})
    np.testing.assert_array_equal(trainer.state_dict()["beside"], held["beside"] + 1)
    for name in ("frozen.weight", "again.weight"):
        with pytest.raises(InvalidInputError, match=f"'{name}' requires the value"):
            trainer.load_state_dict({**held, name: held[name] + 1})


class ShapeAlone(torch.nn.Linear):
    """Of what a second layer makes, only the shape and the dtype matter."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.other = torch.nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return super().forward(x) + torch.zeros_like(self.other(x))


@pytest.mark.slow
def test_what_gives_a_shape_alone_does_not_decay() -> None:
    module = ShapeAlone()
    before = module.other.weight.detach().clone()
    optimizer = torch.optim.AdamW(module.parameters(), 0.1, weight_decay=0.5)
    trainer = ll.Trainer(ll.from_torch(module, torch.randn(4, 3), "mse", optimizer))
    trainer.step({"x": np.ones((4, 3), np.float32), "target": np.ones((4, 2), np.float32)})
    trainer.to_torch(module)
    assert torch.equal(module.other.weight, before)
