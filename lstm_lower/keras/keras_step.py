"""Keras 3's own `train_step`, with which an exported step is compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.keras.objective import Objective, class_weights
from lstm_lower.keras.operands import Operands
from lstm_lower.replacement import standing_in


@dataclasses.dataclass(frozen=True, eq=False)
class KerasOwnStep:
    """The step that Keras' training loop takes, as a function of flat tensors.

    Attributes:
        model: the model; optimizer and loss stand in it while it trains.
        operands: of the model.
        measure: has the loss, and says which outputs have targets.
        rule: the optimizer.
        class_weight: class -> weight, or `None`.
        tracker: the mean of losses that Keras shows.
    """

    model: keras.Model
    operands: Operands
    measure: Objective
    rule: Any
    class_weight: Mapping[int, float] | None
    tracker: Any = dataclasses.field(default_factory=lambda: keras.metrics.Mean(name="loss"))

    def __call__(self, *given: tf.Tensor) -> dict[str, Any]:
        """The loss, which is all that is measured."""
        rest = list(given)
        inputs = self.operands.packed_inputs([rest.pop(0) for _ in self.operands.inputs])
        expected = [rest.pop(0) if used else None for used in self.measure.used]
        weight = self.operands.packed_weights(rest)
        if self.class_weight is not None:
            weight = class_weights(self.class_weight, expected)
        # Keras wants something for each output, which a loss of none does not look at.
        rows = next(iter(tf.nest.flatten(inputs))).shape[0]
        flat = [
            tf.zeros([rows, *(size or 1 for size in output.shape[1:])], output.dtype) if target is None else target
            for target, output in zip(expected, keras.tree.flatten(self.operands.outputs), strict=True)
        ]
        y_true = keras.tree.pack_sequence_as(self.operands.outputs, flat)
        standing = {
            "optimizer": self.rule,
            "_compile_loss": self.measure.loss,
            "_compile_metrics": None,
            "_loss_tracker": self.tracker,
            "compiled": True,
        }
        with standing_in(self.model, standing):
            self.tracker.reset_state()
            logs = keras.Model.train_step(self.model, (inputs, y_true, weight))
        return {"loss": logs["loss"]}
