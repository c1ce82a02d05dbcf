"""A trainer whose steps run on several workers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self, get_args

import numpy as np

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, WorkersLostError
from lstm_lower.passes.training.split import split
from lstm_lower.runtime.providers import uncaptured
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.diagnosis import updates
from lstm_lower.runtime.training.evaluator import Evaluator
from lstm_lower.runtime.training.learner import Learner, OnNan, Reduction, StepResult
from lstm_lower.runtime.training.parallel.pool import LostError, Sums, WorkerPool
from lstm_lower.runtime.training.parallel.program import program_of
from lstm_lower.runtime.training.parallel.replica import Shard, ShardResult
from lstm_lower.runtime.training.parallel.shards import Rowwise, ShardRows, loss_of, mean, reduction_of
from lstm_lower.runtime.training.trainable import Trainable
from lstm_lower.runtime.training.trainer import Trainer

Array = np.ndarray[Any, Any]


class DistributedTrainer(Trainable):
    """Steps of a `Trainer`, computed by workers that each take some rows of the batch.

    Every worker holds the whole state. It computes the gradients of its rows; these are summed, in one order; and every
    worker makes the same update. So there is one state, as many times as there are workers, and a worker that dies is
    replaced by a new one with the state of another. What a step returns, and the state after it, equal those of the
    trainer alone up to the order of sums, where nothing depends on the batch as a whole:

    - statistics of batch normalization are those of each worker's rows, their moving averages the mean over rows;
    - dropout draws from another stream in each worker.

    The state stays with the workers until `state_dict`, `save` or `sync` asks. Ends with `close`, or a `with` block,
    which hand it back to the trainer; if all workers were lost, the trainer has the state that was last asked for.
    """

    def __init__(
        self,
        trainer: Learner,
        workers: int,
        *,
        address: str | None = None,
        reduction: Reduction | None = None,
        threads: int = 1,
        sample_axis: Mapping[str, int] | None = None,
    ) -> None:
        """Starts workers with the trainer's state.

        Args:
            trainer: what is trained; nothing else may use it meanwhile.
            workers: their number.
            address: of a cluster of Ray (`host:port` or `auto`); `None` for processes on this machine.
            reduction: whether the loss is the `mean` or the `sum` over the rows of a batch. `None` finds out with the
                first batch, and refuses a loss that is neither, such as a mean over tokens where rows differ in length.
            threads: that each worker computes with.
            sample_axis: input -> axis along which its rows lie, where the model's shapes do not say it.

        Raises:
            InvalidInputError: an argument is out of range, or there is no such cluster.
            InvalidModelError: the step cannot be split, or leaves no number of rows open.
            MissingPackageError: Ray is not installed.
        """
        if not isinstance(trainer, Trainer):
            raise InvalidInputError(
                f"workers require a Trainer, got a {type(trainer).__name__}, which has them already"
            )
        counts: dict[str, Any] = {"workers": workers, "threads": threads}
        for name, value in counts.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInputError(f"{name} requires a number, at least 1, got {value!r}")
        if reduction is not None and reduction not in get_args(Reduction):
            raise InvalidInputError(f"reduction requires one of {get_args(Reduction)}, got {reduction!r}")
        self._trainer, self._reduction = trainer, reduction
        halves = split(trainer.model)
        self._pairs, self._loss = halves.state.pairs, halves.state.loss
        self._gradients = {pair.gradient for pair in self._pairs if pair.gradient is not None}
        self._late = {value.name for value in halves.updates.graph.outputs}
        outputs = {value.name: value for value in trainer.session.ort.get_outputs()}
        self._rowwise = Rowwise(Layout(trainer.data_inputs, sample_axis), outputs)
        program = program_of(halves, threads=threads, providers=uncaptured(trainer.providers))
        self._layout = program.layout
        self._pool = WorkerPool(program, trainer.state_dict(), workers, address)
        # Which of the pool's versions the trainer has, and after how many steps.
        self._synced, self._steps = self._pool.version, trainer.steps

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidInputError(
            "a trainer with workers requires this process, to which they answer, got a copy or another process; "
            "send its `sync()`, a trainer that has the state"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, WorkersLostError):
            self._trainer.steps = self._steps
            self._pool.close()
        else:
            self.close()

    @property
    def trainer(self) -> Trainer:
        """The trainer, whose state is the workers' after `sync` only."""
        return self._trainer

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self._pool)

    @property
    def steps(self) -> int:
        """Steps done so far."""
        return self._trainer.steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._trainer.steps = value

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._trainer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._trainer.learning_rate = value

    @property
    def on_nan(self) -> OnNan:
        """The treatment of a step whose loss is no finite number."""
        return self._trainer.on_nan

    @on_nan.setter
    def on_nan(self, value: OnNan) -> None:
        self._trainer.on_nan = value

    @property
    def has_loss(self) -> bool:
        """Whether the model has a loss, which it must have."""
        return True

    @property
    def data_inputs(self) -> list[Any]:
        """The data inputs, as those of the trainer."""
        return self._trainer.data_inputs

    @property
    def casts(self) -> Collection[str]:
        """The data inputs whose values are cast, as those of the trainer."""
        return self._trainer.casts

    @property
    def metrics(self) -> list[str]:
        """Outputs that are scalars and neither loss, state nor gradients."""
        return self._trainer.metrics

    @property
    def evaluator(self) -> Evaluator:
        """An evaluator with the state as it is now, in this process.

        Raises:
            UnsupportedOpError: evaluating moves state, which the workers would not know of.
        """
        evaluator = self.sync().evaluator
        if evaluator.moved:
            raise UnsupportedOpError(
                "evaluation beside workers requires a model whose state it leaves alone, got one that moves "
                f"'{next(iter(evaluator.moved.values()))}'; train without validation, or without workers"
            )
        return evaluator

    def processes(self) -> list[int]:
        """The workers' process ids."""
        return self._pool.processes()

    def step(self, feeds: Mapping[str, Any], outputs: Sequence[str] = ()) -> StepResult:
        """Runs one step, as `Trainer.step` does.

        Args:
            feeds: the whole batch; each worker is sent its rows.
            outputs: names of outputs to return. Rows are put together again, numbers averaged over all rows.

        Raises:
            InvalidInputError: as `Trainer.step`; or an output is neither rows nor a number.
            NotFiniteError: as `Trainer.step`.
            WorkersLostError: all workers died at once.
            After any error but the last the state is as it was before.
        """
        trainer = self._trainer
        arrays = trainer.checked(feeds)
        unknown = [name for name in outputs if name not in trainer.outputs]
        if unknown:
            raise InvalidInputError(f"output '{unknown[0]}' must be one of {trainer.outputs}")
        parts = self._rowwise.divide(arrays, self.workers)
        reduction = self._reduction_of(arrays) if len(parts) > 1 else "mean"
        while True:
            try:
                return self._attempt(parts, reduction, outputs)
            except LostError:
                self._pool.recover()

    def _attempt(self, parts: Sequence[ShardRows], reduction: Reduction, outputs: Sequence[str]) -> StepResult:
        """A step that changes nothing where a worker is lost before any has updated its state."""
        trainer, counts = self._trainer, [part.count for part in parts]
        states = {pair.output: pair.input for pair in self._pairs}
        others = {*states, *self._gradients, *self._late}
        first = tuple(name for name in outputs if name not in others)
        shares = [count / sum(counts) for count in counts]
        shards = [
            Shard(part.feeds, share, share if reduction == "mean" else 1.0, first)
            for part, share in zip(parts, shares, strict=True)
        ]
        results, sums = self._pool.gradients(shards)
        loss = _loss(results, counts, reduction)
        returned = {
            name: self._rowwise.joined(name, [each.outputs[name] for each in results], counts) for name in first
        }
        if self._loss in returned:
            returned[self._loss] = np.asarray(loss, returned[self._loss].dtype)
        returned |= self._gradients_of(sums, [name for name in outputs if name in self._gradients])
        if updates(loss, trainer.steps + 1, trainer.on_nan, trainer.spoilt):
            late = tuple(name for name in outputs if name in self._late and name not in states)
            returned |= self._pool.update(sums, trainer.learning_rate, late)
        trainer.steps += 1
        read = [name for name in outputs if name in states]
        if read:
            values = self._pool.state([str(states[name]) for name in read])
            returned |= {name: values[str(states[name])] for name in read}
        return StepResult(loss, {name: returned[name] for name in outputs})

    def _gradients_of(self, sums: Sums, names: Sequence[str]) -> dict[str, Array]:
        if not names:
            return {}
        parts = self._layout.parts(self._pool.vector(sums))
        return {name: parts[name].astype(self._layout.gradients[name][1]) for name in names}

    def _reduction_of(self, arrays: Mapping[str, Array]) -> Reduction:
        if self._reduction is None:
            # Before the first step the state is the trainer's still.
            loss = loss_of(self._trainer.model, self._trainer.state_dict(), str(self._loss))
            self._reduction = reduction_of(loss, self._rowwise, arrays)
        return self._reduction

    def state_dict(self) -> dict[str, Array]:
        """The state by input name, copied from a worker."""
        return self.sync().state_dict()

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Puts values in place of the whole state, as `Trainer.load_state_dict` does."""
        self._trainer.load_state_dict(values)
        self._hand_out()

    def sync(self) -> Trainer:
        """Copies the state into the trainer, and returns it: to evaluate, predict or export."""
        if self._synced != self._pool.version:
            self._trainer.load_state_dict(self._pool.state())
            self._synced, self._steps = self._pool.version, self._trainer.steps
        return self._trainer

    def check_finite(self) -> None:
        """Checks the weights, as `Trainer.check_finite` does."""
        self.sync().check_finite()

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint, as `Trainer.save` does; it goes on with any number of workers, or none."""
        self.sync().save(path, notes)

    def resume(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Continues from a checkpoint, as `Trainer.resume` does."""
        notes = self._trainer.resume(path)
        self._hand_out()
        return notes

    def _hand_out(self) -> None:
        """Gives the trainer's state to the workers."""
        self._pool.load(self._trainer.state_dict())
        self._synced, self._steps = self._pool.version, self._trainer.steps

    def close(self) -> None:
        """Hands the state back to the trainer, and ends the workers."""
        try:
            self.sync()
        finally:
            self._pool.close()


def _loss(results: Sequence[ShardResult], counts: Sequence[int], reduction: Reduction) -> float:
    losses = [np.asarray(result.loss) for result in results]
    return float(mean(losses, counts)) if reduction == "mean" else float(sum(losses))
