"""Training steps of PyTorch modules: gradients and updates against autograd and `torch.optim`."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower.torch.interface import named_tensors  # noqa: E402
from tests.support.torch_zoo import CASES, Case  # noqa: E402

BY_NAME = {case.name: case for case in CASES}


def projected_loss(result: Any) -> Any:
    """A sum in which every output has a gradient of its own."""
    tensors = [tensor for _, tensor in named_tensors("", result) if tensor.is_floating_point()]
    return sum((tensor * torch.sin(tensor + 1)).mean() for tensor in tensors)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
@pytest.mark.parametrize(
    "name",
    [
        "lstm_packed_short",
        "lstm_projected",
        "embedding_padded",
        "detach",
        "no_grad",
        "cells_batch_norm",
        "teacher_forcing",
        "learnt_start",
        "text_reader",
        "quantiles",
        "cross_entropy_weighted",
    ],
)
def test_gradients_equal_autograd_at_other_sizes(name: str) -> None:
    case: Case = BY_NAME[name]
    torch.manual_seed(2)
    module = case.make()
    step = ll.from_torch(module, case.inputs(2, 5), projected_loss, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    weights = {value.name: onnx.numpy_helper.to_array(value) for value in step.graph.initializer}
    inputs = [value.name for value in step.graph.input if value.name not in weights]
    for sizes in ((2, 5), (3, 8)):
        example = case.inputs(*sizes)
        got = session.run(dict(zip(inputs, [x.numpy() for x in example], strict=True)))
        module.zero_grad()
        loss = projected_loss(module(*example))
        loss.backward()
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
        for weight, parameter in module.named_parameters():
            np.testing.assert_allclose(got[f"grad/{weight}"], parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.lstm(x)[0][:, -1]))


def batch(number: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(number)
    rows, steps = 2 + number % 3, 1 + number % 4
    x = rng.standard_normal((rows, steps, 3)).astype(np.float32)
    return torch.tensor(x), torch.tensor(rng.integers(0, 4, rows))


def trained(module: nn.Module, optimizer: Any, scheduler: Any, numbers: range) -> list[float]:
    losses = []
    for number in numbers:
        x, target = batch(number)
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), target, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_goes_on_where_an_optimizer_with_groups_and_a_schedule_stands() -> None:
    torch.manual_seed(3)
    module = Classifier()
    recurrent = list(module.lstm.parameters())
    rest = [*module.norm.parameters(), *module.head.parameters(), *module.unused.parameters()]
    optimizer = torch.optim.AdamW([{"params": recurrent}, {"params": rest, "lr": 3e-3}], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    trained(module, optimizer, scheduler, range(3))
    step = ll.from_torch(module, batch(0)[0], nn.CrossEntropyLoss(label_smoothing=0.1), scheduler)
    assert json.loads(next(p.value for p in step.metadata_props if p.key == "lstm_lower.fixed_axes")) == {
        "x": {"2": "forward works for this size alone"}
    }
    trainer = ll.Trainer(step)
    got = []
    for number in range(3, 15):
        x, target = batch(number)
        got.append(trainer.step({"x": x.numpy(), "target": target.numpy()}).loss)
    np.testing.assert_allclose(got, trained(module, optimizer, scheduler, range(3, 15)), rtol=1e-5)
    loaded = Classifier()
    trainer.to_torch(loaded)
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(loaded.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    by_hand = Classifier()
    by_hand.load_state_dict({name: torch.from_numpy(x) for name, x in trainer.state_dict().items()}, strict=False)
    for name, value in loaded.state_dict().items():
        assert torch.equal(by_hand.state_dict()[name], value), name
    with pytest.raises(InvalidInputError, match=r"module requires the weights .* got one without 'lstm.weight_ih_l0'"):
        trainer.to_torch(nn.Linear(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "targets", "names"),
    [
        ("mse", None, ["target"]),
        (functional.l1_loss, torch.zeros(2, 2), ["target"]),
        (
            lambda result, a, b: ((result - a) ** 2 * b).mean(),
            (torch.zeros(2, 2), torch.ones(2, 2)),
            ["target_0", "target_1"],
        ),
    ],
)
def test_targets_are_inputs(loss: Any, targets: Any, names: list[str]) -> None:
    step = ll.from_torch(nn.Linear(3, 2), torch.zeros(2, 3), loss, "sgd", example_targets=targets)
    trainer = ll.Trainer(step)
    assert trainer.inputs == ["input", *names]
    feeds = {name: np.ones((5, 2), np.float32) for name in names}
    before = trainer.step({"input": np.ones((5, 3), np.float32), **feeds}).loss
    assert trainer.step({"input": np.ones((5, 3), np.float32), **feeds}).loss < before


class Counting(nn.Linear):
    """Outputs in proportion to what they were on average, which it counts in any mode."""

    def __init__(self) -> None:
        super().__init__(3, 4)
        self.register_buffer("level", torch.ones(4))

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        with torch.no_grad():
            self.level.mul_(0.9).add_(y.mean(0) * 0.1)
        return y * self.level


class Remembering(nn.Linear):
    """Keeps its last result, which it never reads, and what it began with."""

    def __init__(self) -> None:
        super().__init__(3, 4)
        self.register_buffer("first", torch.tensor([1.0, 2.0]))
        self.register_buffer("copied", torch.zeros(2))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        self.last = y.detach().mean(0)
        self.copied = self.first.clone()
        return y


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        Counting(),
        Counting().eval(),
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None)),
        nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 4))),
        Remembering(),
    ],
    ids=["training", "evaluation", "cumulative average", "spectral norm", "written only"],
)
def test_buffers_change_as_in_torch(module: Any) -> None:
    theirs = copy.deepcopy(module)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    step = ll.from_torch(module, torch.rand(4, 3), "mse", torch.optim.SGD(module.parameters(), 0.1))
    trainer = ll.Trainer(step, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(4)
    for rows in (5, 6, 3):
        x, target = torch.randn(rows, 3, generator=generator), torch.randn(rows, 4, generator=generator)
        loss = functional.mse_loss(theirs(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours = trainer.step({trainer.inputs[0]: x.numpy(), "target": target.numpy()}).loss
        assert ours == pytest.approx(loss.item(), rel=1e-5)
    trainer.to_torch(module)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(module.state_dict()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


class Handing(nn.Linear):
    """Returns a parameter and a buffer as they are, under names that others have."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: Any) -> dict[str, Any]:
        y = super().forward(x) * self.scale + self.shift
        return {"y": y, "scale": self.scale, "shift": self.shift, "target": y * 2, "x": x, "of_0": y, "of": [y]}


@pytest.mark.slow
@pytest.mark.parametrize("traced", [True, False])
def test_weights_that_a_module_returns_are_trained_and_names_are_kept_apart(traced: bool) -> None:
    module = Handing()
    loss = (lambda result, target: functional.mse_loss(result["y"], target)) if traced else "mse"
    example = torch.ones(2, 2) if traced else None
    step = ll.from_torch(module, torch.ones(2, 3), loss, example_targets=example, what="gradients")
    x, target = torch.rand(4, 3), torch.rand(4, 2)
    got = ll.Session(step).run({"x": x.numpy(), "target": target.numpy()})
    functional.mse_loss(module(x)["y"], target).backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(got[f"grad/{name}"], parameter.grad.numpy(), rtol=1e-5)
    results = {"y", "output_scale", "output_shift", "output_target", "output_x", "of_0", "output_of_0"}
    assert {name for name in got if not name.startswith("grad/")} == {"loss", *results}
    np.testing.assert_array_equal(got["output_scale"], [2, 3])


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


class OfPairs(nn.Linear):
    def forward(self, pair: Any) -> Any:
        return super().forward(pair.first) * pair.second


def test_inputs_may_be_dataclasses() -> None:
    step = ll.from_torch(OfPairs(3, 2), (Pair(torch.randn(4, 3), torch.randn(4, 2)),), "mse", what="gradients")
    assert [each.name for each in step.graph.input][:2] == ["pair_first", "pair_second"]


class Turning(nn.Module):
    """Turns by angles that it knows, and by others that it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.exp(1j * torch.arange(4.0)))
        self.register_buffer("angles", torch.exp(2j * torch.arange(4.0)))

    def forward(self, x: Any) -> Any:
        return ((x + 0.5j) * self.weight * self.angles).real


@pytest.mark.slow
def test_complex_parameters_are_pairs_in_a_step() -> None:
    module, theirs = Turning(), Turning()
    optimizer = torch.optim.Adam(theirs.parameters(), 0.1)
    x = torch.arange(12.0).reshape(3, 4) / 12
    trainer = ll.Trainer(ll.from_torch(module, x, "mse", torch.optim.Adam(module.parameters(), 0.1)))
    for _ in range(2):
        loss = functional.mse_loss(theirs(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step({"x": x.numpy(), "target": x.numpy()}).loss == pytest.approx(loss.item(), rel=1e-5)
    assert trainer.state_dict()["weight"].shape == (4, 2)
    trainer.to_torch(module)
    np.testing.assert_allclose(module.weight.detach(), theirs.weight.detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(UnsupportedOpError, match="example_inputs requires real numbers, got 'x' of torch"):
        ll.from_torch(module, x + 1j, "mse")


class Starting(nn.Module):
    """Starts from states that it learns, and from one that it keeps; both are zero at first. Two weights are one."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(3, 3, batch_first=True)
        self.start = nn.Parameter(torch.zeros(1, 1, 3))
        self.register_buffer("kept", torch.zeros(1, 1, 3))
        self.head = nn.Linear(3, 3)
        self.again = self.head
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.head.weight

    def forward(self, x: Any) -> Any:
        y, (_, memory) = self.cells(x, tuple(s.expand(-1, x.size(0), -1).contiguous() for s in (self.start, self.kept)))
        self.kept = memory.mean(1, keepdim=True).detach()
        return self.tied(self.again(y)) * y.abs().amax().item()


@pytest.mark.slow
def test_first_states_of_zero_are_learnt_and_kept_and_ties_stay() -> None:
    module = Starting()
    theirs = copy.deepcopy(module)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.5)
    step = ll.from_torch(module, torch.rand(2, 4, 3), "mse", torch.optim.SGD(module.parameters(), 0.5))
    assert module.tied.weight is module.head.weight
    trainer = ll.Trainer(step, providers=["CPUExecutionProvider"])
    for rows in (3, 2, 4):
        x = torch.randn(rows, 5, 3, generator=torch.Generator().manual_seed(rows))
        loss = functional.mse_loss(theirs(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step({"x": x.numpy(), "target": x.numpy()}).loss == pytest.approx(loss.item(), rel=1e-5)
    trainer.to_torch(module)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(module.state_dict()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_frozen_parameters_stay() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    module[0].requires_grad_(requires_grad=False)
    step = ll.from_torch(module, torch.zeros(2, 3), nn.MSELoss(), what="gradients")
    assert [value.name for value in step.graph.output] == ["loss", "output", "grad/1.weight", "grad/1.bias"]


def test_gradients_of_inputs() -> None:
    step = ll.from_torch(nn.Tanh(), torch.zeros(2, 3), nn.MSELoss(), what="input_gradient")
    assert [value.name for value in step.graph.output] == ["loss", "output", "grad/input"]


def test_a_module_without_parameters_is_called_that() -> None:
    with pytest.raises(InvalidInputError, match="a module with parameters, got Tanh without any"):
        ll.from_torch(nn.Tanh(), torch.zeros(2, 3), nn.MSELoss())


LINEAR = nn.Linear(3, 2)
STEPPED = torch.optim.lr_scheduler.ExponentialLR(torch.optim.Adam(LINEAR.parameters()), 0.9)
STEPPED.last_epoch = 4
SET = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(LINEAR.parameters(), 0.1), 5)
SET.optimizer.param_groups[0]["lr"] = 0.3


@pytest.mark.parametrize(
    ("loss", "optimizer", "error", "message"),
    [
        (
            lambda result, _: result.sum(),
            None,
            InvalidInputError,
            "a loss that is traced requires example_targets",
        ),
        (3, None, InvalidInputError, "loss requires a name, a loss module or a function of .*, got 3"),
        ("mean", None, InvalidInputError, "loss requires one of the model's outputs"),
        ("mse", torch.optim.LBFGS(LINEAR.parameters()), UnsupportedOpError, "optimizer requires a step .*got LBFGS"),
        (
            "mse",
            torch.optim.SGD(nn.Linear(3, 2).parameters()),
            InvalidInputError,
            "optimizer requires parameters of the module",
        ),
        ("mse", SET, InvalidInputError, "learning rate that follows from its options after 0 updates, 0.1, got 0.3"),
        ("mse", STEPPED, InvalidInputError, "a scheduler must have been stepped as often as its optimizer"),
        (
            "mse",
            torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(LINEAR.parameters())),
            UnsupportedOpError,
            r"got ReduceLROnPlateau, which goes by a metric .* after each scheduler.step\(metric\)",
        ),
    ],
)
def test_what_does_not_fit(loss: Any, optimizer: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ll.from_torch(LINEAR, torch.zeros(2, 3), loss, optimizer)


class Scaling(nn.Module):
    """Integers times a weight, which in a file is what quantizers write."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        return (x * 9).to(torch.int8) * self.scale


def test_a_weight_that_scales_integers_is_trained() -> None:
    module, x = Scaling(), torch.randn(3, 2)
    trainer = ll.Trainer(ll.from_torch(module, x, nn.MSELoss(), torch.optim.SGD(module.parameters(), 0.1)))
    trainer.step({"x": x.numpy(), "target": np.ones((3, 2), np.float32)})
    (module(x) - 1).square().mean().backward()
    np.testing.assert_allclose(trainer.weights()["scale"], (module.scale - 0.1 * module.scale.grad).detach(), rtol=1e-6)
