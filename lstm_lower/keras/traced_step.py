"""The step that TensorFlow traces: the loss, its gradients and the optimizer's update."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.keras import evaluation, optimizers
from lstm_lower.keras.arguments import Given
from lstm_lower.keras.objective import Objective, parts_of
from lstm_lower.keras.operands import Operands
from lstm_lower.keras.variables import VariableNames
from lstm_lower.replacement import standing_in


@dataclasses.dataclass
class TracedStep:
    """A step of a model without one of its own, as a function of flat tensors.

    Attributes:
        model: the model.
        operands: of the model.
        measure: its losses and metrics.
        rule: the optimizer; `None` where nothing is updated.
        names: of variables; `grad/` before it is the output that shows a gradient.
        given: the arguments of the export.
        shown: variable's name -> that output, where the update reads what it shows; known once the step is traced.
    """

    model: keras.Model
    operands: Operands
    measure: Objective
    rule: Any
    names: VariableNames
    given: Given
    shown: dict[str, str]

    def __call__(self, *given: tf.Tensor) -> dict[str, tf.Tensor]:
        """The loss, the metrics and the gradients for inputs, targets and weights of samples."""
        by_inputs = self.given.what == "input_gradient"
        inputs, expected, weights = parts_of(given, self.operands, self.measure.used, self.given.class_weight)
        watched = [x for x in inputs if x.dtype.is_floating] if by_inputs else []
        with tf.GradientTape() as tape:
            tape.watch(watched)
            predictions = evaluation.called(
                self.model, self.operands.packed_inputs(inputs), training=self.given.training
            )
            value, results = self.measure(expected, predictions, weights)
            value = evaluation.with_penalties(value, self.model)
            scaled = value if self.rule is None else self.rule.scale_loss(value)
        results = {"loss": value} | results
        if by_inputs:
            gradients = tape.gradient(value, watched, unconnected_gradients="zero")
            floating = [spec.name for spec in self.operands.inputs if spec.dtype.is_floating]
            return results | {f"grad/{name}": g for name, g in zip(floating, gradients, strict=True)}
        variables = list(self.model.trainable_variables)
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        whole = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        scale = None if scaled is value else self.rule.scale_loss(tf.ones([], value.dtype))
        names = [self.names.of(variable) for variable in variables]
        for name, variable, gradient in zip(names, variables, whole, strict=True):
            shown = tf.zeros(variable.shape, variable.dtype) if gradient is None else tf.identity(gradient)
            results[f"grad/{name}"] = shown if scale is None else shown / tf.cast(scale, shown.dtype)
        apart = self.rule is not None and optimizers.tells_occurrences_apart(self.rule)
        # The updates of a scaled loss, or of single occurrences, read other gradients than those among the outputs.
        if scale is None:
            slices = [apart and isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
            self.shown |= {name: f"grad/{name}" for name, each in zip(names, slices, strict=True) if not each}
        if self.rule is not None:
            self.rule.apply(gradients if apart else whole, variables)
        return results


# Keras 3's own `train_step`, with which an exported step is compared.


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
        flat, expected, weight = parts_of(given, self.operands, self.measure.used, self.class_weight)
        inputs = self.operands.packed_inputs(flat)
        # Keras wants something for each output, which a loss of none does not look at.
        rows = next(iter(tf.nest.flatten(inputs))).shape[0]
        targets = [
            tf.zeros([rows, *(size or 1 for size in output.shape[1:])], output.dtype) if target is None else target
            for target, output in zip(expected, keras.tree.flatten(self.operands.outputs), strict=True)
        ]
        y_true = keras.tree.pack_sequence_as(self.operands.outputs, targets)
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
