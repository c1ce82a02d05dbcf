"""The optimizer of a training run, in onnxruntime."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.ort_training.api.module import Module
from lstm_lower.ort_training.checkpoint_state import OptimizerState
from lstm_lower.ort_training.onnxblock.optim import GRADIENTS, LEARNING_RATE, PARAMETERS, STEP
from lstm_lower.runtime.session import Session

_SUFFIX = ".updated"


class Optimizer:
    """Updates a module's parameters; what it keeps of them is part of the checkpoint's state."""

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        """Opens the model; goes on where the checkpoint holds what an optimizer keeps.

        Args:
            optimizer_uri: `optimizer_model.onnx`.
            module: what is trained.

        Raises:
            InvalidModelError: the file is no such model.
            InvalidInputError: the checkpoint holds what another optimizer keeps.
        """
        if not isinstance(module, Module):
            raise InvalidInputError(f"Optimizer requires a Module, got {module!r}")
        path = Path(optimizer_uri)
        self._held = module.held
        self._session = Session(path, session_options=module.session_options)
        inputs, outputs = self._session.inputs, self._session.outputs
        own = (LEARNING_RATE, STEP, PARAMETERS, GRADIENTS)
        slots = [name for name in inputs if name not in own]
        changed = [PARAMETERS + _SUFFIX, *(name + _SUFFIX for name in slots)]
        # Clipping leaves clipped gradients behind.
        clipped = [GRADIENTS + _SUFFIX] if GRADIENTS + _SUFFIX in outputs else []
        if not {PARAMETERS, GRADIENTS} <= set(inputs) or not set(changed) <= set(outputs):
            raise InvalidModelError(
                f"{path}: a model that updates '{PARAMETERS}' by '{GRADIENTS}' is required, as generate_artifacts "
                f"writes one, got inputs {inputs} and outputs {outputs}"
            )
        self._changed = changed + clipped
        kept = self._held.optimizer
        if kept is None:
            kept = self._held.optimizer = OptimizerState()
        if kept.slots and set(kept.slots) != set(slots):
            raise InvalidInputError(f"{path}: an optimizer that keeps {list(kept.slots)} is required, got one that "
                                    f"keeps {slots}")  # fmt: skip
        if not kept.slots:
            kept.slots = {
                slot: {name: np.zeros_like(self._held.parameters[name], subok=False) for name in self._held.trainable}
                for slot in slots
            }
        self.state = kept

    def step(self) -> None:
        """Updates the parameters by the gradients accumulated so far, which stay, clipped where the optimizer clips."""
        held, kept = self._held, self.state
        held.check_numbers()
        names = held.trainable
        weights = [held.parameters[name] for name in names]
        gradients = [held.gradients.get(name, np.zeros_like(held.parameters[name])) for name in names]
        feeds = {
            LEARNING_RATE: np.array([kept.learning_rate], np.float32),
            STEP: np.array([kept.step + 1], np.int64),
            PARAMETERS: weights,
            GRADIENTS: gradients,
            **{slot: [values[name] for name in names] for slot, values in kept.slots.items()},
        }
        feeds = {name: value for name, value in feeds.items() if name in self._session.inputs}
        try:
            results = self._session.ort.run(self._changed, feeds)
        except Exception as error:
            raise InvalidInputError(f"onnxruntime failed on these gradients: {error}") from error
        changed = dict(zip(self._changed, results, strict=True))
        held.parameters.update(zip(names, changed.pop(PARAMETERS + _SUFFIX), strict=True))
        held.gradients.update(zip(names, changed.pop(GRADIENTS + _SUFFIX, gradients), strict=True))
        for slot, values in changed.items():
            kept.slots[slot.removesuffix(_SUFFIX)] = dict(zip(names, values, strict=True))
        kept.step += 1

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the rate of the next updates.

        Raises:
            InvalidInputError: it is no finite number.
        """
        number = isinstance(learning_rate, (int, float, np.integer, np.floating))
        if not number or not math.isfinite(learning_rate):
            raise InvalidInputError(f"learning_rate requires a finite number, got {learning_rate!r}")
        self.state.learning_rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        """The rate of the next updates, 0.001 at first."""
        return self.state.learning_rate


# A schedule of the learning rate.


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
