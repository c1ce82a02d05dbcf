"""`fit`, `evaluate` and `predict`, for every class that can do a step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError, warn
from lstm_lower.runtime.training import fitting, keras_callbacks
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import Data, open_data
from lstm_lower.runtime.training.data.source import Order
from lstm_lower.runtime.training.data.table import Padding
from lstm_lower.runtime.training.fitting import Fit, Mode
from lstm_lower.runtime.training.learner import Array, Learner, Reduction
from lstm_lower.runtime.training.progress_bar import progress_on
from lstm_lower.runtime.training.run import History


class Trainable(Learner):
    """A learner with the loops around its steps."""

    def fit(
        self,
        data: Data,
        *,
        validation: Data | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        callbacks: Sequence[Any] = (),
        metrics: Sequence[str] | None = None,
        monitor: str | None = None,
        mode: Mode | None = None,
        restore_best: bool = False,
        folder: str | os.PathLike[str] | None = None,
        save_every: int | None = None,
        pad: Mapping[str, float] | None = None,
        lengths: Mapping[str, str] | None = None,
        buckets: Sequence[int] = (),
        window: int = 1,
        sample_axis: Mapping[str, int] | None = None,
        progress: bool | None = None,
        workers: int | None = None,
        address: str | None = None,
        reduction: Reduction | None = None,
    ) -> History:
        """Trains until a number of epochs, counted from the beginning of the run, is done.

        Args:
            data: arrays, a path, or an iterable of batches; see `data.opening.open_data`.
            validation: the same, to evaluate on after each epoch.
            epochs: passes over the data; those that a run in the folder has done count.
            batch_size: samples per step, where the data are not batches already.
            shuffle: whether to change the order of samples in every epoch.
            seed: of that order.
            callbacks: of `training.callbacks`, or one's own, or objects of Keras: EarlyStopping, ReduceLROnPlateau,
                LearningRateScheduler, ModelCheckpoint, TerminateOnNaN.
            metrics: outputs of the step to log; `None` for its scalars that are neither state nor gradients.
            monitor: the value that is lowest in the best epoch; `None` for `val_loss`, or `loss` without validation.
            mode: `min` or `max`: which is better; required unless the monitor is a loss.
            restore_best: whether the best epoch's state is put back at the end.
            folder: where checkpoints and logs go, and from where a run goes on; `None` for nowhere.
            save_every: steps between checkpoints, beside those at the end of each epoch.
            pad: input -> the value with which sequences of different lengths are padded.
            lengths: input that takes the lengths -> the input whose lengths they are.
            buckets: lengths to which sequences are padded; a batch's samples come from one of them.
            window: shards whose samples are mixed.
            sample_axis: input -> axis along which its samples lie, where the model's shapes do not say it.
            progress: whether to show a bar; `None` for one where standard error is a terminal.
            workers: how many processes share each batch, see `parallel.trainer.DistributedTrainer`; `None` for this one
                alone.
            address: of the cluster of Ray that they run on; `None` for this machine.
            reduction: whether the loss is the `mean` or the `sum` over a batch; `None` to find out.

        Returns:
            What came of the epochs.

        Raises:
            InvalidInputError: an option or the data do not fit, or the run in the folder has others.
            NotFiniteError: the loss or a weight is no longer finite; the last checkpoint is as it was.
            WorkersLostError: all workers died at once; the same call goes on from the last checkpoint in the folder.
            OSError: the folder cannot be written.
            KeyboardInterrupt: Ctrl-C; the step has ended by then, and the run is saved.
        """
        counts = {
            "epochs": epochs,
            "batch_size": batch_size,
            "window": window,
            "save_every": 1 if save_every is None else save_every,
        }
        for what, count in counts.items():
            arguments.whole(what, count)
        arguments.whole("seed", seed, 0)
        padding = Padding(dict(pad or {}), dict(lengths or {}), tuple(buckets))
        source = open_data(data, Layout(self.data_inputs, sample_axis, self.casts), padding, window=window)
        held_out = None if validation is None else self._held_out(validation, padding, sample_axis)
        console = Console(file=sys.stderr, highlight=False)
        shown = [progress_on(console)] if progress or (progress is None and console.is_terminal) else []
        with (
            spread(self, workers, address=address, reduction=reduction, sample_axis=sample_axis) as learner,
            Fit(
                learner,
                source,
                Order(batch_size, shuffle, seed),
                validation=held_out,
                metrics=metrics,
                callbacks=[*keras_callbacks.translated(callbacks), *shown],
                monitor=monitor,
                mode=mode,
                restore_best=restore_best,
                folder=folder,
                options={"window": window, "pad": padding.values, "buckets": list(padding.buckets)},
            ) as run,
            fitting.collected([signal.SIGINT]) as caught,
        ):
            if run.run is not None and run.run.note is not None:
                warn(run.run.note)
            if not run.go(epochs, save_every, lambda: bool(caught)):
                raise KeyboardInterrupt
            return run.history

    def evaluate(
        self,
        data: Data,
        *,
        batch_size: int = 32,
        pad: Mapping[str, float] | None = None,
        lengths: Mapping[str, str] | None = None,
        sample_axis: Mapping[str, int] | None = None,
    ) -> dict[str, float]:
        """Loss and metrics on data: means over batches, weighted by their numbers of samples.

        Dropout is off, and normalizations use their running statistics. No state changes but that which the framework's
        own evaluation moves, as of Keras' stateful layers.

        Args:
            data: as for `fit`.
            batch_size: as for `fit`.
            pad: as for `fit`.
            lengths: as for `fit`.
            sample_axis: as for `fit`.

        Returns:
            `loss`, and metrics by name.

        Raises:
            InvalidModelError: nothing is known of how this model is evaluated; the message says what helps.
            InvalidInputError: the data do not fit.
        """
        padding = Padding(dict(pad or {}), dict(lengths or {}))
        scores = self.evaluator.evaluate(self._held_out(data, padding, sample_axis), batch_size)
        return scores or {}

    def predict(
        self,
        data: Data,
        *,
        batch_size: int = 32,
        pad: Mapping[str, float] | None = None,
        lengths: Mapping[str, str] | None = None,
        sample_axis: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """The model's own outputs for data, by name, in the data's order.

        Args:
            data: as for `fit`; targets need not be there.
            batch_size: as for `fit`.
            pad: as for `fit`.
            lengths: as for `fit`.
            sample_axis: as for `fit`.

        Raises:
            InvalidModelError: as for `evaluate`.
            InvalidInputError: the data do not fit.
        """
        padding = Padding(dict(pad or {}), dict(lengths or {}))
        names = [value.name for value in self.data_inputs]
        return self.evaluator.predict(data, batch_size, padding, sample_axis=sample_axis, names=names)

    def _held_out(self, data: Data, padding: Padding, sample_axis: Mapping[str, int] | None) -> Any:
        names = [value.name for value in self.data_inputs]
        return self.evaluator.scoring_source(data, padding, sample_axis=sample_axis, names=names)


# Steps on workers where workers are asked for, and in this process where not.


def spread(
    learner: Learner,
    workers: int | None,
    *,
    address: str | None = None,
    reduction: Reduction | None = None,
    sample_axis: Mapping[str, int] | None = None,
) -> contextlib.AbstractContextManager[Learner]:
    """A learner whose steps run on workers, which end with the block.

    Args:
        learner: the trainer.
        workers: their number; `None` for the trainer as it is.
        address: see `DistributedTrainer`.
        reduction: see `DistributedTrainer`.
        sample_axis: see `DistributedTrainer`.

    Raises:
        InvalidInputError: there are no workers that the other options are for, or the learner has workers already.
        LstmLowerError: whatever `DistributedTrainer` raises.
    """
    if workers is None:
        given = [name for name, value in {"address": address, "reduction": reduction}.items() if value is not None]
        if given:
            raise InvalidInputError(f"{given[0]} requires a number of workers, got none")
        return contextlib.nullcontext(learner)
    # The trainer knows this module, through its `fit`.
    from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer

    return DistributedTrainer(learner, workers, address=address, reduction=reduction, sample_axis=sample_axis)
