"""`fit` on a PyTorch DataLoader, and `evaluate` and `predict` next to the module in its form for inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerWarning

torch: Any = pytest.importorskip("torch")


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


class _Squares(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples by number, as users write them."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> tuple[Any, float]:
        return np.full(3, place / 12), float(place**2)


def test_datasets_and_other_precisions_train_with_one_warning() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 4)
    step = ll.from_torch(module, torch.zeros(2, 3), "cross_entropy", torch.optim.SGD(module.parameters(), 0.1))
    x, labels = torch.randn(12, 3), torch.arange(12, dtype=torch.int32) % 4
    whole = torch.utils.data.TensorDataset(x.double(), labels)
    part = torch.utils.data.Subset(whole, range(8))
    loader = torch.utils.data.DataLoader(part, batch_size=4)
    histories = []
    for data in (part, loader, torch.utils.data.TensorDataset(x.double()[:8], labels[:8])):
        with pytest.warns(LstmLowerWarning) as told:
            histories.append(ll.Trainer(step).fit(data, batch_size=4, shuffle=False, epochs=2)["loss"])
        assert sorted(str(each.message).split("'")[1] for each in told) == ["input", "target"]
    plain = ll.Trainer(step).fit((x[:8], labels[:8].long()), batch_size=4, shuffle=False, epochs=2)["loss"]
    assert histories == [plain] * 3
    with pytest.raises(InvalidInputError, match="got int64"):
        ll.Trainer(step).fit((x.long(), labels))


def test_samples_by_number_train() -> None:
    module = torch.nn.Linear(3, 1)

    def error(result: Any, target: Any) -> Any:
        return ((result[:, 0] - target) ** 2).mean()

    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    step = ll.from_torch(module, torch.zeros(2, 3), error, optimizer, example_targets=torch.zeros(2))
    with pytest.warns(LstmLowerWarning, match="float64 are converted"):
        history = ll.Trainer(step).fit(_Squares(), epochs=2)
    assert len(history["loss"]) == 2


def test_too_few_batches_for_an_update_are_told() -> None:
    module = torch.nn.Linear(3, 1)
    step = ll.from_torch(module, torch.zeros(2, 3), "mse", torch.optim.SGD(module.parameters(), 0.1))
    data = {"input": np.ones((6, 3), np.float32), "target": np.ones((6, 1), np.float32)}
    with pytest.warns(LstmLowerWarning, match="accumulate=8 requires as many batches for an update, got 4 in all"):
        ll.Trainer(step, accumulate=8).fit(data, batch_size=3, epochs=2)
    ll.Trainer(step, accumulate=4).fit(data, batch_size=3, epochs=2)
