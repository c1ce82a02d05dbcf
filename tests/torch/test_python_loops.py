"""Loops in Python keep batch and length open: recurrent modules next to autograd at three sizes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from lstm_lower.records import lengths  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402
from tests.support.examples import TIMES  # noqa: E402
from tests.support.recurrent_networks import CASES  # noqa: E402

# Batch and steps of the example; others to compare at.
# The comparison is the tests' own.
pytestmark = pytest.mark.filterwarnings("ignore:.*later steps are taken:lstm_lower.errors.LstmLowerWarning")

EXAMPLE, OTHERS = (2, 5), ((3, 9), (1, 4), (4, 16))
Sizes = Sequence[tuple[int, int]]
# What takes a fifth of a minute and more, for what others show as well.
HEAVY = {
    "DenseHistory",
    "DifferentiableNeuralComputer",
    "MatrixXLSTM",
    "NeuralTuringMachine",
    "TacotronDecoder",
}
HEAVY = HEAVY if TIMES == 1 else set()
# Modules with a body that is another one in each step, numbers that do not grow evenly, or steps that are not rolled up
# alike.
FIXED = {
    "Clockwork",
    "DenseHistory",
    "DifferentiableNeuralComputer",
}


def sequence(batch: int, steps: int) -> tuple[Any, ...]:
    return (torch.randn(batch, steps, 3),)


def loss_of(result: Any) -> Any:
    parts = [result] if isinstance(result, torch.Tensor) else result
    return sum(part.square().mean() for part in parts)


def open_step(module: Any, inputs: tuple[Any, ...], **options: Any) -> Any:
    """A module's gradients as a model; a loop whose length it fixes is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FixedStepsWarning)
        return ll.from_torch(module, inputs, loss_of, example_targets=(), **{"what": "gradients", **options})


def compare(module: Any, session: Any, inputs: tuple[Any, ...]) -> None:
    feeds = dict(zip(session.inputs, (x.numpy() for x in inputs), strict=False))
    got = session.run(feeds)
    module.zero_grad()
    loss = loss_of(module(*inputs))
    loss.backward()
    np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-4)
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            wanted = parameter.grad.numpy()
            scale = float(np.abs(wanted).max()) + 1e-4
            np.testing.assert_allclose(got[f"grad/{name}"], wanted, rtol=0, atol=1e-3 * scale, err_msg=name)


def check_open(
    module: Any, inputs: Callable[[int, int], tuple[Any, ...]], sizes: Sizes = (EXAMPLE, *OTHERS), **options: Any
) -> None:
    """Opens a module at the first batch and number of steps, and compares it with autograd at all of them."""
    session = ll.Session(open_step(module, inputs(*sizes[0]), **options), providers=["CPUExecutionProvider"])
    for batch, steps in sizes:
        compare(module, session, inputs(batch, steps))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES.keys() - FIXED - HEAVY))
def test_batch_and_length_are_open(name: str) -> None:
    make, inputs = CASES[name]
    check_open(make(), inputs, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIXED - HEAVY))
def test_a_length_that_stays_fixed_is_told(name: str) -> None:
    told = r"axis 1 of 'x' \(a loop in Python goes over 5 steps \(recurrent_networks.py:\d+\); .*ll\.scan"
    make, inputs = CASES[name]
    module = make()
    with pytest.warns(FixedStepsWarning, match=told):
        step = ll.from_torch(module, inputs(*EXAMPLE), loss_of, example_targets=(), what="gradients", check=False)
    fixed = json.loads(next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES))
    assert "1" in fixed["x"]
    compare(module, ll.Session(step, providers=["CPUExecutionProvider"]), inputs(4, EXAMPLE[1]))


class TwoLengths(torch.nn.Module):
    """Steps of one sequence are alike, those of another read all before."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.Linear(3, 3)

    def forward(self, x: Any, y: Any) -> Any:
        h = x.new_zeros(x.size(0), 3)
        for t in range(x.size(1)):
            h = torch.tanh(self.own(h) + x[:, t])
        past = [h]
        for t in range(y.size(1)):
            past.append(torch.tanh(torch.stack(past).mean(0) + y[:, t]))
        return past[-1]


@pytest.mark.slow
def test_of_two_lengths_one_is_fixed_alone() -> None:
    torch.manual_seed(0)
    module, inputs = TwoLengths(), (torch.randn(2, 5, 3), torch.randn(2, 4, 3))
    with pytest.warns(FixedStepsWarning, match="axis 1 of 'y'") as told:
        step = ll.from_torch(module, inputs, loss_of, example_targets=(), what="gradients")
    assert "of 'x'" not in str(told[0].message)
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    compare(module, session, (torch.randn(3, 9, 3), torch.randn(3, 4, 3)))


def test_most_are_open() -> None:
    assert len(CASES) >= 40
    assert len(FIXED) <= len(CASES) / 6


@pytest.mark.slow
def test_the_least_length_is_told_and_required() -> None:
    torch.manual_seed(0)
    make, inputs = CASES["BiLSTMCRF"]
    step = ll.from_torch(make(), inputs(*EXAMPLE), loss_of, example_targets=(), what="gradients")
    (length,) = lengths.parse({entry.key: entry.value for entry in step.metadata_props})
    assert length == lengths.Length({name: {1: lengths.Law()} for name in ("words", "tags", "mask")}, least=2)
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    session.run(dict(zip(session.inputs, (x.numpy() for x in inputs(3, 2)), strict=True)))
    with pytest.raises(ll.InvalidInputError, match=r"'words' requires .* axis 1 \(for 2 or more steps\), got shape"):
        session.run(dict(zip(session.inputs, (x.numpy() for x in inputs(3, 1)), strict=True)))
