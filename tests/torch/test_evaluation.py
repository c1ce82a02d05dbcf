"""What evaluates a step of a PyTorch module, against the module in evaluation mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.passes.training.evaluation import evaluation_of, predictions_of
from lstm_lower.records import model_files

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Classifier(nn.Module):
    """Drops where it trains, between layers too, and as a function whose mode is the module's."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, dropout=0.5, batch_first=True)
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Any) -> dict[str, Any]:
        hidden = self.norm(self.lstm(x)[0][:, -1])
        hidden = nn.functional.dropout(hidden, 0.5, self.training)
        return {"logits": self.out(hidden), "hidden": hidden * (2 if self.training else 1)}


def _loss(result: dict[str, Any], target: Any) -> Any:
    return nn.functional.cross_entropy(result["logits"], target)


@pytest.mark.slow
@pytest.mark.parametrize("traced", [False, True])
def test_equals_the_module_in_evaluation_mode(*, traced: bool) -> None:
    torch.manual_seed(0)
    module = Classifier()
    x, target = torch.randn(5, 7, 4), torch.tensor([0, 2, 1, 1, 0])
    loss = _loss if traced else nn.CrossEntropyLoss()
    step = ll.from_torch(module, x, loss, torch.optim.SGD(module.parameters(), 0.1), example_targets=target)
    assert module.training
    assert all(part.training for part in module.modules())
    trainer = ll.Trainer(step)
    for _ in range(2):
        trainer.step({"x": x.numpy(), "target": target.numpy()})
    trainer.to_torch(module)
    module.eval()
    found = evaluation_of(model_files.load(step))
    x, target = torch.randn(3, 9, 4), torch.tensor([2, 0, 1])
    with torch.no_grad():
        expected = module(x)
        wanted = float(_loss(expected, target))
    inputs = {value.name for value in found.graph.inputs}
    state = {name: value for name, value in trainer.state_dict().items() if name in inputs}
    made = ll.Session(found).run({"x": x.numpy(), "target": target.numpy(), **state})
    np.testing.assert_allclose(made["loss"], wanted, rtol=1e-5)
    assert predictions_of(found) == ["logits", "hidden"]
    for name in ("logits", "hidden"):
        np.testing.assert_allclose(made[name], expected[name].numpy(), rtol=1e-4, atol=1e-6)
