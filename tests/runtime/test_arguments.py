"""Arguments of wrong types: one error that names the argument, whichever function takes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

MODEL = Path(__file__).parents[2] / "examples/torch_forecaster/forecaster.onnx"
BATCH = {"past": np.ones((2, 3, 1), np.float32), "target": np.ones((2, 24), np.float32)}


@pytest.fixture(scope="module")
def step() -> Any:
    return ll.from_onnx(MODEL, "mse", "sgd", trainable=["head.*"])


@pytest.mark.parametrize(
    "use", [ll.lower, ll.optimize, lambda m: ll.gradient(m, of="y"), lambda m: ll.from_onnx(m, "mse"), ll.Trainer]
)
@pytest.mark.parametrize("model", [None, 5, b"abc", []])
def test_what_is_no_model(use: Callable[[Any], object], model: Any) -> None:
    with pytest.raises(ll.InvalidModelError, match="a model requires a path, a protobuf or an onnx_ir model, got"):
        use(model)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ll.lower(MODEL, opset=18.0), "opset requires 13 to "),  # type: ignore[call-overload]
        (lambda: ll.lower(MODEL, schedule=None), "schedule requires auto"),  # type: ignore[call-overload]
        (lambda: ll.lower(MODEL, sizes=["batch"]), "sizes requires a dictionary"),  # type: ignore[call-overload]
        (lambda: ll.lower(MODEL, sizes={"batch": -1}), "require positive integers"),
        (lambda: ll.gradient(MODEL, of="forecast", wrt=3), "wrt requires names in a list, got 3"),  # type: ignore[call-overload]
        (lambda: ll.gradient(MODEL, of="forecast", wrt=[3]), "wrt requires names in a list, got 3 in it"),  # type: ignore[call-overload]
        (lambda: ll.gradient(MODEL, of="forecast", wrt=[]), "wrt requires one name or more"),
        (lambda: ll.from_onnx(MODEL, None), "loss requires a name, a loss or a function, got None"),  # type: ignore[call-overload]
        (lambda: ll.from_onnx(MODEL, "mse", trainable=3), "trainable requires names in a list"),  # type: ignore[call-overload]
        (lambda: ll.from_onnx(MODEL, "mse", trainable=[]), "trainable requires one name or more"),
        (lambda: ll.from_tensorflow("x.pb", inputs="a:0"), "inputs requires names in a list, got 'a:0'"),
        (lambda: ll.Session(MODEL, session_options="x"), "session_options requires"),  # type: ignore[arg-type]
    ],
)
def test_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.step([1]), "feeds requires a dictionary of names to arrays, got list"),
        (lambda t: t.step(BATCH, "forecast"), "outputs requires names in a list, got 'forecast'"),
        (lambda t: t.session.run(None), "feeds requires a dictionary"),
        (lambda t: t.session.run(BATCH, "loss"), "outputs requires names in a list"),
        (lambda t: t.fit(BATCH, epochs=1.5), "epochs requires a whole number, at least 1, got 1.5"),
        (lambda t: t.fit(BATCH, batch_size="8"), "batch_size requires a whole number"),
        (lambda t: t.fit(BATCH, window=0), "window requires a whole number"),
        (lambda t: t.fit(BATCH, seed=-1), "seed requires a whole number, at least 0"),
        (lambda t: t.fit(BATCH, callbacks=[3]), "callbacks requires objects of callbacks.Callback, got 3"),
    ],
)
def test_arguments_of_a_trainer(step: Any, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        call(ll.Trainer(step))


def test_a_state_and_initial_values(step: Any, tmp_path: Path) -> None:
    with pytest.raises(ll.InvalidInputError, match="state requires a TrainingState, got 3"):
        ll.Trainer(step, state=3)  # type: ignore[arg-type]
    with pytest.raises(ll.InvalidInputError, match="initial_values requires a dictionary"):
        ll.Trainer(step, initial_values=[1])  # type: ignore[arg-type]
    with pytest.raises(ll.InvalidInputError, match="files requires names in a list, got 3"):
        ll.export_training(step, tmp_path, files=3)  # type: ignore[arg-type]


def test_an_empty_batch_of_recurrent_layers() -> None:
    """onnxruntime would end the process."""
    with pytest.raises(ll.InvalidInputError, match=r"'past' requires a batch of one or more \(batch\)"):
        ll.Session(MODEL).run({"past": np.zeros((0, 3, 1), np.float32)})
