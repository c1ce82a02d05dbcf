"""What evaluates a Keras model's training step: the model with `training=False`, as `evaluate` and `predict` run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import onnx_ir as ir
import tensorflow as tf

from lstm_lower.errors import InvalidInputError, LstmLowerWarning, UnsupportedOpError, some, warn
from lstm_lower.keras import own_steps
from lstm_lower.keras.objective import Objective, parts_of, started_anew
from lstm_lower.keras.operands import Operands
from lstm_lower.passes.training import evaluation
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState


class LeftOutMetricWarning(LstmLowerWarning):
    """Metrics that evaluating does not return."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model and what it is measured by.

    Attributes:
        run: flat tensors to the model's predictions, in any structure, and its loss and metrics by name. Metrics count
            on from where they are.
        output_names: a name per prediction, flat.
        metrics: the metrics themselves.
        own: whether a `test_step` or loss of the model's own measures, which may take what the step does not.
    """

    run: Callable[[Sequence[tf.Tensor]], tuple[Any, Mapping[str, tf.Tensor]]]
    output_names: Sequence[str]
    metrics: Callable[[], Sequence[Any]]
    own: bool

    def record(self, step: ir.Model, exported: Callable[[Callable[..., dict[str, Any]]], ir.Model]) -> None:
        """Records what evaluates a step, where it is certain. What metrics count in becomes running totals of it.

        Args:
            step: the exported step.
            exported: makes a model of a function of flat tensors.
        """
        names: dict[str, str] = {}
        left_out: list[str] = []
        inputs = {str(value.name) for value in step.graph.inputs}

        def traced(*given: tf.Tensor) -> dict[str, tf.Tensor]:
            predictions, values = self.run(given)
            scores = {name: _numbers(name, value) for name, value in values.items()}
            left_out[:] = [name for name, numbers in scores.items() if numbers is None]
            measured = {name: number for numbers in scores.values() for name, number in (numbers or {}).items()}
            flat = keras.tree.flatten(predictions)
            own = self.output_names if len(self.output_names) == len(flat) else [str(n) for n in range(len(flat))]
            for name, prediction in zip(own, flat, strict=True):
                names[name] = _name(name, inputs | measured.keys())
                # One that is an input as well needs a value of its own.
                measured[names[name]] = tf.identity(prediction)
            return measured

        try:
            with started_anew(self.metrics()):
                model = exported(traced)
        except UnsupportedOpError:
            # The step trains all the same; whoever evaluates it hears what is missing.
            return
        except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError):
            # So it does where a `test_step` takes what the step does not.
            if not self.own:
                raise
            return
        if left_out:
            warn(
                f"evaluate leaves out the metrics {some(left_out)}, which are neither numbers nor vectors of known "
                "length: update_state of the metric with what trainer.predict returns computes them",
                LeftOutMetricWarning,
            )
        pairs = training_state.read(model).pairs
        has_loss = any(value.name == "loss" for value in model.graph.outputs)
        training_state.write(model, TrainingState(pairs, "loss" if has_loss else None))
        # A `test_step` calls the model once more, so that states would move twice.
        evaluation.record(step, model, list(names.values()), moving=not self.own)


def _numbers(name: str, value: tf.Tensor) -> dict[str, tf.Tensor] | None:
    """A metric as numbers, those of a vector by their places, as F1 has one for each class; `None` for all else."""
    if value.shape.rank == 0:
        return {name: value}
    if value.shape.rank != 1 or value.shape[0] is None:
        return None
    return {f"{name}/{place}": value[place] for place in range(value.shape[0])}


def of_objective(model: keras.Model, operands: Operands, measure: Objective) -> Evaluation:
    """What evaluates a model that Keras trains: loss and metrics."""

    def run(given: Sequence[tf.Tensor]) -> tuple[Any, dict[str, tf.Tensor]]:
        inputs, expected, weights = parts_of(given, operands, measure.used)
        predictions = called(model, operands.packed_inputs(inputs), training=False)
        value, results = measure.counted(expected, predictions, weights)
        return predictions, {"loss": with_penalties(value, model)} | results

    return Evaluation(run, operands.output_names, measure.trackers, own=False)


def of_own_step(model: keras.Model, operands: Operands, targets: Sequence[tf.TensorSpec]) -> Evaluation:
    """What evaluates a model with a step of its own, whose `test_step` says what loss and metrics are."""

    def run(given: Sequence[tf.Tensor]) -> tuple[Any, Mapping[str, tf.Tensor]]:
        predictions = called(model, operands.packed_inputs(given[: len(operands.inputs)]), training=False)
        return predictions, own_steps.evaluation_of(model, operands, targets, given)

    return Evaluation(run, operands.output_names, lambda: model.metrics, own=True)


def _name(name: str, taken: Collection[str]) -> str:
    """A name for an output; Keras has none, or a place, for those of subclassed models."""
    named = f"output_{name}" if name.isdigit() else name or "output"
    while named in taken:
        named += "_output"
    return named


def called(model: keras.Model, inputs: Any, *, training: bool) -> Any:
    """A model's result in one of its modes."""
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def with_penalties(loss: tf.Tensor | None, model: keras.Model) -> tf.Tensor:
    """A loss, if there is one, and what the model's layers add to it.

    Raises:
        InvalidInputError: there is neither.
    """
    if loss is None:
        if not model.losses:
            raise InvalidInputError(
                "loss requires a name, a Keras loss or a function, got none, and neither has the model one, nor do its "
                "layers add any"
            )
        loss = tf.zeros([], model.losses[0].dtype)
    for extra in model.losses:
        loss += tf.cast(tf.reduce_sum(extra), loss.dtype)
    return loss
