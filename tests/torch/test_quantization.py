"""Training for quantization with PyTorch's default configurations, next to PyTorch: weights, ranges, scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class _Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch.ao import quantization

        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.convolution, self.head = nn.Conv2d(2, 3, 3), nn.Linear(12, 2)

    def forward(self, x: Any) -> Any:
        return self.dequant(self.head(torch.relu(self.convolution(self.quant(x))).flatten(1)))


def _prepared(backend: str) -> Any:
    from torch.ao import quantization

    torch.manual_seed(0)
    module = _Quantized().train()
    module.qconfig = quantization.get_default_qat_qconfig(backend)
    return quantization.prepare_qat(module)


# By channel and symmetric; by tensor and not.
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_steps_and_ranges_equal_pytorchs(backend: str) -> None:
    module = _prepared(backend)
    module(torch.randn(4, 2, 4, 4))
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    trainer = ll.Trainer(ll.from_torch(module, torch.randn(4, 2, 4, 4), "mse", optimizer))
    for number in range(5):
        x, y = torch.randn(4, 2, 4, 4) * number, torch.randn(4, 2)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        assert trainer.step({"x": x.numpy(), "target": y.numpy()}).loss == pytest.approx(loss.item(), rel=1e-4)
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(trainer.weights()[name], value.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_ranges_of_channels_must_be_there() -> None:
    module = _prepared("fbgemm")
    with pytest.raises(UnsupportedOpError, match="call the module once"):
        ll.from_torch(module, torch.zeros(4, 2, 4, 4), "mse", torch.optim.SGD(module.parameters(), 0.1))
