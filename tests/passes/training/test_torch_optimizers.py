"""Optimizers and schedules of PyTorch's kind against `torch.optim`, twenty steps each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.training import schedules
from lstm_lower.passes.training import torch_optimizers as ours
from lstm_lower.passes.training.updates import Group
from lstm_lower.records import state

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
STEPS = 20
FIRST = {"w": np.array([1.0, -2.0, 0.5]), "b": np.array([0.5, 0.0])}

# Each gradient is its weight times a feed, so that a wrong weight makes wrong gradients too.
MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
step ({dtype}[3] w, {dtype}[2] b, {dtype}[3] x, {dtype}[2] y) => ({dtype}[3] grad_w, {dtype}[2] grad_b)
{{ grad_w = Mul (w, x)  grad_b = Add (b, y) }}
"""


def trainer(dtype: Any, optimizer: Any, accumulate: int = 1) -> ll.Trainer:
    name = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
    model = ir.from_proto(onnx.parser.parse_model(MODEL.format(dtype=name)))
    state.write(model, state.infer(model), {name: value.astype(dtype) for name, value in FIRST.items()})
    return ll.Trainer(model, optimizer=optimizer, accumulate=accumulate)


def feeds(dtype: Any) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [
        {"x": rng.standard_normal(3).astype(dtype), "y": (2 * rng.standard_normal(2)).astype(dtype)}
        for _ in range(STEPS)
    ]


def of_torch(make: Callable[..., Any], schedule: Callable[..., Any] | None = None) -> dict[str, Array]:
    """What PyTorch makes of the weights in float64."""
    w, b = (torch.nn.Parameter(torch.tensor(FIRST[name])) for name in ("w", "b"))
    optimizer = make(w, b)
    scheduler = None if schedule is None else schedule(optimizer)
    for feed in feeds(np.float64):
        w.grad = w.detach() * torch.tensor(feed["x"])
        b.grad = b.detach() + torch.tensor(feed["y"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return {"w": w.detach().numpy(), "b": b.detach().numpy()}


def check(optimizer: Any, expected: dict[str, Array]) -> None:
    """What one step an update makes of the weights, and two steps with the same gradients."""
    for dtype, tolerance, steps in ((np.float64, 1e-7, 1), (np.float32, 2e-6, 1), (np.float64, 1e-7, 2)):
        run = trainer(dtype, optimizer, steps)
        for feed in feeds(np.float64):
            for _ in range(steps):
                run.step({name: value.astype(dtype) for name, value in feed.items()})
        got = run.state_dict()
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=tolerance, atol=tolerance)


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "betas": (0.5, 0.8), "eps": 1e-3}),
    ("Adam", {"maximize": True, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.2}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "alpha": 0.9, "weight_decay": 0.1, "eps": 1e-3}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.5, 0.7), "weight_decay": 0.1}),
    ("NAdam", {}),
    ("NAdam", {"momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.5, 0.8), "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {}),
    ("ASGD", {"lambd": 0.1, "alpha": 0.5, "t0": 3, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.06), "maximize": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_twenty_steps(name: str, options: dict[str, Any]) -> None:
    theirs = getattr(torch.optim, name)
    check(
        getattr(ours, name)(learning_rate=0.05, **options),
        of_torch(lambda w, b: theirs([w, b], lr=0.05, foreach=False, **options)),
    )


@pytest.mark.parametrize("name", sorted({name for name, _ in OPTIONS}))
def test_defaults_are_torchs(name: str) -> None:
    defaults = getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(1))]).defaults
    mine = getattr(ours, name)()
    assert mine.learning_rate == defaults["lr"]
    shared = set(vars(mine)) & set(defaults)
    assert {key: getattr(mine, key) for key in shared} == {key: defaults[key] for key in shared}


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 6, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 3, 9], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 0}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 0}),
    ("PolynomialLR", {"total_iters": 0}),
    ("LinearLR", {"start_factor": 0.2, "end_factor": 0.8, "total_iters": 9}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
]


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedules(name: str, options: dict[str, Any]) -> None:
    theirs = getattr(torch.optim.lr_scheduler, name)
    check(
        [Group(ours.SGD(0.1), schedule=getattr(schedules, name)(**options))],
        of_torch(lambda w, b: torch.optim.SGD([w, b], lr=0.1), lambda optimizer: theirs(optimizer, **options)),
    )


def test_schedules_one_after_the_other() -> None:
    theirs = torch.optim.lr_scheduler
    check(
        [Group(ours.SGD(0.1), schedule=schedules.SequentialLR([schedules.LinearLR(), schedules.StepLR(3)], [6]))],
        of_torch(
            lambda w, b: torch.optim.SGD([w, b], lr=0.1),
            lambda optimizer: theirs.SequentialLR(
                optimizer, [theirs.LinearLR(optimizer), theirs.StepLR(optimizer, 3)], [6]
            ),
        ),
    )


S = torch.optim.lr_scheduler
CHAINS: list[Callable[..., Any]] = [
    lambda it: S.ChainedScheduler([S.LinearLR(it, 0.1, 1.0, 6), S.CosineAnnealingLR(it, 5, 0.01)]),
    lambda it: S.ChainedScheduler([S.CosineAnnealingLR(it, 4), S.ConstantLR(it, 0.2, 3), S.StepLR(it, 3, 0.7)]),
    lambda it: S.ChainedScheduler([S.PolynomialLR(it, 12, 2.0), S.MultiStepLR(it, [2, 2, 9], 0.5)]),
    lambda it: S.ChainedScheduler([S.CosineAnnealingWarmRestarts(it, 3, 2), S.ExponentialLR(it, 0.9)]),
    lambda it: S.ChainedScheduler([S.OneCycleLR(it, 0.1, total_steps=30), S.ExponentialLR(it, 0.9)]),
    lambda it: S.CyclicLR(it, 0.02, [0.1, 0.3], 3, 4),
    lambda it: S.CyclicLR(it, 0.0, 0.1, 2, mode="triangular2", cycle_momentum=False),
    lambda it: S.CyclicLR(it, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    lambda it: S.OneCycleLR(it, [0.1, 0.2], total_steps=20, pct_start=0.25),
    lambda it: S.OneCycleLR(it, 0.1, total_steps=24, three_phase=True, anneal_strategy="linear", final_div_factor=9),
    lambda it: S.SequentialLR(it, [S.ConstantLR(it), S.OneCycleLR(it, 0.1, total_steps=20, cycle_momentum=False)], [7]),
    lambda it: torch.optim.swa_utils.SWALR(it, [0.01, 0.2], 7),
    lambda it: torch.optim.swa_utils.SWALR(it, 0.05, 9, "linear"),
]
MOVED: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    *((name, {}) for name in ("Adam", "NAdam", "RAdam", "Adamax")),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "rule"),
    [
        *((it, MOVED[0]) for it in CHAINS),
        *((CHAINS[5], it) for it in MOVED),
        *((CHAINS[0], it) for it in (("ASGD", {"t0": 2, "lambd": 0.1}), ("Rprop", {}))),
    ],
)
def test_schedules_of_torch(scheduler: Callable[..., Any], rule: tuple[str, dict[str, Any]]) -> None:
    from lstm_lower.torch.optimizers import groups_of

    def made(w: Any, b: Any) -> Any:
        return getattr(torch.optim, rule[0])([{"params": [w]}, {"params": [b], "lr": 0.02}], lr=0.05, **rule[1])

    w, b = (torch.nn.Parameter(torch.tensor(FIRST[name])) for name in ("w", "b"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scheduler in a chain that is stepped before others
        groups = groups_of(scheduler(made(w, b)), {id(w): "w", id(b): "b"})
        check(groups, of_torch(made, scheduler))


def test_schedule_of_ones_own() -> None:
    theirs = torch.optim.lr_scheduler.LambdaLR
    check(
        [Group(ours.SGD(0.1), schedule=schedules.LambdaLR(lambda count: 1.0 / (count + 1)))],
        of_torch(
            lambda w, b: torch.optim.SGD([w, b], lr=0.1),
            lambda optimizer: theirs(optimizer, lambda count: 1 / (count + 1)),
        ),
    )


def test_groups_have_options_of_their_own() -> None:
    expected = of_torch(
        lambda w, b: torch.optim.Adam([{"params": [w]}, {"params": [b], "lr": 0.02, "weight_decay": 0.3}], lr=0.05)
    )
    check([Group(ours.Adam(0.05)), Group(ours.Adam(0.02, weight_decay=0.3), ["b"])], expected)


def test_learning_rate_stays_an_input_of_all_groups() -> None:
    run = trainer(np.float64, [Group(ours.SGD(0.1), ["w"]), Group(ours.SGD(0.2))])
    run.learning_rate = 0.01
    feed = feeds(np.float64)[0]
    run.step(feed)
    np.testing.assert_allclose(run.state_dict()["w"], FIRST["w"] * (1 - 0.01 * feed["x"]), rtol=1e-7)
    np.testing.assert_allclose(run.state_dict()["b"], FIRST["b"] - 0.02 * (FIRST["b"] + feed["y"]), rtol=1e-7)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([Group(ours.SGD(), ["w"])], "groups require each weight with a gradient once, got none with 'b'"),
        ([Group(ours.SGD(), ["w", "c"]), Group(ours.SGD())], "got 'c', which has none"),
        ([Group(ours.SGD(), ["w"]), Group(ours.SGD(), ["w", "b"])], "got two groups with 'w'"),
        ([Group(ours.SGD()), Group(ours.SGD())], "got 2 groups for all others"),
        ([Group(ours.SGD(0.0), ["w"]), Group(ours.SGD(0.1))], "require a first one that is not zero"),
        ([], "optimizer requires one or more groups"),
        (3, "optimizer requires one of"),
    ],
)
def test_groups_that_do_not_fit(groups: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        trainer(np.float32, groups)
