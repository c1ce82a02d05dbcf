"""The loss and the metrics of a step, as `model.compile` understands them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from lstm_lower.errors import InvalidInputError, LstmLowerError
from lstm_lower.keras.arguments import first_line
from lstm_lower.keras.operands import Operands


def losses_by_output(loss: Any, names: Sequence[str]) -> list[Any]:
    """The loss of each output, where it is given per output; elsewhere the same for all."""
    if isinstance(loss, Mapping):
        return [loss.get(name) for name in names]
    if isinstance(loss, (list, tuple)):
        return list(loss) if len(loss) == len(names) else [None] * len(names)
    return [loss] * len(names)


class Objective:
    """Loss and metrics of a model; metrics are those of one batch alone.

    Attributes:
        loss: Keras' own form of all losses and their weights; `None` where layers add all there is.
        used: per output, whether a loss or a metric looks at it, so that it needs a target.
    """

    def __init__(
        self,
        operands: Operands,
        targets: Sequence[tf.TensorSpec],
        loss: Any,
        loss_weights: Any,
        metrics: Any,
        weighted_metrics: Any = None,
    ) -> None:
        """Resolves names.

        Args:
            operands: of the model.
            targets: a spec per output.
            loss: as `model.compile` takes it.
            loss_weights: the same.
            metrics: the same, or functions of targets and predictions by name.
            weighted_metrics: the same; they heed the weights of samples.

        Raises:
            InvalidInputError: Keras refuses it.
        """
        self._structure = operands.outputs
        self._names = names = operands.output_names
        symbols = [keras.KerasTensor(spec.shape, spec.dtype.name) for spec in targets]
        y_true = keras.tree.pack_sequence_as(operands.outputs, symbols)
        with _fitting("loss and loss_weights require", names):
            self.loss = None if loss is None else CompileLoss(loss, loss_weights, output_names=names)
            if self.loss is not None:
                self.loss.build(y_true, operands.outputs)
        self._metrics = None
        with _fitting("metrics requires", names):
            if metrics or weighted_metrics:
                self._metrics = CompileMetrics(_by_name(metrics, names), weighted_metrics, output_names=names)
                self._metrics.build(y_true, operands.outputs)
            _make_variables(self._metrics, y_true, operands.outputs)
        self._first = _first_values(self._losses())
        self._first_of_metrics = _first_values(self.trackers())
        self.used = self._used(len(targets))

    def _losses(self) -> list[Any]:
        """The means of the losses of several outputs."""
        return [] if self.loss is None else list(self.loss.metrics)

    def trackers(self) -> list[Any]:
        """The metrics themselves."""
        return [] if self._metrics is None else list(self._metrics.metrics)

    def _used(self, count: int) -> list[bool]:
        """By trying: numbers in place of outputs show where each loss leads."""
        numbers = keras.tree.pack_sequence_as(self._structure, list(range(count)))
        reached = set()
        for part in self.loss._flat_losses if self.loss is not None else []:
            found = numbers
            for key in part.path:
                found = found[key] if isinstance(found, (list, tuple, Mapping)) else found
            reached |= set(keras.tree.flatten(found))
        if self._metrics is not None:
            for measured in (self._metrics._flat_metrics, self._metrics._flat_weighted_metrics):
                reached |= {number for number, metric in enumerate(measured) if metric is not None}
        return [number in reached for number in range(count)]

    def __call__(self, targets: Sequence[Any], predictions: Any, weight: Any) -> tuple[Any, dict[str, Any]]:
        """The loss and, by name, the losses of several outputs and the metrics of one batch alone.

        Args:
            targets: flat; `None` where an output is not used.
            predictions: in the model's structure.
            weight: of samples, or `None`.
        """
        # Sums over batches start at their first values in every step and are not kept.
        with _starting_at(self._first_of_metrics):
            return self.counted(targets, predictions, weight)

    def counted(self, targets: Sequence[Any], predictions: Any, weight: Any) -> tuple[Any, dict[str, Any]]:
        """As `__call__`, with metrics that count on in their variables."""
        flat = keras.tree.flatten(predictions)
        filled = [
            tf.stop_gradient(prediction) if target is None else target
            for target, prediction in zip(targets, flat, strict=True)
        ]
        predictions = keras.tree.pack_sequence_as(self._structure, flat)
        y_true = keras.tree.pack_sequence_as(self._structure, filled)
        with _starting_at(self._first), _fitting("loss, target_spec and sample_weight require", self._names):
            loss = None if self.loss is None else self.loss(y_true, predictions, weight)
            results = {each.name: each.result() for each in self._losses()}
        if self._metrics is not None:
            try:
                self._metrics.update_state(y_true, predictions, weight)
                results |= self._metrics.result()
            except ValueError as error:
                raise InvalidInputError(
                    f"metrics requires those that can be traced, got: {first_line(error)}"
                ) from error
        return loss, {name: _number(value) for name, value in results.items()}


def _make_variables(metrics: Any, targets: Any, predictions: Any) -> None:
    """Makes variables that metrics make when they first measure, as Keras' own training does."""

    def measured(y: Any, predicted: Any) -> Any:
        metrics.update_state(y, predicted)
        return metrics.result()

    if metrics is not None:
        keras.src.backend.compute_output_spec(measured, targets, predictions)


def _first_values(metrics: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Variables of metrics with their values before the first batch."""
    with started_anew(metrics):
        return [(variable, variable.numpy()) for metric in metrics for variable in metric.variables]


@contextlib.contextmanager
def started_anew(metrics: Sequence[Any]) -> Iterator[None]:
    """Metrics stand at their first values within."""
    held = [(variable, variable.numpy()) for metric in metrics for variable in metric.variables]
    for metric in metrics:
        metric.reset_state()
    try:
        yield
    finally:
        for variable, value in held:
            variable.assign(value)


def _starting_at(first: Sequence[tuple[Any, Any]]) -> Any:
    """A scope in which variables start at given values, and what is assigned to them is not kept."""
    return keras.StatelessScope(state_mapping=[(variable, tf.constant(value)) for variable, value in first])


def _by_name(metrics: Any, names: Sequence[str]) -> Any:
    """Functions by name become metrics of those names; all else is left to Keras."""
    if isinstance(metrics, Mapping) and not set(metrics) <= set(names):
        if len(names) != 1:
            raise InvalidInputError(f"metrics requires names of the outputs {list(names)}, got {list(metrics)}")
        return [_metric(name, function) for name, function in metrics.items()]
    return metrics


def _metric(name: str, function: Callable[..., Any]) -> Any:
    if not callable(function):
        raise InvalidInputError(
            f"metrics by names of their own require functions of targets and predictions, got {function!r} for '{name}'"
        )
    return keras.metrics.MeanMetricWrapper(function, name=name)


def _number(value: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value)
    return tensor if tensor.dtype.is_floating else tf.cast(tensor, tf.float32)


@contextlib.contextmanager
def _fitting(required: str, names: Sequence[str]) -> Iterator[None]:
    """Turns what Keras raises on a loss or a metric into one error."""
    try:
        yield
    except LstmLowerError:
        raise
    except Exception as error:
        outputs = f" {list(names)}" if any(names) else ""
        raise InvalidInputError(f"{required} what fits the outputs{outputs}, got: {first_line(error)}") from error


def parts_of(
    given: Sequence[tf.Tensor],
    operands: Operands,
    used: Sequence[bool],
    class_weight: Mapping[int, float] | None = None,
) -> tuple[list[tf.Tensor], list[tf.Tensor | None], Any]:
    """Inputs, targets (`None` for an output that has none), and weights of samples of a batch of flat tensors.

    Args:
        given: the tensors.
        operands: the model's.
        used: whether an output has a target.
        class_weight: class -> weight; in place of weights among the tensors.
    """
    rest = list(given)
    inputs = [rest.pop(0) for _ in operands.inputs]
    expected = [rest.pop(0) if each else None for each in used]
    if class_weight is not None:
        return inputs, expected, class_weights(class_weight, expected)
    return inputs, expected, operands.packed_weights(rest)


def class_weights(weights: Mapping[int, float], targets: Sequence[Any]) -> tf.Tensor:
    """The weight of each row's class, 1 for classes without one, as `model.fit` makes sample weights of them.

    Args:
        weights: class -> weight.
        targets: those of the only output: class numbers, or a row of probabilities each.

    Raises:
        InvalidInputError: there are several outputs, or a target is not one class per row.
    """
    if len(targets) != 1:
        raise InvalidInputError(f"class_weight requires a model with one output, got {len(targets)}")
    y = targets[0]
    if y.shape.rank == 2:
        y = y[:, 0] if y.shape[1] == 1 else tf.argmax(y, -1)
    elif y.shape.rank != 1:
        raise InvalidInputError(f"class_weight requires one class per row, got targets of shape {y.shape}")
    classes = tf.cast(y if y.dtype.is_integer else tf.round(y), tf.int64)
    result = tf.ones_like(classes, tf.float32)
    for number, weight in weights.items():
        result = tf.where(classes == number, tf.constant(weight, tf.float32), result)
    return result
