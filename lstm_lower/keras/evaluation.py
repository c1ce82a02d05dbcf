"""What evaluates a Keras model's training step: the model with `training=False`, as `evaluate` and `predict` run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import onnx_ir as ir
import tensorflow as tf

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.keras import own_steps
from lstm_lower.keras.objective import Objective
from lstm_lower.keras.operands import Operands
from lstm_lower.passes.training import evaluation
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model and what it is measured by.

    Attributes:
        model: the model.
        operands: what it takes and returns.
        targets: a spec per target.
        measure: loss and metrics; `None` for a model with a step of its own, whose `test_step` says what they are.
    """

    model: keras.Model
    operands: Operands
    targets: Sequence[tf.TensorSpec]
    measure: Objective | None

    def record(self, step: ir.Model, exported: Callable[[Callable[..., dict[str, Any]]], ir.Model]) -> None:
        """Records what evaluates a step, where it is certain.

        Args:
            step: the exported step.
            exported: makes a model of a function of flat tensors.
        """
        names: dict[str, str] = {}
        inputs = {str(value.name) for value in step.graph.inputs}

        def traced(*given: tf.Tensor) -> dict[str, tf.Tensor]:
            predictions = called(self.model, self._inputs(given), training=False)
            measured = dict(self._measured(given, predictions))
            flat = keras.tree.flatten(predictions)
            for name, prediction in zip(self.operands.output_names, flat, strict=True):
                names[name] = _name(name, inputs | measured.keys())
                # One that is an input as well needs a value of its own.
                measured[names[name]] = tf.identity(prediction)
            return measured

        try:
            model = exported(traced)
        except UnsupportedOpError:
            # The step trains all the same; whoever evaluates it hears what is missing.
            return
        except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError):
            # So it does where a `test_step` takes what the step does not.
            if self.measure is not None:
                raise
            return
        pairs = training_state.read(model).pairs
        has_loss = any(value.name == "loss" for value in model.graph.outputs)
        training_state.write(model, TrainingState(pairs, "loss" if has_loss else None))
        # A `test_step` calls the model once more, so that states would move twice.
        evaluation.record(step, model, list(names.values()), moving=self.measure is not None)

    def _inputs(self, given: Sequence[tf.Tensor]) -> Any:
        return self.operands.packed_inputs(given[: len(self.operands.inputs)])

    def _measured(self, given: Sequence[tf.Tensor], predictions: Any) -> Mapping[str, tf.Tensor]:
        if self.measure is None:
            return own_steps.evaluation_of(self.model, self.operands, self.targets, given)
        rest = list(given[len(self.operands.inputs) :])
        expected = [rest.pop(0) if used else None for used in self.measure.used]
        value, results = self.measure(expected, predictions, rest.pop() if rest else None)
        return {"loss": with_penalties(value, self.model)} | results


def _name(name: str, taken: Collection[str]) -> str:
    """A name for an output; Keras has none, or a place, for those of subclassed models."""
    named = f"output_{name}" if name.isdigit() else name or "output"
    while named in taken:
        named += "_output"
    return named


def called(model: keras.Model, inputs: Any, *, training: bool) -> Any:
    """A model's result in one of its modes."""
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def with_penalties(loss: tf.Tensor, model: keras.Model) -> tf.Tensor:
    """A loss and what the model's layers add to it."""
    for extra in model.losses:
        loss += tf.cast(tf.reduce_sum(extra), loss.dtype)
    return loss
