"""Edits of training steps against numpy: clipping, accumulation, optimizers, the learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.passes.training.optimizers import SGD, Adam, Optimizer, RMSprop
from lstm_lower.passes.training.options import LearningRateInputPass, TrainingOptionsPass
from lstm_lower.records import state
from lstm_lower.records.state import StatePair, TrainingState
from tests.support.training_models import char_lstm, quadratic

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
STEPS = 6


def gradients(w: Array, b: Array, x: Array) -> list[Array]:
    return [(w - x).sum(axis=0), np.sign(b)]


def inputs(count: int = STEPS, size: int = 2) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((size, 3)).astype(np.float32) for _ in range(count)]


def sgd(options: SGD, weight: Array, gradient: Array, slots: Values, step: int) -> Array:
    velocity = slots["v"] = options.momentum * slots.get("v", 0.0) + gradient
    direction = gradient + options.momentum * velocity if options.nesterov else velocity
    return weight * (1 - options.learning_rate * options.weight_decay) - options.learning_rate * direction


def adam(options: Adam, weight: Array, gradient: Array, slots: Values, step: int) -> Array:
    m = slots["m"] = options.beta_1 * slots.get("m", 0.0) + (1 - options.beta_1) * gradient
    v = slots["v"] = options.beta_2 * slots.get("v", 0.0) + (1 - options.beta_2) * gradient**2
    rate = options.learning_rate * np.sqrt(1 - options.beta_2**step) / (1 - options.beta_1**step)
    return weight * (1 - options.learning_rate * options.weight_decay) - rate * m / (np.sqrt(v) + options.epsilon)


def rmsprop(options: RMSprop, weight: Array, gradient: Array, slots: Values, step: int) -> Array:
    s = slots["s"] = options.rho * slots.get("s", 0.0) + (1 - options.rho) * gradient**2
    return weight - options.learning_rate * gradient / np.sqrt(s + options.epsilon)


FORMULAS = {SGD: sgd, Adam: adam, RMSprop: rmsprop}
OPTIMIZERS: list[Optimizer] = [
    SGD(0.1),
    SGD(0.1, momentum=0.8),
    SGD(0.1, momentum=0.8, nesterov=True),
    SGD(0.1, weight_decay=0.1),
    Adam(0.1),
    Adam(0.05, beta_1=0.5, beta_2=0.7, epsilon=1e-3, weight_decay=0.2),
    RMSprop(0.05, rho=0.6, epsilon=1e-2),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.7}, {"clip_value": 0.3}, {"clip_norm": 2.0, "clip_value": 0.5}])
def test_updates_equal_numpy(optimizer: Optimizer, clip: dict[str, float]) -> None:
    trainer = ll.Trainer(quadratic(), optimizer=optimizer, **clip)  # type: ignore[arg-type]
    weights = [np.array([1.0, 2.0, 3.0]), np.array([0.5, -0.25])]
    slots: list[Values] = [{}, {}]
    # Adam's bias correction subtracts a float32 near 1 from 1, as TensorFlow's does.
    tolerance = 1e-4 if isinstance(optimizer, Adam) else 5e-6
    for step, x in enumerate(inputs(), 1):
        found = gradients(*weights, x.astype(np.float64))
        if "clip_norm" in clip:
            norm = np.sqrt(sum((g**2).sum() for g in found))
            found = [g * clip["clip_norm"] / max(norm, clip["clip_norm"]) for g in found]
        if "clip_value" in clip:
            found = [np.clip(g, -clip["clip_value"], clip["clip_value"]) for g in found]
        formula = FORMULAS[type(optimizer)]
        weights = [
            formula(optimizer, w, g, s, step)  # type: ignore[operator]
            for w, g, s in zip(weights, found, slots, strict=True)
        ]
        trainer.step({"x": x})
        result = trainer.state_dict()
        np.testing.assert_allclose(result["w"], weights[0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(result["b"], weights[1], rtol=tolerance, atol=tolerance)
        assert result["iteration"] == step


@pytest.mark.parametrize("optimizer", [SGD(0.03), SGD(0.03, momentum=0.8), Adam(0.1)], ids=repr)
@pytest.mark.parametrize("clip_norm", [None, 0.7])
def test_accumulated_steps_make_one_update(optimizer: Optimizer, clip_norm: float | None) -> None:
    """Of the mean gradient; between updates nothing but the sums changes."""
    trainer = ll.Trainer(quadratic(), optimizer=optimizer, accumulate=3, clip_norm=clip_norm)
    weights = [np.array([1.0, 2.0, 3.0]), np.array([0.5, -0.25])]
    slots: list[Values] = [{}, {}]
    # Adam's bias correction subtracts a float32 near 1 from 1, as TensorFlow's does.
    tolerance = 1e-4 if isinstance(optimizer, Adam) else 5e-6
    data = inputs(9)
    for update in range(3):
        before = trainer.state_dict()
        sums: list[Array] = [np.zeros(3), np.zeros(2)]
        for number, x in enumerate(data[3 * update : 3 * update + 3]):
            if number:
                held = trainer.state_dict()
                for name in ("w", "b", "iteration"):
                    np.testing.assert_array_equal(held[name], before[name])
                np.testing.assert_allclose(held["w/accumulated"], sums[0], rtol=1e-5, atol=1e-6)
                assert held["accumulated_steps"] == number
            trainer.step({"x": x})
            sums = [s + g for s, g in zip(sums, gradients(*weights, x), strict=True)]
        means = [s / 3 for s in sums]
        norm = np.sqrt(sum((g**2).sum() for g in means))
        factor = 1.0 if clip_norm is None else clip_norm / max(norm, clip_norm)
        formula = FORMULAS[type(optimizer)]
        weights = [
            formula(optimizer, w, factor * g, s, update + 1)  # type: ignore[operator]
            for w, g, s in zip(weights, means, slots, strict=True)
        ]
        after = trainer.state_dict()
        np.testing.assert_allclose(after["w"], weights[0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(after["b"], weights[1], rtol=tolerance, atol=tolerance)
        assert after["iteration"] == update + 1
        assert after["accumulated_steps"] == 0
        assert not after["w/accumulated"].any()


def test_two_half_batches_equal_the_whole() -> None:
    """Of a model that brings its own updates; the loss is a mean, and so are the gradients."""
    model, data = char_lstm()
    whole, halves = ll.Trainer(model, clip_norm=0.5), ll.Trainer(model, clip_norm=0.5, accumulate=2)
    for _ in range(3):
        loss = whole.step(data).loss
        parts = [halves.step({name: array[:, rows] for name, array in data.items()}).loss for rows in ([0, 1], [2, 3])]
        assert np.mean(parts) == pytest.approx(loss, rel=1e-5)
    kept = halves.state_dict()
    for name, array in whole.state_dict().items():
        np.testing.assert_allclose(kept[name], array, rtol=1e-4, atol=2e-6)


# `seed` feeds the gradient and so belongs to a step; `count` counts updates; `moving` never sees a gradient.
_STATEFUL = """
<ir_version: 8, opset_import: ["" : 18]>
stateful (float x, float w, float seed, float count, float moving)
    => (float loss, float grad_w, float new_w, float new_seed, float new_count, float new_moving)
{
    one = Constant <value = float {1}> ()
    noisy = Mul (x, seed)
    loss = Mul (w, noisy)
    grad_w = Identity (noisy)
    rate = Div (one, new_count)
    change = Mul (noisy, rate)
    new_w = Sub (w, change)
    new_seed = Add (seed, one)
    new_count = Add (count, one)
    new_moving = Add (moving, x)
}
"""


def stateful() -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(_STATEFUL))
    roles: dict[str, state.Role] = {"w": "weight", "seed": "counter", "count": "counter", "moving": "slot"}
    pairs = tuple(
        state.StatePair(name, f"new_{name}", role, "grad_w" if name == "w" else None) for name, role in roles.items()
    )
    model.graph.sort()
    state.write(model, state.TrainingState(pairs, "loss"), {name: np.ones((), np.float32) for name in roles})
    return model


def test_accumulation_holds_back_only_what_belongs_to_the_update() -> None:
    trainer = ll.Trainer(stateful(), accumulate=2)
    seen = []
    for _ in range(4):
        trainer.step({"x": np.float32(2)})
        seen.append([float(trainer.state_dict()[name]) for name in ("w", "seed", "count", "moving")])
    # Update 1: mean of 2*1 and 2*2, divided by a count of 2; update 2: mean of 2*3 and 2*4, divided by 3.
    assert seen[0] == [1, 2, 1, 3]
    assert seen[1] == [1 - 3 / 2, 3, 2, 5]
    assert seen[2] == [1 - 3 / 2, 4, 2, 7]
    np.testing.assert_allclose(seen[3], [1 - 3 / 2 - 7 / 3, 5, 3, 9], rtol=1e-6)


def test_clipping_reaches_updates_behind_an_identity() -> None:
    """The gradient output is a copy; the update reads what it copies, and the output stays unclipped."""
    trainer = ll.Trainer(stateful(), clip_value=0.5)
    assert trainer.step({"x": np.float32(2)}, ["grad_w"]).outputs["grad_w"] == 2
    assert trainer.state_dict()["w"] == 1 - 0.5 / 2


def test_float16_weights_keep_float32_slots() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    half (float16[2] x, float16[2] w) => (float16 loss, float16[2] grad_w)
    { axis = Constant <value_ints = [0]> ()  product = Mul (x, w)
      loss = ReduceSum <keepdims = 0> (product, axis)  grad_w = Identity (x) }
    """
    trainer = ll.Trainer(
        ir.from_proto(onnx.parser.parse_model(text)),
        initial_values={"w": np.ones(2, np.float16)},
        optimizer=SGD(0.25, momentum=0.5),
        clip_norm=1.0,
        accumulate=2,
    )
    for _ in range(2):
        trainer.step({"x": np.array([3, 4], np.float16)})
    held = trainer.state_dict()
    assert [held[name].dtype.name for name in ("w", "w/velocity", "w/accumulated")] == ["float16", "float32", "float32"]
    np.testing.assert_allclose(held["w"], [1 - 0.25 * 0.6, 1 - 0.25 * 0.8], atol=1e-3)


def test_options_without_gradients_are_refused() -> None:
    model = ir.from_proto(onnx.parser.parse_model(_STATEFUL.replace("grad_w", "slope")))
    model.graph.sort()
    values = {name: np.ones((), np.float32) for name in ("w", "seed", "count", "moving")}
    for options in ({"clip_norm": 1.0}, {"clip_value": 1.0}, {"accumulate": 2}):
        with pytest.raises(InvalidModelError, match="require the weights' gradients among the outputs"):
            ll.Trainer(model, initial_values=values, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidModelError, match="optimizer requires a model without updates, got one that updates 'w'"):
        ll.Trainer(stateful(), optimizer="sgd")


def test_update_that_reads_something_else_is_refused() -> None:
    text = _STATEFUL.replace("change = Mul (noisy, rate)", "again = Mul (x, seed)  change = Mul (again, rate)")
    model = ir.from_proto(onnx.parser.parse_model(text))
    model.graph.sort()
    state.write(model, state.read(stateful()))
    with pytest.raises(InvalidModelError, match="'w': the update must read the gradient 'grad_w'"):
        TrainingOptionsPass(clip_norm=1.0)(model)


_TRANSPOSED = """<ir_version: 8, opset_import: ["" : 18]>
step (float[N, 3] x, float[3, 2] w, float[2, 3] v)
    => (float loss, float[3, 2] grad_w, float[3, 2] new_w, float[2, 3] new_v)
{
    y = MatMul (x, w)
    square = Mul (y, y)
    loss = ReduceSum <keepdims = 0> (square)
    y_t = Transpose <perm = [1, 0]> (y)
    half = MatMul (y_t, x)
    g_t = Add (half, half)
    grad_w = Transpose <perm = [1, 0]> (g_t)
    new_v = Add (v, VELOCITY)
    v_t = Transpose <perm = [1, 0]> (new_v)
    both = Add (grad_w, v_t)
    new_w = Sub (w, both)
}"""


@pytest.mark.parametrize("options", [{"clip_norm": 1.0}, {"clip_value": 1.0}, {"accumulate": 2}])
def test_update_that_reads_the_gradient_before_it_is_changed_is_refused(options: dict[str, Any]) -> None:
    model = ir.from_proto(onnx.parser.parse_model(_TRANSPOSED.replace("VELOCITY", "g_t")))
    state.write(model, _transposed_state())
    with pytest.raises(InvalidModelError, match="new values must read no gradients but those among the outputs"):
        TrainingOptionsPass(**options)(model)


def test_update_that_reads_the_gradient_in_another_layout_is_changed() -> None:
    text = _TRANSPOSED.replace("new_v = Add", "again = Transpose <perm = [1, 0]> (grad_w)  new_v = Add")
    model = ir.from_proto(onnx.parser.parse_model(text.replace("VELOCITY", "again")))
    state.write(model, _transposed_state())
    values = {"w": np.ones((3, 2), np.float32), "v": np.zeros((2, 3), np.float32)}
    trainer = ll.Trainer(model, initial_values=values, clip_value=1.0)
    trainer.step({"x": np.ones((4, 3), np.float32)})
    np.testing.assert_array_equal(trainer.state_dict()["v"], np.ones((2, 3)))
    np.testing.assert_array_equal(trainer.state_dict()["w"], -np.ones((3, 2)))


def _transposed_state() -> TrainingState:
    pairs = (StatePair("w", "new_w", "weight", "grad_w"), StatePair("v", "new_v", "slot"))
    return TrainingState(pairs, "loss")


@pytest.mark.parametrize(
    "options", [{"clip_norm": 0.0}, {"clip_norm": -1.0}, {"clip_value": np.nan}, {"accumulate": 0}]
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=f"{next(iter(options))} requires"):
        ll.Trainer(quadratic(), optimizer="sgd", **options)


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="optimizer requires one of"):
        ll.Trainer(quadratic(), optimizer="sdg")


@pytest.mark.parametrize("as_initializer", [False, True])
def test_constant_learning_rate_becomes_an_input(as_initializer: bool) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    step (float[2] x, float[2] w) => (float[2] grad_w, float[2] new_w) {NODES}
    """
    nodes = "{ RATE grad_w = Identity (x)  change = Mul (x, rate)  new_w = Sub (w, change) }"
    constant = "" if as_initializer else "rate = Constant <value = float {0.5}> ()"
    proto = onnx.parser.parse_model(text.replace("{NODES}", nodes.replace("RATE", constant)))
    if as_initializer:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.5), "rate"))
    model = ir.from_proto(proto)
    values = {"w": np.zeros(2, np.float32)}
    trainer = ll.Trainer(model, initial_values=values, learning_rate_input="rate")
    assert trainer.learning_rate == 0.5
    x = np.ones(2, np.float32)
    trainer.step({"x": x})
    trainer.learning_rate = 0.25
    trainer.step({"x": x})
    np.testing.assert_array_equal(trainer.state_dict()["w"], [-0.75, -0.75])
    with pytest.raises(InvalidModelError, match="'change' requires a scalar constant of that name, got another value"):
        LearningRateInputPass("change")(model)
    with pytest.raises(InvalidModelError, match="'rat' requires a scalar constant of that name, got none"):
        LearningRateInputPass("rat")(model)
    with pytest.raises(InvalidInputError, match="requires a model with a learning-rate input"):
        ll.Trainer(model, initial_values=values, learning_rate=0.5)
