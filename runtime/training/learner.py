"""The interface that a training loop needs of a trainer."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from lstm_lower.runtime.training.evaluator import Evaluator

Array = np.ndarray[Any, Any]

# How a loss follows from the losses of a batch's rows.
Reduction = Literal["mean", "sum"]

OnNan = Literal["stop", "skip", "ignore"]


class StepResult(NamedTuple):
    """The result of a step.

    Attributes:
        loss: the loss before the update; NaN for a model without one.
        outputs: the chosen outputs by name, copies that later steps do not change.
    """

    loss: float
    outputs: dict[str, Array]


class Learner(Protocol):
    """Whoever has these can be trained by `Fit`: `Trainer`, or one that spreads its steps over processes.

    A step's numbers may depend on the state, the learning rate and the feeds alone, and `save` must keep all of the
    state and the learning rate, or else a resumed run would not equal one that went on.

    Attributes:
        on_nan: what becomes of steps whose loss is no finite number; under `ignore` weights are not looked at either.
        steps: steps done.
        learning_rate: that of the next step; NaN for a model without such an input, where it cannot be set.
        has_loss: whether `StepResult.loss` is one.
    """

    on_nan: OnNan
    steps: int
    learning_rate: float

    @property
    def has_loss(self) -> bool: ...

    @property
    def data_inputs(self) -> Sequence[Any]:
        """The data inputs as an onnxruntime session declares them: with `name`, `type` and `shape`."""
        ...

    @property
    def casts(self) -> Collection[str]:
        """The data inputs whose values are cast, as the framework that the model came from casts them."""
        ...

    @property
    def metrics(self) -> list[str]:
        """Outputs of a step that are scalars and neither loss, state nor gradients."""
        ...

    @property
    def evaluator(self) -> Evaluator:
        """An evaluator with the state as it is now."""
        ...

    def step(self, feeds: Mapping[str, Any], outputs: Sequence[str] = ()) -> StepResult: ...

    def check_finite(self) -> None: ...

    def state_dict(self) -> dict[str, Array]: ...

    def load_state_dict(self, values: Mapping[str, Any]) -> None: ...

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None: ...

    def resume(self, path: str | os.PathLike[str]) -> dict[str, Any]: ...
