"""Arrays that come in every byte order, values that are none, and results that later steps do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.records import model_files, state
from tests.support.op_inputs import valid_inputs
from tests.support.training_models import char_lstm, quadratic

Array = np.ndarray[Any, Any]

STEP = """
<ir_version: 8, opset_import: ["" : 18]>
step (float[2] w, float[2] x) => (float loss, float[2] new_w) {
    products = Mul (w, x)
    loss = ReduceSum <keepdims = 0> (products)
    new_w = Sub (w, x)
}
"""
W, X = np.array([1.0, -2.0], np.float32), np.array([0.5, 0.25], np.float32)


def step_model() -> onnx.ModelProto:
    return onnx.parser.parse_model(STEP)


def swapped(array: Array) -> Array:
    """The same numbers, their bytes the other way round."""
    return array.astype(array.dtype.newbyteorder())


def test_initial_values_in_the_other_byte_order() -> None:
    trainer = ll.Trainer(step_model(), initial_values={"w": swapped(W)})
    np.testing.assert_array_equal(trainer.state_dict()["w"], W)
    assert trainer.step({"x": X}).loss == W @ X


def test_recorded_initial_values_in_the_other_byte_order() -> None:
    model = model_files.load(step_model())
    state.set_initial_value(model, "w", swapped(W))
    assert ll.Trainer(model).step({"x": X}).loss == W @ X


def test_loaded_state_in_the_other_byte_order() -> None:
    trainer = ll.Trainer(step_model(), initial_values={"w": W})
    trainer.load_state_dict({"w": swapped(X)})
    np.testing.assert_array_equal(trainer.state_dict()["w"], X)


def test_feeds_in_the_other_byte_order_after_native_ones() -> None:
    trainer = ll.Trainer(step_model(), initial_values={"w": W})
    for feed in (X, swapped(X), swapped(X), X):
        before = trainer.state_dict()["w"]
        assert trainer.step({"x": feed}).loss == before @ X
        np.testing.assert_array_equal(trainer.state_dict()["w"], before - X)


def test_session_takes_the_other_byte_order() -> None:
    session = ll.Session(step_model())
    for feeds in ({"w": swapped(W), "x": X}, {"w": W, "x": swapped(X)}):
        assert session.run(feeds)["loss"] == W @ X


def test_eager_ops_take_the_other_byte_order() -> None:
    kwargs = valid_inputs("BlockLSTM")
    other = {name: swapped(value) if isinstance(value, np.ndarray) else value for name, value in kwargs.items()}
    np.testing.assert_array_equal(ll.raw_ops.BlockLSTM(**other).h, ll.raw_ops.BlockLSTM(**kwargs).h)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
def test_what_was_returned_stays_as_it_is(steps: int) -> None:
    model, data = char_lstm()
    trainer = ll.Trainer(model)
    kept: list[tuple[dict[str, Array], dict[str, Array]]] = []
    for _ in range(2):
        returned = (trainer.step(data, trainer.outputs).outputs, trainer.state_dict())
        kept += [(arrays, {name: array.copy() for name, array in arrays.items()}) for arrays in returned]
    for _ in range(steps):
        trainer.step(data, trainer.outputs)
    for arrays, copies in kept:
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, copies[name])


def test_writing_into_what_was_returned_changes_no_state() -> None:
    trainer = ll.Trainer(quadratic(), optimizer="sgd")
    before = {name: array.copy() for name, array in trainer.state_dict().items()}
    for array in trainer.state_dict().values():
        array[...] = 7
    for name, array in trainer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


class NoArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise RuntimeError("lies on another device")


@pytest.mark.parametrize("value", [[[1.0], [1.0, 2.0]], NoArray(), {"a": 1}, "text", None])
@pytest.mark.parametrize(
    "use",
    [
        lambda v: ll.Session(step_model()).run({"w": W, "x": v}),
        lambda v: ll.Trainer(step_model(), initial_values={"w": v}),
        lambda v: ll.Trainer(step_model(), initial_values={"w": W}).step({"x": v}),
        lambda v: ll.Trainer(step_model(), initial_values={"w": W}).load_state_dict({"w": v}),
        lambda v: ll.raw_ops.BlockLSTM(**valid_inputs("BlockLSTM") | {"w": v}),
    ],
    ids=["run", "initial_values", "step", "load_state_dict", "raw_ops"],
)
def test_values_that_are_no_arrays_are_refused(value: Any, use: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidInputError, match=r"requires|got"):
        use(value)


def test_numbers_that_a_dtype_cannot_hold_are_refused() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> small (int8[2] x) => (int8[2] y) { y = Identity (x) }'
    )
    assert ll.Session(model).run({"x": [1, -128]})["y"].tolist() == [1, -128]
    with pytest.raises(InvalidInputError, match=r"'x' requires numbers that int8 holds, got \[1, 300\]"):
        ll.Session(model).run({"x": [1, 300]})


def test_operands_that_onnxruntime_fails_on_are_refused() -> None:
    data, ids = np.ones((3, 2), np.float32), np.array([0, 2**31 - 1, 1], np.int32)
    with pytest.raises(InvalidInputError, match="UnsortedSegmentMax: onnxruntime failed on these operands"):
        ll.raw_ops.UnsortedSegmentMax(data=data, segment_ids=ids, num_segments=np.int32(4))


def test_the_shapes_of_no_tensors_are_none() -> None:
    assert ll.raw_ops.ShapeN(input=[]) == []
