"""Models whose training step is their own: a `train_step` or `compute_loss` in their class."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lstm_lower.errors import InvalidInputError, some
from lstm_lower.keras.arguments import Given
from lstm_lower.keras.operands import Operands

_UNHEEDED = ("loss_weights", "metrics", "class_weight")


def is_own(model: keras.Model) -> bool:
    """Whether the model's class says how it is trained."""
    return any(getattr(type(model), name) is not getattr(keras.Model, name) for name in ("train_step", "compute_loss"))


def check(model: Any, given: Given) -> None:
    """Refuses what the model's step would pay no heed to.

    Raises:
        InvalidInputError: an argument is given that only a step of Keras' own follows, or no training step is wanted.
    """
    unheeded = [name for name in _UNHEEDED if getattr(given, name) is not None]
    if given.loss is not None and not isinstance(given.loss, str):
        unheeded.insert(0, "loss")
    if not given.training:
        unheeded.append("training")
    if unheeded:
        raise InvalidInputError(
            f"{unheeded[0]} requires Keras' own training step, got model '{model.name}' with a train_step or "
            "compute_loss of its own; give it to model.compile"
        )
    if given.what != "train":
        raise InvalidInputError(
            f"what requires 'train' for model '{model.name}', which has a train_step or compute_loss of its own, got "
            f"{given.what!r}; write such a step as a tf.function for from_tensorflow"
        )


def step_of(
    model: keras.Model,
    rule: Any,
    operands: Operands,
    targets: Sequence[tf.TensorSpec],
    weights: Sequence[tf.TensorSpec],
    loss: str | None = None,
) -> Callable[..., dict[str, Any]]:
    """The model's `train_step` as a function of flat tensors.

    Args:
        model: the model.
        rule: the optimizer in place of the model's, or `None` where the model sees to it.
        operands: of the model.
        targets: specs of the targets; none for a model that is trained on inputs alone.
        weights: specs of the samples' weights.
        loss: which key of what the step returns is the loss; `None` for `loss`.
    """
    with _optimizer(model, rule):
        specs = [*operands.inputs, *targets, *weights]
        if operands.output_names:
            model._symbolic_build(data_batch=_batch(operands, targets, specs))

    def traced(*given: tf.Tensor) -> dict[str, Any]:
        with _optimizer(model, rule):
            return logs_of(model, "train_step", _batch(operands, targets, given), loss=loss)

    return traced


def evaluation_of(
    model: keras.Model, operands: Operands, targets: Sequence[tf.TensorSpec], given: Sequence[tf.Tensor]
) -> dict[str, Any]:
    """What the model's `test_step` makes of flat tensors; nothing where it has no loss to compute.

    Args:
        model: a model whose step has been made.
        operands: of the model.
        targets: specs of the targets.
        given: the tensors.
    """
    own = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in ("test_step", "compute_loss"))
    if not own and model._compile_loss is None:
        return {}
    return logs_of(model, "test_step", _batch(operands, targets, given), needs_loss=False, counting=True)


def _batch(operands: Operands, targets: Sequence[tf.TensorSpec], given: Sequence[Any]) -> Any:
    """Flat tensors as Keras hands them to a step."""
    rest = list(given)
    parts = [operands.packed_inputs([rest.pop(0) for _ in operands.inputs])]
    if targets:
        parts.append(operands.packed_targets([rest.pop(0) for _ in targets]))
    return (*parts, *([operands.packed_weights(rest)] if rest else [])) if targets else parts[0]


def logs_of(
    model: Any, method: str, batch: Any, *, loss: str | None = None, needs_loss: bool = True, counting: bool = False
) -> dict[str, Any]:
    """What a model's `train_step` or `test_step` returns, flat.

    Args:
        model: the model.
        method: which of the two.
        batch: as Keras hands it over.
        loss: which key of the result is the loss, where it is not `loss`.
        needs_loss: whether there must be one.
        counting: whether metrics count on from where they are; else they are those of one batch alone.

    Raises:
        InvalidInputError: it is no dictionary with a loss.
    """
    if not counting:
        model.reset_metrics()
    logs = getattr(model, method)(batch)
    key = loss or "loss"
    if not isinstance(logs, Mapping):
        raise InvalidInputError(f"{method} of model '{model.name}' must return a dictionary with a loss, got {logs!r}")
    results = dict(_flat(logs))
    if key in results:
        return {"loss": tf.identity(results[key])} | {name: each for name, each in results.items() if name != "loss"}
    if needs_loss:
        raise InvalidInputError(
            f"{method} of model '{model.name}' must return a dictionary with a '{key}', got one with "
            f"{some(list(results))}; loss names another of them to from_keras"
        )
    return results


def _flat(logs: Mapping[str, Any]) -> Iterator[tuple[str, tf.Tensor]]:
    for name, value in logs.items():
        # All metrics that compile was given come as one.
        yield from _flat(value) if isinstance(value, Mapping) else [(name, tf.convert_to_tensor(value))]


@contextlib.contextmanager
def _optimizer(model: keras.Model, rule: Any) -> Iterator[None]:
    """Another optimizer in the place of the model's."""
    held = getattr(model, "optimizer", None)
    if rule is not None:
        model.optimizer = rule
    try:
        yield
    finally:
        if rule is not None:
            model.optimizer = held
