"""`fit` on a PyTorch DataLoader, and `evaluate` and `predict` next to the module in its form for inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


@pytest.mark.slow
def test_a_data_loader_trains_and_the_module_agrees() -> None:
    class Forecaster(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 8, batch_first=True)
            self.dropout = torch.nn.Dropout(0.3)
            self.head = torch.nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.dropout(self.lstm(x)[0][:, -1]))

    torch.manual_seed(0)
    x = torch.randn(40, 6, 3)
    y = x.mean(1)[:, :2]
    module = Forecaster()
    step = ll.from_torch(module, torch.zeros(2, 6, 3), "mse", torch.optim.Adam(module.parameters(), 0.01))
    trainer = ll.Trainer(step)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8, shuffle=True)
    history = trainer.fit(loader, validation=(x, y), epochs=12)
    assert history["val_loss"][-1] < 0.7 * history["val_loss"][0]
    trainer.to_torch(module)
    module.eval()
    with torch.no_grad():
        wanted = module(x)
    (predicted,) = trainer.predict(x, batch_size=16).values()
    np.testing.assert_allclose(predicted, wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert trainer.evaluate((x, y))["loss"] == pytest.approx(float(((wanted - y) ** 2).mean()), rel=1e-4)
