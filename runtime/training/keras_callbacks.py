"""Callback objects of Keras 3 and tf-keras, read by their attributes: each becomes a callback of a run.

Keras is not imported: its callbacks are known by their methods and the names of their classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError, warn
from lstm_lower.runtime.training.callbacks import Checkpoints, EarlyStopping, EpochRate, ReduceOnPlateau
from lstm_lower.runtime.training.fitting import Callback, Fit, Mode
from lstm_lower.runtime.training.learner import Learner

_METHODS = ("set_model", "set_params", "on_train_begin", "on_epoch_end")

# How Keras' metrics are called, and which way they are better (`_direction` of Keras 3's).
_HIGHER = (
    "accuracy", "acc", "auc", "precision", "recall", "f1_score", "fbeta_score", "r2_score", "io_u", "iou",
    "cosine_similarity", "concordance_correlation", "pearson_correlation", "precision_at_recall", "recall_at_precision",
    "sensitivity_at_specificity", "specificity_at_sensitivity",
)  # fmt: skip
_LOWER = (
    "loss", "error", "crossentropy", "hinge", "kl_divergence", "logcosh", "poisson", "mae", "mse", "mape", "msle",
)  # fmt: skip

_WAYS = {
    "BackupAndRestore": "fit(folder='run') goes on from where a run was interrupted",
    "CSVLogger": "fit(folder='run') writes a line per epoch to run/epochs.jsonl",
    "History": "fit returns the history",
    "ProgbarLogger": "fit(progress=True) shows a bar",
    "TensorBoard": "lstm_lower.runtime.training.tensorboard.TensorBoard writes event files",
}


def translated(callbacks: Iterable[Any]) -> list[Any]:
    """Callbacks of a run in the place of Keras'; all else is left as it is.

    Raises:
        InvalidInputError: one of Keras' has no counterpart, or one of its settings has none; it is named.
    """
    return [_translated(each) if _is_keras(each) else each for each in callbacks]


def _is_keras(callback: Any) -> bool:
    return not isinstance(callback, Callback) and all(hasattr(callback, name) for name in _METHODS)


def _translated(callback: Any) -> Callback:
    kinds = [kind.__name__ for kind in type(callback).__mro__]
    name = kinds[0]
    # What a subclass of the same name does otherwise is not in its attributes.
    if name in _READERS and kinds.count(name) == 1:
        return _READERS[name](callback)
    way = _WAYS.get(name, "a subclass of lstm_lower.runtime.training.callbacks.Callback acts between steps and epochs")
    raise InvalidInputError(
        f"callbacks requires those of lstm_lower.runtime.training, or Keras' {', '.join(_READERS)}, got {name}; {way}"
    )


def _mode(callback: Any) -> Mode:
    """Which way what a callback monitors is better; as Keras does, names of metrics tell where nothing is said."""
    # tf-keras keeps what it compares with.
    compared = getattr(getattr(callback, "monitor_op", None), "__name__", None)
    said = {"min": "min", "less": "min", "max": "max", "greater": "max"}
    told = said.get(getattr(callback, "mode", None) or "") or said.get(compared or "") or _mode_of(callback.monitor)
    if told is None:
        raise InvalidInputError(
            f"{type(callback).__name__} requires mode='min' or 'max' for the monitor '{callback.monitor}', got neither"
        )
    return "max" if told == "max" else "min"


def _mode_of(monitor: str) -> str | None:
    # Keras numbers metrics of one kind.
    name = re.sub(r"_\d+$", "", monitor.removeprefix("val_"))
    for names, mode in ((_HIGHER, "max"), (_LOWER, "min")):
        if any(name == each or name.endswith(f"_{each}") for each in names):
            return mode
    return None


def _patience(callback: Any) -> int:
    # Keras looks only after an epoch that was no better, so that none and one are the same.
    return max(1, int(callback.patience))


def _early_stopping(callback: Any) -> Callback:
    return EarlyStopping(
        _patience(callback),
        monitor=callback.monitor,
        mode=_mode(callback),
        min_delta=abs(callback.min_delta),
        restore_best=bool(callback.restore_best_weights),
        baseline=callback.baseline,
        after=int(getattr(callback, "start_from_epoch", 0)),
    )


def _plateau(callback: Any) -> Callback:
    return ReduceOnPlateau(
        factor=callback.factor,
        patience=_patience(callback),
        monitor=callback.monitor,
        mode=_mode(callback),
        min_delta=abs(callback.min_delta),
        least=callback.min_lr,
        cooldown=int(callback.cooldown),
    )


def _scheduler(callback: Any) -> Callback:
    def rate(epoch: int, before: float) -> float:
        try:
            return float(callback.schedule(epoch, before))
        except TypeError:
            # As of old, without the rate before.
            return float(callback.schedule(epoch))

    return EpochRate(rate)


def _checkpoint(callback: Any) -> Callback:
    model, path = callback.model, Path(callback.filepath)
    if model is None:
        path = path.with_name(path.name.removesuffix(path.suffix).removesuffix(".weights") + ".safetensors")
        warn(
            f"ModelCheckpoint('{callback.filepath}') writes '{path}', which Trainer.resume reads and Trainer.to_keras "
            "takes into a model: a callback that knows the model (its set_model(model)) writes Keras' own file"
        )
    return Checkpoints(
        path,
        every=None if callback.save_freq == "epoch" else int(callback.save_freq),
        best_only=bool(callback.save_best_only),
        monitor=callback.monitor if callback.save_best_only else None,
        mode=_mode(callback) if callback.save_best_only else None,
        threshold=_threshold(callback),
        write=None if model is None else _writer(model, weights_only=bool(callback.save_weights_only)),
    )


def _threshold(callback: Any) -> float | None:
    """What the first checkpoint must be better than: the best so far, infinite in tf-keras if there is none."""
    best = callback.best
    return None if best is None or abs(best) == float("inf") else float(best)


def _writer(model: Any, *, weights_only: bool) -> Callable[[Learner, Path], None]:
    """Writes a Keras model with the state of a trainer."""

    def write(trainer: Any, path: Path) -> None:
        if not hasattr(trainer, "to_keras"):
            raise InvalidInputError(
                "ModelCheckpoint with a model requires a run in one process, got workers; one without a model writes "
                "checkpoints of Trainer"
            )
        optimizer = None if weights_only else getattr(model, "optimizer", None)
        if optimizer is not None and hasattr(optimizer, "build"):
            optimizer.build(model.trainable_variables)
        trainer.to_keras(model, optimizer)
        (model.save_weights if weights_only else model.save)(str(path))

    return write


class _FiniteLoss(Callback):
    """TerminateOnNaN: what `on_nan='stop'` does, with an error that names the step."""

    def begin(self, fit: Fit) -> None:
        if fit.trainer.on_nan != "stop":
            raise InvalidInputError(f"TerminateOnNaN requires Trainer(on_nan='stop'), got {fit.trainer.on_nan!r}")


_READERS: dict[str, Callable[[Any], Callback]] = {
    "EarlyStopping": _early_stopping,
    "LearningRateScheduler": _scheduler,
    "ModelCheckpoint": _checkpoint,
    "ReduceLROnPlateau": _plateau,
    "TerminateOnNaN": lambda _: _FiniteLoss(),
}
