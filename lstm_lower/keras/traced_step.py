"""The step that TensorFlow traces: the loss, its gradients and the optimizer's update."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.keras import evaluation, objective, optimizers
from lstm_lower.keras.arguments import Given
from lstm_lower.keras.objective import Objective
from lstm_lower.keras.operands import Operands
from lstm_lower.keras.variables import VariableNames


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
        inputs, expected, weights = self._parts(given)
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

    def _parts(self, given: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor | None], tf.Tensor | None]:
        """Inputs, targets (`None` for an output that has none), and the weights of samples."""
        rest = list(given)
        inputs = [rest.pop(0) for _ in self.operands.inputs]
        expected = [rest.pop(0) if used else None for used in self.measure.used]
        if self.given.class_weight is not None:
            return inputs, expected, objective.class_weights(self.given.class_weight, expected)
        return inputs, expected, self.operands.packed_weights(rest)
