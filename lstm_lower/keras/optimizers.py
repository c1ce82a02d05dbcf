"""Keras' optimizers in an exported step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core

from lstm_lower.errors import InvalidInputError

_EXCLUDED = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")


def resolve(model: keras.Model, optimizer: Any) -> Any:
    """An optimizer of one's own for the step.

    Slots of an optimizer that has trained the model already are taken over by value. As in `model.compile`, a model
    with the policy `mixed_float16` gets its loss scaled.

    Args:
        model: a built model.
        optimizer: name or Keras optimizer; `None` takes the compiled model's.

    Raises:
        InvalidInputError: there is none, it is unknown, or its learning rate is a function.
    """
    found = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if found is None:
        raise InvalidInputError("optimizer requires a name or a Keras optimizer, got none, and the model has none")
    try:
        found = keras.optimizers.get(found)
    except ValueError as error:
        raise InvalidInputError(f"optimizer requires a name or a Keras optimizer, got {optimizer!r}") from error
    inner = getattr(found, "inner_optimizer", found)
    rate = inner._learning_rate
    if callable(rate) and not isinstance(rate, (keras.optimizers.schedules.LearningRateSchedule, keras.Variable)):
        raise InvalidInputError(
            f"optimizer '{found.name}' requires a learning rate that is a number or a LearningRateSchedule, got a "
            "function, whose value the export would fix; set Trainer.learning_rate from step to step instead"
        )
    rule = type(found).from_config(found.get_config())
    copied = getattr(rule, "inner_optimizer", rule)
    for name in _EXCLUDED:
        if hasattr(inner, name):
            setattr(copied, name, getattr(inner, name))
    variables = list(model.trainable_variables)
    if model.dtype_policy.name == "mixed_float16" and not hasattr(rule, "inner_optimizer"):
        rule = keras.optimizers.LossScaleOptimizer(rule)
        found = None if found is inner else found
    rule.build(variables)
    if found is not None and found.built and len(found.variables) == len(rule.variables):
        pairs = list(zip(rule.variables, found.variables, strict=True))
        if all(tuple(new.shape) == tuple(old.shape) for new, old in pairs):
            for new, old in pairs:
                new.assign(old.value)
    return rule


def apply(rule: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """The optimizer's update, without branches.

    Optimizers branch on tensors when they accumulate gradients, scale losses or overwrite weights by their averages.
    """
    with _both_branches([*variables, *rule.variables]):
        rule.apply(gradients, variables)


@contextlib.contextmanager
def _both_branches(variables: Sequence[Any]) -> Iterator[None]:
    """Conditionals traced within run both branches, each from the same state, and choose between what they assign."""
    plain = core.cond

    def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        if not tf.is_tensor(pred):
            return plain(pred, true_fn, false_fn)
        held = {_handle(variable.value): variable.value for variable in variables}
        before = {handle: tf.identity(variable) for handle, variable in held.items()}
        when, otherwise = (_branch(function, held, before) for function in (true_fn, false_fn))
        for handle in {**when.assigned, **otherwise.assigned}:
            value = when.assigned.get(handle, before[handle])
            held[handle].assign(tf.where(pred, value, otherwise.assigned.get(handle, before[handle])))
        return tf.nest.map_structure(
            lambda a, b: tf.where(pred, a, b) if tf.is_tensor(a) else a, when.result, otherwise.result
        )

    with mock.patch.object(core, "cond", cond):
        yield


class _Branch(NamedTuple):
    """What a branch returns, and what it assigns by handle."""

    result: Any
    assigned: dict[str, Any]


def _branch(function: Callable[[], Any], held: Mapping[str, Any], before: Mapping[str, Any]) -> _Branch:
    """Traces a branch and puts the variables back."""
    made = len(_operations())
    result = function()
    written = {
        operation.inputs[0].name
        for operation in _operations()[made:]
        if operation.inputs and operation.inputs[0].dtype == tf.resource and operation.type != "ReadVariableOp"
    }
    assigned = {handle: tf.identity(variable) for handle, variable in held.items() if handle in written}
    for handle in assigned:
        held[handle].assign(before[handle])
    return _Branch(result, assigned)


def _handle(variable: Any) -> str:
    """The name under which the function that is traced knows the variable's handle."""
    name: str = tf.compat.v1.get_default_graph().capture(variable.handle).name
    return name


def _operations() -> list[Any]:
    operations: list[Any] = tf.compat.v1.get_default_graph().get_operations()
    return operations
