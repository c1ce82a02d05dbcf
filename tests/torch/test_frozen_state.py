"""Weights outside the optimizer as state: adversaries, target networks, next to the same loop in PyTorch."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from tests.support import bundles

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def _arrays(module: Any, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{name}": value.detach().numpy().copy() for name, value in module.state_dict().items()}


def _assert_weights(trainer: Any, module: Any) -> None:
    weights = trainer.weights()
    assert weights.keys() == module.state_dict().keys()
    for name, value in _arrays(module).items():
        np.testing.assert_allclose(weights[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


class _Judged(nn.Module):
    """A generator, and what judges its samples."""

    def __init__(self, generator: Any, discriminator: Any) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def forward(self, noise: Any) -> Any:
        return self.discriminator(self.generator(noise))


class _Both(nn.Module):
    """A discriminator on true and false samples."""

    def __init__(self, discriminator: Any, generator: Any) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator

    def forward(self, true: Any, noise: Any) -> Any:
        return {"true": self.discriminator(true), "false": self.discriminator(self.generator(noise).detach())}


def _discriminating(scores: Any) -> Any:
    return functional.softplus(-scores["true"]).mean() + functional.softplus(scores["false"]).mean()


def _generating(scores: Any) -> Any:
    return functional.softplus(-scores).mean()


@pytest.mark.slow
def test_an_adversarial_pair_trains_as_in_pytorch() -> None:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    discriminator = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    judged, both = _Judged(generator, discriminator), _Both(discriminator, generator)
    of_generator = torch.optim.Adam(generator.parameters(), 0.02, betas=(0.5, 0.999))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), 0.02, betas=(0.5, 0.999))
    true, noise = torch.randn(6, 3), torch.randn(6, 4)
    options: Any = {"example_targets": (), "frozen": "state"}
    judging = ll.Trainer(ll.from_torch(both, (true, noise), _discriminating, of_discriminator, **options))
    making = ll.Trainer(ll.from_torch(judged, noise, _generating, of_generator, **options))
    for _ in range(4):
        true, noise = torch.randn(6, 3), torch.randn(6, 4)
        feeds = {"true": true.numpy(), "noise": noise.numpy()}
        of_discriminator.zero_grad()
        loss = _discriminating(both(true, noise))
        loss.backward()
        of_discriminator.step()
        assert judging.step(feeds).loss == pytest.approx(loss.item(), rel=1e-5)
        making.load_state_dict(judging.weights(), strict=False)
        of_generator.zero_grad()
        loss = _generating(judged(noise))
        loss.backward()
        of_generator.step()
        assert making.step({"noise": noise.numpy()}).loss == pytest.approx(loss.item(), rel=1e-5)
        judging.load_state_dict(making.weights(), strict=False)
    _assert_weights(making, judged)
    _assert_weights(judging, both)


class _Values(nn.Module):
    """Deep Q-learning's two networks; the target's is in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        self.target = copy.deepcopy(self.own).requires_grad_(requires_grad=False).eval()

    def forward(self, now: Any, action: Any, reward: Any, later: Any) -> Any:
        chosen = self.own(now).gather(1, action[:, None])[:, 0]
        wanted = reward + 0.9 * self.target(later).max(1).values
        return {"loss": functional.smooth_l1_loss(chosen, wanted)}


@pytest.mark.slow
def test_a_target_network_is_replaced_every_other_step() -> None:
    torch.manual_seed(0)
    module = _Values()
    optimizer = torch.optim.AdamW(module.own.parameters(), 0.05)
    names = ("now", "action", "reward", "later")

    def drawn() -> tuple[Any, ...]:
        return torch.randn(5, 4), torch.randint(0, 2, (5,)), torch.randn(5), torch.randn(5, 4)

    trainer = ll.Trainer(ll.from_torch(module, drawn(), "loss", optimizer, frozen="state"))
    for number in range(6):
        example = drawn()
        optimizer.zero_grad()
        loss = module(*example)["loss"]
        loss.backward()
        optimizer.step()
        feeds = {name: x.numpy() for name, x in zip(names, example, strict=True)}
        assert trainer.step(feeds).loss == pytest.approx(loss.item(), rel=1e-5)
        if number % 2:
            module.target.load_state_dict(module.own.state_dict())
            own = {name: x for name, x in trainer.weights().items() if name.startswith("own.")}
            trainer.load_state_dict({name.replace("own.", "target."): x for name, x in own.items()}, strict=False)
    _assert_weights(trainer, module)
    score = trainer.evaluate(feeds)["loss"]
    assert score == pytest.approx(module.eval()(*example)["loss"].item(), rel=1e-4)


@pytest.mark.slow
def test_a_bundle_has_them_as_state_without_a_next_value(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(module[2].parameters(), 0.1)
    step = ll.from_torch(module, torch.zeros(2, 3), "mse", optimizer, frozen="state")
    described = json.loads((ll.export_training(step, tmp_path) / "training.json").read_text())
    assert {pair["input"]: bool(pair["output"]) for pair in described["state"] if pair["role"] == "weight"} == {
        "0.weight": False,
        "0.bias": False,
        "2.weight": True,
        "2.bias": True,
    }


def test_a_word_that_is_none_is_refused() -> None:
    module = nn.Linear(2, 1)
    with pytest.raises(InvalidInputError, match="frozen requires"):
        ll.from_torch(module, torch.zeros(2, 2), "mse", frozen="buffer")  # type: ignore[arg-type]


def test_a_name_that_is_unknown_is_refused_though_others_may_be_missing() -> None:
    module = nn.Linear(2, 1)
    trainer = ll.Trainer(ll.from_torch(module, torch.zeros(2, 2), "mse", torch.optim.SGD(module.parameters(), 0.1)))
    trainer.load_state_dict({"bias": np.ones(1, np.float32)}, strict=False)
    assert trainer.weights()["bias"] == 1
    with pytest.raises(InvalidInputError, match="'wieght'"):
        trainer.load_state_dict({"wieght": np.ones((1, 2), np.float32)}, strict=False)


class _Head(nn.Module):
    """A head on a base."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(6, 512, bias=False), nn.Linear(512, 3)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.base(x[:, None])).sum(1))


def _external(path: Path) -> set[str]:
    """Names of weights that are in another file."""
    graph = onnx.load(path, load_external_data=False).graph
    return {x.name for x in graph.initializer if x.data_location == onnx.TensorProto.EXTERNAL}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frozen", "names"),
    [
        ("constant", {file: {"base.weight/transposed"} for file in ("train", "eval", "predict")}),
        ("state", {"init": {"base.weight/first"}, "predict": {"base.weight"}}),
    ],
)
def test_a_bundle_holds_a_frozen_base_once(tmp_path: Path, frozen: Any, names: dict[str, set[str]]) -> None:
    torch.manual_seed(0)
    module = _Head()
    optimizer = torch.optim.Adam(module.head.parameters(), lr=0.05)
    step = ll.from_torch(module, torch.zeros(2, 6), "cross_entropy", optimizer, frozen=frozen)
    ll.export_training(step, tmp_path)
    (shared,) = tmp_path.glob("*.data")
    assert shared.stat().st_size == 4 * 6 * 512
    external = {path.stem: held for path in tmp_path.glob("*.onnx") if (held := _external(path))}
    assert external == names
    content = module.base.weight.numpy(force=True).tobytes()
    assert not any(content in path.read_bytes() for path in tmp_path.glob("*.onnx"))
    trainer = ll.Trainer(step)
    losses, _, about = bundles.plain_loop(tmp_path, 4)
    assert losses == [trainer.step(bundles.batch(number)).loss for number in range(4)]
    places = [pair["predict"]["file"] for pair in about["state"] if pair["input"] == "base.weight"]
    assert places == ([shared.name] if frozen == "state" else [])
    assert not [x.key for x in onnx.load(tmp_path / "train.onnx").metadata_props if x.key == "lstm_lower.module"]
