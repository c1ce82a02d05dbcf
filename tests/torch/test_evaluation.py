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


class Layers(nn.Module):
    """Layers of PyTorch that ask whether they train; `also` is what the module does beside them."""

    def __init__(self, also: Any) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 8, 2, dropout=0.5, batch_first=True)
        self.coder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 8, 0.5, batch_first=True), 1, enable_nested_tensor=False
        )
        self.norm, self.plain = nn.BatchNorm1d(8), nn.BatchNorm1d(8, track_running_stats=False)
        self.drop, self.also, self.out = nn.Dropout(0.5), also, nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        hidden = self.coder(self.gru(x)[0])[:, -1]
        return self.out(self.also(self.drop(self.norm(hidden) + self.plain(hidden))))


class _Asking(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if self.training else x * 2


class _Handing(nn.Module):
    """Hands its mode on to functions, over lines, by name and as a share; one drops in evaluation, too."""

    def __init__(self) -> None:
        super().__init__()
        self.share = 0.5

    def forward(self, x: Any) -> Any:
        x = nn.functional.dropout(
            nn.functional.dropout(x, p=self.share, training=self.training), 0.3, self.training
        ) + torch.dropout(x, 0.2, train=self.training)
        rows = x[:, None, None]
        share = self.share
        x = (
            x
            + nn.functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=share if self.training else 0.0)[
                :, 0, 0
            ]
        )
        return nn.functional.dropout(x, 0.0)


class _DroppingBeside(nn.Module):
    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(nn.functional.dropout(x, 0.5, self.training), 0.0)


class _HandingOfOthers(nn.Module):
    """Hands on the mode of a module that is none of its parts, which stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.apart = [nn.Identity().eval()]

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(x, 0.5, self.apart[0].training)


class _AskedOf(nn.Dropout):
    def forward(self, x: Any) -> Any:
        return torch.relu(super().forward(x)) if self.training else x - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("also", "traces"),
    [
        (nn.Identity(), 1),
        (nn.TransformerEncoderLayer(8, 2, 8, 0.0), 1),
        (nn.BatchNorm1d(8, momentum=None), 2),
        (_Handing(), 1),
        (_DroppingBeside(), 2),
        (_HandingOfOthers(), 2),
        (_Asking(), 2),
        (_AskedOf(0.5), 2),
    ],
)
def test_one_trace_where_layers_alone_ask(also: Any, traces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, export, calls = Layers(also), torch.export.export, []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return export(*args, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    x, target = torch.randn(5, 7, 4), torch.tensor([0, 2, 1, 1, 0])
    step = ll.from_torch(
        module, x, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), 0.1), example_targets=target
    )
    assert len(calls) == traces
    trainer = ll.Trainer(step)
    trainer.step({"x": x.numpy(), "target": target.numpy()})
    trainer.to_torch(module)
    module.eval()
    with torch.no_grad():
        # With gradients off, a transformer has kernels of its own.
        expected = module(x[:3, :6])
    found = evaluation_of(model_files.load(step))
    inputs = {value.name for value in found.graph.inputs}
    state = {name: value for name, value in trainer.state_dict().items() if name in inputs}
    made = ll.Session(found).run({"x": x[:3, :6].numpy(), "target": target[:3].numpy(), **state})
    (output,) = (value for name, value in made.items() if name != "loss")
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


class Elsewhere(nn.Module):
    """Does something else in evaluation mode alone, at sizes that are none of the example's."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.own, self.way = nn.Linear(4, 4), way

    def forward(self, x: Any) -> Any:
        y = self.own(x)
        if self.way == "later steps":
            h = y[:, 0]
            for t in range(1, x.size(1)):
                h = torch.tanh(y[:, t] + h) * (3 if not self.training and t > 11 else 1)
            return h
        if not self.training and {
            "many": x.size(1) > 12,
            "some": x.size(1) == 13,
            "equal": x.size(0) == x.size(1),
        }.get(self.way):
            y = y * 2
        return y


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
@pytest.mark.parametrize("way", ["many", "some", "equal", "later steps"])
def test_what_evaluates_takes_no_sizes_at_which_the_module_does_something_else_then(way: str) -> None:
    torch.manual_seed(0)
    module = Elsewhere(way)
    step = ll.from_torch(module, torch.randn(2, 6, 4), "mse", torch.optim.SGD(module.parameters(), 0.1))
    trainer, x = ll.Trainer(step), torch.randn(13, 13, 4)
    with pytest.raises(ll.InvalidInputError, match="'x' requires"):
        trainer.predict({"x": x.numpy()})
    with torch.no_grad():
        expected = module.eval()(x[:2, :6])
    np.testing.assert_allclose(trainer.predict({"x": x[:2, :6].numpy()})["output"], expected, rtol=1e-4, atol=1e-6)
