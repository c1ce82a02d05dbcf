"""Arguments of `from_keras`: what is wrong with them, and what Keras says of them, in a line."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal

import keras

from lstm_lower.errors import InvalidInputError, warn

What = Literal["train", "gradients", "input_gradient"]

_CALLING = "Exception encountered when calling"


@dataclasses.dataclass(frozen=True)
class Given:
    """The arguments of `from_keras` that say what is made of a model, as it describes them."""

    loss: Any
    optimizer: Any
    input_spec: Any
    what: What
    target_spec: Any
    loss_weights: Any
    sample_weight: Any
    class_weight: Mapping[int, float] | None
    metrics: Any
    training: bool


def is_of(thing: Any, package: str) -> bool:
    """Whether a class, function or object, or a class above its own, is one of a package's."""
    kinds = (thing, *getattr(thing, "__mro__", type(thing).__mro__))
    return any(str(getattr(kind, "__module__", "")).split(".")[0] == package for kind in kinds)


def first_line(error: BaseException) -> str:
    """The first line of Keras' message that tells something, without TensorFlow's advice on graphs."""
    lines = _lines(error)
    telling = [line for line in lines if not line.startswith(_CALLING)]
    line = (telling or lines or [type(error).__name__])[0]
    return line.partition(" You can attempt the following resolutions")[0].rstrip(".")


def _lines(error: BaseException) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return [line.strip() for line in plain.splitlines() if line.strip()]


def told(error: Exception) -> str:
    """What Keras raised unexpectedly on a model, for `explained`."""
    calling = next((line for line in _lines(error) if line.startswith(_CALLING)), "")
    where = calling.removeprefix(_CALLING).strip(" .")
    return (
        f"a model that Keras can trace, got {type(error).__name__}{f' in {where}' if where else ''}: "
        f"{first_line(error)}; if a layer needs a size that the model leaves open, give it in keras.Input; "
        "otherwise model(x) on a batch of data shows where"
    )


def check_backend() -> None:
    """Refuses models of Keras' other backends, whose layers TensorFlow cannot trace.

    Raises:
        InvalidInputError: Keras runs on one.
    """
    if (backend := keras.config.backend()) != "tensorflow":
        raise InvalidInputError(
            f"from_keras requires Keras on the TensorFlow backend, got {backend!r}; save the model "
            "(model.save('model.keras')) and load it (keras.saving.load_model('model.keras', compile=False)) in a "
            "process with the environment variable KERAS_BACKEND=tensorflow"
        )


def tell_unheeded(model: Any) -> None:
    """Warns of what a model was compiled with and has no effect on a step."""
    steps = getattr(model, "steps_per_execution", getattr(model, "_steps_per_execution", None))
    # A variable in tf-keras, a word where Keras finds out the number.
    if steps is not None and (isinstance(steps, str) or int(steps) > 1):
        told = steps if isinstance(steps, str) else int(steps)
        warn(
            f"steps_per_execution={told}, which model '{model.name}' was compiled with, is ignored: each batch is a "
            "step, with the same numbers"
        )


def check(loss_weights: Any, class_weight: Any, **modes: Any) -> None:
    """Refuses weights that are not numbers, and modes that are neither on nor off.

    Raises:
        InvalidInputError: one is.
    """
    for name, mode in modes.items():
        if not isinstance(mode, bool):
            raise InvalidInputError(f"{name} requires True or False, got {mode!r}")
    wrong = [value for value in keras.tree.flatten(loss_weights) if value is not None and not _is_number(value)]
    if wrong:
        raise InvalidInputError(f"loss_weights requires finite numbers, got {wrong[0]!r}")
    if class_weight is None:
        return
    if not isinstance(class_weight, Mapping):
        raise InvalidInputError(f"class_weight requires a mapping of classes to weights, got {class_weight!r}")
    for number, weight in class_weight.items():
        if not isinstance(number, Integral) or number < 0 or not _is_number(weight):
            raise InvalidInputError(
                f"class_weight requires class numbers from 0 on and finite weights, got {number!r}: {weight!r}"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
