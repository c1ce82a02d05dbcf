"""Keras' optimizers in an exported step."""

from __future__ import annotations

from typing import Any

import keras

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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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


def counterpart(model: keras.Model, optimizer: Any, rule: Any) -> Any:
    """The optimizer that an exported step is compared with: the one that it was copied from, if it has trained.

    Args:
        model: the model.
        optimizer: as for `resolve`.
        rule: what `resolve` made.
    """
    found = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if not isinstance(found, keras.optimizers.Optimizer) or type(found) is not type(rule):
        return resolve(model, optimizer)
    if found.built and [tuple(each.shape) for each in found.variables] == [
        tuple(each.shape) for each in rule.variables
    ]:
        return found
    return resolve(model, optimizer)


def tells_occurrences_apart(rule: Any) -> bool:
    """Whether an optimizer does anything else with the gradients of several occurrences of a row than with their sum.

    Keras does not add up what belongs to one row of an Embedding. An optimizer that squares gradients, or clips them,
    does so occurrence by occurrence; one that only adds them, or adds them up over several steps first, shows no
    difference.
    """
    inner = getattr(rule, "inner_optimizer", rule)
    clips = inner.clipnorm or inner.global_clipnorm or inner.clipvalue
    only_adds = isinstance(inner, (keras.optimizers.SGD, keras.optimizers.Lion)) and not clips
    # Keras cannot divide such gradients by a `loss_scale_factor` at all.
    return not (only_adds or inner.gradient_accumulation_steps or rule.loss_scale_factor is not None)
