"""Models of the package tf-keras (Keras 2), rebuilt as Keras 3 models with the same weights."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras.src.legacy.saving import saving_utils

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.keras.legacy_graphs import FUNCTIONS, PACKAGE, TensorFunction, recalled

_PACKAGE = "tf_keras"
_SLOPED = "hard_sigmoid"
_HINTS = ("input_length", "rng_type")


class Step(NamedTuple):
    """The arguments of `from_keras` that speak of Keras objects."""

    model: Any
    loss: Any
    optimizer: Any
    loss_weights: Any
    metrics: Any


def translated(step: Step) -> Step:
    """Puts Keras 3's counterparts in place of tf-keras' models, losses, optimizers and metrics.

    An optimizer starts afresh, with its settings but without its slots.

    Raises:
        InvalidInputError: the model is of neither package, or the loss or metric has no counterpart.
        UnsupportedOpError: the model cannot be rebuilt, or computes something else when it is.
    """
    model = step.model
    if isinstance(model, keras.Model):
        return step
    if not _is_legacy(model):
        raise InvalidInputError(f"model requires a model of Keras 3 or tf-keras, got {type(model).__name__}")
    if not model.built:
        raise InvalidInputError(f"model '{model.name}' must be built, got one without weights")
    loss, optimizer = step.loss, step.optimizer
    loss_weights, metrics = step.loss_weights, step.metrics
    compiled = getattr(model, "compiled_loss", None)
    if loss is None and compiled is not None:
        loss = model.loss
        loss_weights = compiled._user_loss_weights if loss_weights is None else loss_weights
    if metrics is None and getattr(model, "compiled_metrics", None) is not None:
        metrics = model.compiled_metrics._user_metrics
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    return Step(
        _model(model),
        _each(loss, keras.losses),
        _optimizer(optimizer) if _is_legacy(optimizer) else optimizer,
        loss_weights,
        _each(metrics, keras.metrics),
    )


def _is_legacy(thing: Any) -> bool:
    kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    return any(kind.__module__.startswith(_PACKAGE) for kind in kinds)


def _model(model: Any) -> Any:
    try:
        config = _config({"class_name": type(model).__name__, "config": model.get_config()})
        rebuilt = saving_utils.model_from_config(config)
        rebuilt.set_weights(model.get_weights())
    except (TypeError, ValueError, AttributeError, KeyError, NotImplementedError) as error:
        raise UnsupportedOpError(
            f"model '{model.name}' must be one that Keras 3 can rebuild (functional or sequential, of layers "
            f"that it has), got: {str(error).strip().splitlines()[-1].removeprefix('Exception encountered: ')}"
        ) from error
    for layer in rebuilt._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    inputs = [_sample(tensor) for tensor in rebuilt.inputs]
    given = inputs[0] if len(inputs) == 1 else inputs
    # Layers that augment images do so in tf-keras unless they are told not to.
    results = [keras.tree.flatten(each(given, training=False)) for each in (model, rebuilt)]
    for old, new in zip(*results, strict=True):
        if not np.allclose(np.asarray(old), np.asarray(new), rtol=1e-3, atol=1e-4):
            raise UnsupportedOpError(f"model '{model.name}' must compute the same in Keras 3, got another result")
    return rebuilt


def _sample(tensor: Any) -> Any:
    """Small numbers, and zeros at the end of each sequence, in an input's shape."""
    shape = [2 if size is None else size for size in tensor.shape]
    numbers = np.sin(np.arange(np.prod(shape))).reshape(shape)
    if len(shape) > 1 and shape[1] > 1:
        numbers[0, -1] = 0
    return np.asarray(numbers if "float" in tensor.dtype else numbers > 0).astype(tensor.dtype)


def _config(entry: Any) -> Any:
    """A configuration without what Keras 3 does not know."""
    if isinstance(entry, list):
        return [_config(each) for each in entry]
    if not isinstance(entry, Mapping):
        return entry
    made = {key: _config(value) for key, value in entry.items() if key not in ("build_config", "time_major")}
    if "input_layers" in made:
        made = recalled(made)
    if made.get("class_name") == "Functional":
        made |= {"class_name": "Model", "module": "keras", "registered_name": None}
    if made.get("class_name") in FUNCTIONS:
        own = TensorFunction.__name__
        made |= {"module": None, "class_name": own, "registered_name": f"{PACKAGE}>{own}"}
    if _draws_otherwise(made):
        raise ValueError(f"layer '{made['config']['name']}', whose draws are others in Keras 3: make the model there")
    config, kind = made.get("config"), getattr(keras.layers, str(made.get("class_name")), None)
    if isinstance(config, dict) and kind not in (None, keras.layers.InputLayer):
        before = _settings(getattr(sys.modules[_PACKAGE].layers, kind.__name__, object))
        for name in config.keys() - _settings(kind).keys():
            # What a layer does without it, too, is only a record or a hint, or chooses values that others replace.
            hint = name in _HINTS or name.endswith("_initializer")
            if hint or name not in before or config[name] in (before[name], None):
                del config[name]
    if isinstance(config, dict):
        sloped = {
            name: _hard_sigmoid for name, value in config.items() if name.endswith("activation") and value == _SLOPED
        }
        config |= sloped
    if made.get("class_name") == "BatchNormalization" and isinstance(made["config"]["axis"], list):
        (made["config"]["axis"],) = made["config"]["axis"]
    return made


def _draws_otherwise(layer: Mapping[str, Any]) -> bool:
    """Whether Keras 3 draws for each image what tf-keras draws for all, the other way round, or both flips at once."""
    kind = layer.get("class_name")
    return kind in ("RandomContrast", "RandomCrop") or (
        kind == "RandomFlip" and layer["config"]["mode"] == "horizontal_and_vertical"
    )


@keras.saving.register_keras_serializable(PACKAGE)  # type: ignore[untyped-decorator]
def _hard_sigmoid(x: Any) -> Any:
    """Tf-keras' function, which is steeper than Keras 3's."""
    return keras.ops.clip(x * 0.2 + 0.5, 0, 1)


def _hands_on(**settings: Any) -> None:
    """What a class without a constructor has of one: its base's takes all."""


def _settings(kind: type) -> dict[str, Any]:
    """The arguments that a layer can be made with, and their defaults."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        own = inspect.signature(base.__dict__.get("__init__", _hands_on)).parameters.values()
        found = {each.name: each.default for each in own} | found
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in own):
            break
    return found


def _optimizer(optimizer: Any) -> Any:
    kind = getattr(keras.optimizers, type(optimizer).__name__, None)
    if kind is None:
        raise InvalidInputError(f"optimizer requires one that Keras 3 has, got tf-keras' {type(optimizer).__name__}")
    config = optimizer.get_config()
    known = {*inspect.signature(kind).parameters, "learning_rate"}
    return kind.from_config({key: _setting(value) for key, value in config.items() if key in known})


def _setting(value: Any) -> Any:
    """A number as Python's, a schedule without the names that it lacks."""
    if isinstance(value, Mapping):
        return {key: _setting(each) for key, each in value.items() if not (key == "name" and each is None)}
    return value.item() if isinstance(value, np.generic) else value


def _each(given: Any, module: Any) -> Any:
    """Counterparts in a list or dictionary, at any depth."""
    if isinstance(given, Mapping):
        return {key: _each(value, module) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return [_each(value, module) for value in given]
    if callable(given) and str(getattr(given, "__module__", "")).startswith(_PACKAGE):
        return _counterpart(given, module)
    return given


def _counterpart(given: Any, module: Any) -> Any:
    """A loss or metric of the same name and settings."""
    name = getattr(given, "__name__", type(given).__name__)
    found = getattr(module, name, None)
    if found is None:
        raise InvalidInputError(f"'{name}' requires a counterpart in {module.__name__}, got none")
    if not isinstance(found, type):
        return found
    known = inspect.signature(found).parameters
    config = {key: value for key, value in given.get_config().items() if key in known and value != "auto"}
    return found(**config)
