"""A step cut at its gradients: the halves, one after the other, against the step as it was, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError
from lstm_lower.passes.training.options import TrainingOptionsPass
from lstm_lower.passes.training.split import Halves, split
from lstm_lower.records import state
from lstm_lower.records.state import StatePair, TrainingState
from tests.support.halves import check_halves
from tests.support.training_models import char_lstm, quadratic

LAYERS = """
<ir_version: 8, opset_import: ["" : 18]>
layers (float[B,3] x) => (float[B,2] y)
    <float[3,4] v = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0},
     float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1}, float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8},
     float ratio = {0.5}, bool training = {1}>
{
    a = MatMul(x, v)
    b, new_mean, new_var = BatchNormalization <training_mode = 1> (a, scale, bias, mean, var)
    c, kept = Dropout(b, ratio, training)
    y = MatMul(c, w)
}
"""

LSTM = """
<ir_version: 8, opset_import: ["" : 18]>
lstm (float[5,B,3] x, float[1,8,3] w, float[1,8,2] r) => (float[1,B,2] y)
{ h, y, c = LSTM <hidden_size = 2> (x, w, r) }
"""

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


def random_feeds(**shapes: tuple[int, ...]) -> Iterator[Feeds]:
    random = np.random.default_rng(1)
    while True:
        yield {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def edited(model: ir.Model, **options: Any) -> ir.Model:
    TrainingOptionsPass(**options)(model)
    return model


def layers(**options: Any) -> tuple[ir.Model, Iterator[Feeds]]:
    step = ll.from_onnx(ir.from_proto(onnx.parser.parse_model(LAYERS)), "mse", "adam")
    return edited(step, **options), random_feeds(x=(6, 3), target=(6, 2))


def lstm(**options: Any) -> tuple[ir.Model, Iterator[Feeds]]:
    model = ir.from_proto(onnx.parser.parse_model(LSTM))
    for name, shape in (("w", (1, 8, 3)), ("r", (1, 8, 2))):
        state.set_initial_value(model, name, np.random.default_rng(2).standard_normal(shape).astype(np.float32))
    return edited(ll.from_onnx(model, "mse"), **options), random_feeds(x=(5, 4, 3), target=(1, 4, 2))


def plain(**options: Any) -> tuple[ir.Model, Iterator[Feeds]]:
    return edited(quadratic(), **options), random_feeds(x=(4, 3))


def character_model(**options: Any) -> tuple[ir.Model, Iterator[Feeds]]:
    model, data = char_lstm()
    return edited(model, **options), iter(lambda: data, None)


CASES: list[tuple[Callable[..., tuple[ir.Model, Iterator[Feeds]]], dict[str, Any]]] = [
    (plain, {"optimizer": "adam"}),
    (plain, {"optimizer": "momentum", "clip_norm": 0.5, "accumulate": 2}),
    (plain, {"optimizer": "sgd", "clip_value": 0.3}),
    (layers, {}),
    (layers, {"clip_norm": 0.1, "accumulate": 3}),
    (lstm, {"optimizer": "adamw"}),
    (character_model, {"clip_norm": 0.01}),
]


@pytest.mark.parametrize(
    ("make", "options"), CASES, ids=[f"{make.__name__}-{'-'.join(options)}" for make, options in CASES]
)
@pytest.mark.parametrize("lowered", [False, True], ids=["source", "lowered"])
def test_halves_equal_the_step(make: Any, options: dict[str, Any], lowered: bool) -> None:
    model, data = make(**options)
    if lowered:
        model = ll.lower(model)
    check_halves(model, [next(data) for _ in range(5)])


def first_outputs(halves: Halves) -> list[str | None]:
    return [value.name for value in halves.gradients.graph.outputs]


def second_outputs(halves: Halves) -> list[str | None]:
    return [value.name for value in halves.updates.graph.outputs]


def test_what_lies_on_which_side() -> None:
    model, _ = layers(clip_norm=1.0, accumulate=2)
    halves = split(model)
    assert halves.statistics == {"mean", "var"}
    assert halves.streams == {"dropout_stream"}
    inputs = {value.name for value in halves.updates.graph.inputs}
    assert {"v", "w", "grad/v", "grad/w", "iteration", "accumulated_steps", "learning_rate"} <= inputs
    assert inputs.isdisjoint({"x", "target", "mean", "var", "dropout_stream"})
    inputs = {value.name for value in halves.gradients.graph.inputs}
    assert inputs == {"x", "target", "v", "w", "scale", "bias", "mean", "var", "dropout_stream"}
    assert first_outputs(halves)[:2] == ["loss", "y"]
    # The step itself is left as it was.
    assert {"x", "learning_rate"} <= {value.name for value in model.graph.inputs}
    recorded = state.read(halves.gradients)
    assert [pair.output is not None for pair in recorded.pairs if pair.input in ("mean", "w")] == [False, True]
    assert state.read(halves.updates).learning_rate == "learning_rate"


HIDDEN = """
<ir_version: 8, opset_import: ["" : 18]>
hidden (float[N, 3] x, float[3] w) => (float loss, float[3] grad_w, float[3] new_w)
{
    axis = Constant <value_ints = [0]> ()
    residue = Sub (w, x)
    squares = Mul (residue, residue)
    loss = ReduceSum <keepdims = 0> (squares)
    grad_w = ReduceSum <keepdims = 0> (residue, axis)
    UPDATE
}
"""


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ("other = ReduceMean <keepdims = 0> (residue, axis) new_w = Sub (w, other)", "'w'"),
        ("m = ReduceMax <keepdims = 0> (x, axis) a = Add (m, grad_w) new_w = Sub (w, a)", "'new_w'"),
        ("n = RandomNormalLike (w) a = Add (n, grad_w) new_w = Sub (w, a)", "RandomNormalLike"),
        ("new_w = Identity (x)", "'w'"),
    ],
)
def test_updates_by_other_values_are_refused(update: str, named: str) -> None:
    model = onnx.parser.parse_model(HIDDEN.replace("UPDATE", update).replace("float[N, 3]", "float[3, 3]"))
    if update.startswith("new_w"):
        model = onnx.parser.parse_model(HIDDEN.replace("UPDATE", "new_w = ReduceMax <keepdims = 0> (x, axis)"))
    with pytest.raises(InvalidModelError, match=named):
        split(model)


def test_a_step_needs_updates_and_gradients() -> None:
    with pytest.raises(InvalidModelError, match="ends at its gradients"):
        split(quadratic())
    model, _ = layers()
    pairs = [StatePair(pair.input, pair.output, pair.role) for pair in state.read(model).pairs]
    state.write(model, TrainingState(tuple(pairs), "loss"))
    with pytest.raises(InvalidModelError, match="gradients among the outputs"):
        split(model)
