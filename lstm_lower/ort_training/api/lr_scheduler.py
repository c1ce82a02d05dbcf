"""A schedule of the learning rate."""

from __future__ import annotations

from lstm_lower.errors import InvalidInputError
from lstm_lower.ort_training.api.optimizer import Optimizer


class LinearLRScheduler:
    """A learning rate that grows from 0 to a first value, and then falls to 0, both in a straight line.

    It follows the number of updates that the optimizer has done, also before a checkpoint from which it goes on.
    """

    def __init__(self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float) -> None:
        """Sets the optimizer's learning rate to that of its next update.

        Args:
            optimizer: the optimizer.
            warmup_step_count: the number of updates in which the rate grows.
            total_step_count: the number of updates behind which it is 0.
            initial_lr: the largest rate.

        Raises:
            InvalidInputError: a count is negative, or the rate no finite number.
        """
        for name, count in (("warmup_step_count", warmup_step_count), ("total_step_count", total_step_count)):
            if int(count) != count or count < 0:
                raise InvalidInputError(f"{name} requires a number of steps, got {count!r}")
        self._optimizer = optimizer
        self._warmup, self._total, self._first = warmup_step_count, total_step_count, initial_lr
        self.step()

    def step(self) -> None:
        """Sets the rate of the next update; to be called behind each `Optimizer.step`."""
        done = self._optimizer.state.step
        if done < self._warmup:
            share = done / self._warmup
        else:
            share = max(0.0, (self._total - done) / max(1, self._total - self._warmup))
        self._optimizer.set_learning_rate(self._first * share)
