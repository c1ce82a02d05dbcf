"""Early stopping, learning rates, event files and the bar: what callbacks do beside the steps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from rich.console import Console

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training import checkpoint, rates
from lstm_lower.runtime.training.callbacks import Callback, EarlyStopping, LearningRate, ReduceOnPlateau
from lstm_lower.runtime.training.progress_bar import progress_on
from lstm_lower.runtime.training.tensorboard import TensorBoard
from tests.runtime.test_fit import TEST, Array, X, trainer


def test_a_run_ends_when_it_gets_no_better(tmp_path: Path) -> None:
    """The validation's best epoch is put back; asked for more, the run says that it has ended."""
    kept: list[dict[str, Array]] = []

    class Keep(Callback):
        def after_epoch(self, fit: Any, logs: dict[str, float]) -> None:
            kept.append(fit.trainer.state_dict())

    for folder in (None, tmp_path):
        mine = trainer(learning_rate=0.7)
        kept.clear()
        options: dict[str, Any] = {"validation": {"x": -X}, "epochs": 50, "batch_size": 5, "folder": folder}
        history = mine.fit({"x": X}, callbacks=[EarlyStopping(3), Keep()], **options)
        assert history.stopped == "val_loss did not improve for 3 epochs"
        assert len(history.epochs) == history.best.epoch + 3 < 50
        for name, array in mine.state_dict().items():
            np.testing.assert_array_equal(array, kept[history.best.epoch - 1][name])
    arrays, notes = checkpoint.read(tmp_path / "best.safetensors")
    np.testing.assert_array_equal(arrays["w"], mine.state_dict()["w"])
    assert notes["notes"]["val_loss"] == history.best.value
    again = trainer(learning_rate=0.7)
    assert again.fit({"x": X}, callbacks=[EarlyStopping(3)], **options) == history


@pytest.mark.slow
def test_learning_rates_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.zeros(1))
    pairs = [
        (rates.cosine(20, end=0.01), lambda it: torch.optim.lr_scheduler.CosineAnnealingLR(it, 20, 0.01)),
        (rates.linear(20), lambda it: torch.optim.lr_scheduler.LinearLR(it, 1.0, 0.0, 20)),
        (rates.steps(4, factor=0.5), lambda it: torch.optim.lr_scheduler.StepLR(it, 4, 0.5)),
    ]
    for rate, scheduler in pairs:
        optimizer = torch.optim.SGD([weight], 0.3)
        scheduled = scheduler(optimizer)
        for step in range(20):
            assert rate(step, 0.3) == pytest.approx(scheduled.get_last_lr()[0], rel=1e-9)
            optimizer.step()
            scheduled.step()
    warm = rates.constant(warmup=4)
    assert [warm(step, 1.0) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_plateau_lowers_the_rate() -> None:
    mine = trainer(optimizer="sgd", learning_rate=1e-9)
    history = mine.fit({"x": X}, epochs=5, batch_size=5, callbacks=[ReduceOnPlateau(factor=0.5, patience=2)])
    np.testing.assert_allclose(history["learning_rate"], [1e-9, 1e-9, 1e-9, 0.5e-9, 0.5e-9], rtol=1e-6)


@pytest.mark.slow
def test_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    mine = trainer()
    history = mine.fit({"x": X}, epochs=2, batch_size=5, callbacks=[TensorBoard(tmp_path)])
    (path,) = tmp_path.iterdir()
    found: dict[str, list[tuple[int, float]]] = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
            found.setdefault(value.tag, []).append((event.step, number))
    assert [step for step, _ in found["step/loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in found["epoch/loss"]] == [2, 4]
    np.testing.assert_allclose([number for _, number in found["epoch/loss"]], history["loss"], rtol=1e-6)


def test_a_schedule_needs_a_learning_rate() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    step (float[N, 3] x, float[3] w) => (float loss, float[3] new_w) {
        loss = ReduceSum <keepdims = 0> (x)
        new_w = Neg (w)
    }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    fixed = ll.Trainer(model, initial_values={"w": np.zeros(3, np.float32)})
    with pytest.raises(InvalidInputError, match="a schedule requires a model with a learning-rate input"):
        fixed.fit({"x": X}, callbacks=[LearningRate(rates.constant())])


def test_a_bar_on_a_terminal() -> None:
    text = io.StringIO()
    shown = progress_on(Console(file=text, force_terminal=True, width=120, highlight=False))
    trainer().fit({"x": X}, validation={"x": TEST}, epochs=2, batch_size=5, callbacks=[shown], progress=False)
    for wanted in ("epoch 2 of 2", "4/4", "steps/s", "epoch 2: mean loss", "val_loss"):
        assert wanted in text.getvalue()
