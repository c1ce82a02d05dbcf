"""Graphs of tf-keras' functional models, in the form that Keras 3 writes: which layer is called on what.

tf-keras counts the own graph of a model within another as its first call, hands tensors beside the first argument on by
name, and records TensorFlow functions on tensors as layers; what Keras 3 reads of that are plain calls on tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import keras

# Layers whose states stand behind the sequence in one list.
_RECURRENT = {"RNN", "LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"}
# What this package's classes and functions are registered with.
PACKAGE = "lstm_lower"
# The layers that apply functions of TensorFlow.
FUNCTIONS = ("TFOpLambda", "SlicingOpLambda")
# The name in place of a layer's for what is no tensor.
_CONSTANT = "_CONSTANT_VALUE"
# The key of a tensor's number among those that a function is called on.
_PLACE = "lstm_lower place"


@keras.saving.register_keras_serializable(PACKAGE)
class TensorFunction(keras.layers.Layer):  # type: ignore[misc]
    """A function of TensorFlow that a tf-keras model applies to its tensors, computed by tf-keras' own layer."""

    def __init__(self, **config: Any) -> None:
        super().__init__(name=config["name"], autocast=False)
        self._kept = config

    def call(self, *tensors: Any) -> Any:
        """The function's result of these and of what the layer holds."""
        config = {name: value for name, value in self._kept.items() if name != "arguments"}
        kind = "SlicingOpLambda" if config["function"] == "__operators__.getitem" else "TFOpLambda"
        first, named = _placed(self._kept["arguments"], tensors)
        return sys.modules["tf_keras"].layers.deserialize({"class_name": kind, "config": config}).call(first, **named)

    def get_config(self) -> dict[str, Any]:
        """What it was made of."""
        return dict(self._kept)


def recalled(config: dict[str, Any]) -> dict[str, Any]:
    """A functional model's configuration with the calls of its layers, and its ends, as Keras 3 has them.

    Raises:
        ValueError: a function of TensorFlow is called in different ways by one layer.
    """
    own = {layer["name"]: int("layers" in layer["config"]) for layer in config["layers"]}
    # Of results Keras 3 knows how tf-keras counts, but not of sequential models'.
    counted = {layer["name"]: int(layer["class_name"] == "Sequential") for layer in config["layers"]}
    layers = [
        _function(layer, own) if layer["class_name"] == TensorFunction.__name__ else _layer(layer, own)
        for layer in config["layers"]
    ]
    ends = {}
    for side in ("input_layers", "output_layers"):
        listed = _each(config[side], lambda name, index, at: [name, index - counted[name], at])
        ends[side] = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
    return {**config, "layers": layers, **ends}


def _each(entry: Any, change: Callable[[str, int, Any], Any]) -> Any:
    """A structure with each reference to a tensor, a name and two numbers or more, changed."""
    if isinstance(entry, Mapping):
        return {key: _each(value, change) for key, value in entry.items()}
    if isinstance(entry, (list, tuple)):
        refers = len(entry) in (3, 4) and isinstance(entry[0], str) and isinstance(entry[1], int)
        return change(*entry[:3]) if refers else [_each(value, change) for value in entry]
    return entry


def _placed(entry: Any, tensors: tuple[Any, ...]) -> Any:
    if isinstance(entry, Mapping):
        return tensors[entry[_PLACE]] if _PLACE in entry else {key: _placed(v, tensors) for key, v in entry.items()}
    return [_placed(value, tensors) for value in entry] if isinstance(entry, (list, tuple)) else entry


def _tensor(name: str, index: int, at: Any, own: Mapping[str, int]) -> dict[str, Any]:
    """Keras 3's reference to a tensor, of which the shape and dtype are those of what it stands for."""
    history = [name, index - own[name], at]
    return {"class_name": "__keras_tensor__", "config": {"shape": [], "dtype": "float32", "keras_history": history}}


def _layer(layer: Mapping[str, Any], own: Mapping[str, int]) -> dict[str, Any]:
    def tensor(name: str, index: int, at: Any) -> Any:
        return at if name == _CONSTANT else _tensor(name, index, at, own)

    def call(node: Any) -> dict[str, Any]:
        first, named = _single(_each(node, tensor)), _each(_named(node), tensor)
        states = isinstance(first, list) and layer["class_name"] in _RECURRENT
        if states and not layer["config"].get("num_constants"):
            first, named = first[0], {**named, "initial_state": first[1:]}
        # Keras 3 need not know the names of what is not there.
        return {"args": [first], "kwargs": {name: value for name, value in named.items() if value is not None}}

    return {**layer, "inbound_nodes": [call(node) for node in layer["inbound_nodes"]]}


def _function(layer: Mapping[str, Any], own: Mapping[str, int]) -> dict[str, Any]:
    calls, ways = [], []
    for node in layer["inbound_nodes"]:
        tensors: list[Any] = []

        def tensor(name: str, index: int, at: Any, tensors: list[Any] = tensors) -> Any:
            if name == _CONSTANT:
                return at
            tensors.append(_tensor(name, index, at, own))
            return {_PLACE: len(tensors) - 1}

        ways.append([_single(_each(node, tensor)), _each(_named(node), tensor)])
        calls.append({"args": tensors, "kwargs": {}})
    if any(way != ways[0] for way in ways):
        raise ValueError(f"layer '{layer['name']}' is called in several ways")
    return {**layer, "config": {**layer["config"], "arguments": ways[0]}, "inbound_nodes": calls}


def _single(first: Any) -> Any:
    return first[0] if isinstance(first, list) and len(first) == 1 else first


def _named(node: Any) -> dict[str, Any]:
    """The arguments with names, which stand at each of the first argument's tensors."""
    if isinstance(node, (list, tuple)) and len(node) == 4 and isinstance(node[0], str):
        return dict(node[3])
    parts = node.values() if isinstance(node, Mapping) else node
    return next((_named(part) for part in parts if isinstance(part, (list, tuple, Mapping))), {})
