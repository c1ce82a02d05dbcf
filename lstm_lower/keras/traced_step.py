"""The step that TensorFlow traces: the loss, its gradients and the optimizer's update."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.keras import evaluation, objective, optimizers
from lstm_lower.keras.objective import Objective
from lstm_lower.keras.operands import Operands


@dataclasses.dataclass
class TracedStep:
    """A step of a model without one of its own, as a function of flat tensors.

    Attributes:
        model: the model.
        operands: of the model.
        measure: its losses and metrics.
        rule: the optimizer; `None` where nothing is updated.
        names: of the outputs that show the gradients of trainable variables, in their order.
        by_inputs: whether the gradients of inputs are wanted instead.
        class_weight: class -> weight, or `None`.
        training: whether layers behave as in training.
        apart: names of gradients that the optimizer reads occurrence by occurrence; known once the step is traced.
    """

    model: keras.Model
    operands: Operands
    measure: Objective
    rule: Any
    names: Sequence[str]
    by_inputs: bool
    class_weight: Mapping[int, float] | None
    training: bool
    apart: list[str] = dataclasses.field(default_factory=list)

    def __call__(self, *given: tf.Tensor) -> dict[str, tf.Tensor]:
        """The loss, the metrics and the gradients for inputs, targets and weights of samples."""
        inputs, expected, weights = self._parts(given)
        watched = [x for x in inputs if x.dtype.is_floating] if self.by_inputs else []
        with tf.GradientTape() as tape:
            tape.watch(watched)
            predictions = evaluation.called(self.model, self.operands.packed_inputs(inputs), training=self.training)
            value, results = self.measure(expected, predictions, weights)
            value = evaluation.with_penalties(value, self.model)
            scaled = value if self.rule is None else self.rule.scale_loss(value)
        results = {"loss": value} | results
        if self.by_inputs:
            gradients = tape.gradient(value, watched, unconnected_gradients="zero")
            floating = [spec.name for spec in self.operands.inputs if spec.dtype.is_floating]
            return results | {f"grad/{name}": g for name, g in zip(floating, gradients, strict=True)}
        variables = list(self.model.trainable_variables)
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        whole = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        scale = None if scaled is value else self.rule.scale_loss(tf.ones([], value.dtype))
        for name, variable, gradient in zip(self.names, variables, whole, strict=True):
            shown = tf.zeros(variable.shape, variable.dtype) if gradient is None else tf.identity(gradient)
            results[name] = shown if scale is None else shown / tf.cast(scale, shown.dtype)
        if self.rule is not None and optimizers.tells_occurrences_apart(self.rule):
            found = zip(self.names, gradients, strict=True)
            self.apart += [name for name, gradient in found if isinstance(gradient, tf.IndexedSlices)]
            self.rule.apply(gradients, variables)
        elif self.rule is not None:
            self.rule.apply(whole, variables)
        return results

    def _parts(self, given: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor | None], tf.Tensor | None]:
        """Inputs, targets (`None` for an output that has none), and the weights of samples."""
        rest = list(given)
        inputs = [rest.pop(0) for _ in self.operands.inputs]
        expected = [rest.pop(0) if used else None for used in self.measure.used]
        if self.class_weight is not None:
            return inputs, expected, objective.class_weights(self.class_weight, expected)
        return inputs, expected, rest.pop() if rest else None
