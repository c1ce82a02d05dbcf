"""Layers of words, their tables and their hashes, which no runtime has: they are cut off a model."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras.src.models.functional import Functional

from lstm_lower.errors import LstmLowerWarning, UnsupportedOpError, some, warn
from lstm_lower.keras import own_steps
from lstm_lower.keras.operands import Operands

_LOOKUPS = ("StringLookup", "IntegerLookup", "TextVectorization", "Hashing", "HashedCrossing")
# What runs the graph of a model's layers and nothing else.
_OF_KERAS = (Functional.call, keras.Sequential.call)


class CutLookupWarning(LstmLowerWarning):
    """Layers that a step does without, since it takes what they return."""


@dataclasses.dataclass(frozen=True)
class CutModel:
    """A model without its lookups.

    Attributes:
        model: what is behind them, with the model's own layers and variables; the model itself if it has none.
        layers: the lookup in the place of each of the first inputs of `model`.
    """

    model: Any
    layers: Sequence[Any] = ()

    def tell(self, operands: Operands) -> None:
        """Warns of what is cut off, and says what stands for it.

        Args:
            operands: of `model`.
        """
        if not self.layers:
            return
        pairs = zip(self.layers, operands.inputs, strict=False)
        told = [f"'{layer.name}' ({type(layer).__name__}) as '{spec.name}'" for layer, spec in pairs]
        warn(
            "the step begins behind layers whose tables or hashes no runtime has, and takes what they return: "
            f"{some(told)}; apply them to the data",
            CutLookupWarning,
        )


def cut(model: keras.Model) -> CutModel:
    """Cuts lookups off a Keras 3 model: what each returns becomes an input, named after the layer.

    Args:
        model: a built model, which stays as it is.

    Raises:
        UnsupportedOpError: there is one that cannot be cut off; it is named.
    """
    lookup = _first(model)
    if lookup is None:
        return CutModel(model)
    functional = getattr(model, "_functional", None) or model
    outputs = getattr(functional, "_outputs_struct", None)
    # What a class of one's own does with lookups is not in the graph of its layers.
    if outputs is None or own_steps.is_own(model) or type(model).call not in _OF_KERAS:
        raise _refusal(lookup)
    looked, rest = _heads(functional, outputs)
    returned = {id(tensor) for tensor in keras.tree.flatten(outputs)}
    if not looked or any(_is_ragged(tensor) or id(tensor) in returned for tensor in looked):
        raise _refusal(lookup)
    with _kept(functional):
        behind = keras.Model([*looked, *rest], outputs, name=model.name)
    # Lookups within other layers are left.
    check(behind)
    layers = [tensor._keras_history.operation for tensor in looked]
    # A lookup of what weights have made would leave these out.
    if {id(weight) for weight in behind.weights} != {id(weight) for weight in model.weights}:
        raise _refusal(lookup)
    # Keras calls them by numbers that differ from model to model.
    for tensor, name in zip(behind.inputs, _names(layers, rest), strict=False):
        tensor.name = name
    return CutModel(behind, layers)


def check(model: Any) -> None:
    """Refuses a model with lookups.

    Raises:
        UnsupportedOpError: it has one; it is named.
    """
    lookup = _first(model)
    if lookup is not None:
        raise _refusal(lookup)


def _first(model: Any) -> Any:
    """A model's first lookup, however deep; `None` if it has none."""
    return next((layer for layer in model._flatten_layers() if _is_lookup(layer)), None)


def _is_lookup(layer: Any) -> bool:
    return type(layer).__name__ in _LOOKUPS


def _is_ragged(looked: Any) -> bool:
    """Whether a lookup returns rows of several lengths, which its symbolic result does not tell."""
    layer, number, _ = looked._keras_history
    return getattr(layer, "_ragged", False) or any(each.ragged for each in layer._inbound_nodes[number].input_tensors)


def _refusal(layer: Any) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"layer '{layer.name}' ({type(layer).__name__}) requires tables or hashes that no runtime has: apply it to the "
        f"data, and export what is behind it; of a functional model that is keras.Model(model.get_layer('{layer.name}')"
        ".output, model.outputs), which shares the weights"
    )


def _heads(functional: Any, outputs: Any) -> tuple[list[Any], list[Any]]:
    """What lookups return, in the order in which it is read, and the inputs that are read without them."""
    inputs = keras.tree.flatten(functional._inputs_struct)
    own = {id(tensor) for tensor in inputs}
    looked, reached = [], set()
    pending = keras.tree.flatten(outputs)
    while pending:
        tensor = pending.pop(0)
        if id(tensor) in reached:
            continue
        reached.add(id(tensor))
        operation, number, _ = tensor._keras_history
        if _is_lookup(operation):
            looked.append(tensor)
        elif id(tensor) not in own:
            pending[:0] = operation._inbound_nodes[number].input_tensors
    return looked, [tensor for tensor in inputs if id(tensor) in reached]


@contextlib.contextmanager
def _kept(functional: Any) -> Iterator[None]:
    """A model's graph is as it was after another one is made of its tensors.

    Keras (3.15) writes the other's calls into the layers, and into the inputs that both have; a model whose inputs name
    such a call cannot be saved.
    """
    calls = [calls for each in functional.operations for calls in (each._inbound_nodes, each._outbound_nodes)]
    counts = [len(each) for each in calls]
    inputs = keras.tree.flatten(functional._inputs_struct)
    histories = [tensor._keras_history for tensor in inputs]
    try:
        yield
    finally:
        for each, count in zip(calls, counts, strict=True):
            del each[count:]
        for tensor, history in zip(inputs, histories, strict=True):
            tensor._keras_history = history


def _names(layers: Sequence[Any], others: Sequence[Any]) -> list[str]:
    """Names of layers, numbered where one is taken: by the layer's own first call, or another input."""
    taken = [tensor.name for tensor in others]
    for layer in layers:
        candidates = itertools.chain([layer.name], (f"{layer.name}_{number}" for number in itertools.count(1)))
        taken.append(next(name for name in candidates if name not in taken))
    return taken[len(others) :]
