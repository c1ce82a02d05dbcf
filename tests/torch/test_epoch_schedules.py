"""Schedulers of PyTorch that are stepped once an epoch, and optimizers as frameworks hand them over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerWarning
from lstm_lower.runtime.training.callbacks import EpochSchedule

torch: Any = pytest.importorskip("torch")

from torch.optim import lr_scheduler  # noqa: E402

_SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.3),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 4),
    "function": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
}


def _made() -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1)
    return module, torch.optim.SGD(module.parameters(), 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SCHEDULERS)
def test_epochs_equal_pytorchs(name: str, tmp_path: Path) -> None:
    module, optimizer = _made()
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    step = ll.from_torch(module, x, "mse", optimizer)
    ours = _SCHEDULERS[name](_made()[1])
    data = {"input": x.numpy(), "target": y.numpy()}
    options: Any = {"batch_size": 4, "shuffle": False, "folder": tmp_path}
    ll.Trainer(step).fit(data, epochs=2, callbacks=[EpochSchedule(ours)], **options)
    # A run that goes on knows where its scheduler was.
    trainer = ll.Trainer(step)
    history = trainer.fit(data, epochs=5, callbacks=[EpochSchedule(_SCHEDULERS[name](_made()[1]))], **options)
    theirs = _SCHEDULERS[name](optimizer)
    for epoch in range(5):
        losses = []
        assert history["learning_rate"][epoch] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6)
        for start in (0, 4):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(module(x[start : start + 4]), y[start : start + 4])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        theirs.step(*([sum(losses) / 2] if name == "plateau" else []))
        assert history["loss"][epoch] == pytest.approx(sum(losses) / 2, rel=1e-5)
    np.testing.assert_allclose(trainer.weights()["weight"], module.weight.detach().numpy(), rtol=1e-5)


class _Wrapper(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer around another one, as Accelerate's is."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups


class _Scheduling:
    """A scheduler around another one, as Accelerate's is."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler


_FORMS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "a dictionary": (lambda optimizer, _: {"optimizer": optimizer}, False),
    "stepped with it": (
        lambda optimizer, scheduler: {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        },
        True,
    ),
    "wrapped": (lambda optimizer, _: _Wrapper(optimizer), False),
    "a wrapped scheduler": (lambda _, scheduler: _Scheduling(scheduler), True),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", _FORMS)
def test_optimizers_are_taken_as_frameworks_have_them(form: str) -> None:
    module, optimizer = _made()
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    make, scheduled = _FORMS[form]
    step = ll.from_torch(module, torch.zeros(2, 3), "mse", make(optimizer, scheduler))
    plain = ll.from_torch(module, torch.zeros(2, 3), "mse", scheduler if scheduled else optimizer)
    feeds = {"input": np.ones((2, 3), np.float32), "target": np.ones((2, 1), np.float32)}
    one, other = ll.Trainer(step), ll.Trainer(plain)
    assert [one.step(feeds).loss for _ in range(3)] == [other.step(feeds).loss for _ in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dictionary", "lists"])
def test_a_scheduler_of_epochs_is_told_to_go_to_fit(form: str) -> None:
    module, optimizer = _made()
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    given = {"optimizer": optimizer, "lr_scheduler": scheduler} if form == "dictionary" else ([optimizer], [scheduler])
    with pytest.warns(LstmLowerWarning, match="EpochSchedule"):
        ll.from_torch(module, torch.zeros(2, 3), "mse", given)


def test_what_is_no_scheduler_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="is required, got SGD"):
        EpochSchedule(_made()[1])
