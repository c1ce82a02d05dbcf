"""Data as `fit` takes them, as specifications of a step's inputs, targets and weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lstm_lower.errors import InvalidInputError
from lstm_lower.keras.arguments import Given
from lstm_lower.runtime.training.data.opening import first_batches

# As many as Keras looks at, to find out which sizes stay.
_LOOKED_AT = 2


def specified(given: Given, data: Any, *, declared: bool) -> Given:
    """Arguments with the specifications that they lack, as data have them.

    Args:
        given: the arguments; what they specify themselves stays.
        data: see `from_keras`.
        declared: whether the model says what its inputs are, so that only a step of its own may take others.

    Raises:
        InvalidInputError: it is no data, or an array of them has no fixed number of axes.
    """
    if data is None:
        return given
    inputs, targets, weights = _of_batch(_specs(data))
    return dataclasses.replace(
        given,
        input_spec=inputs if given.input_spec is None and not declared else given.input_spec,
        target_spec=targets if given.target_spec is None else given.target_spec,
        sample_weight=given.sample_weight if given.sample_weight is not False or weights is None else weights,
    )


def _specs(data: Any) -> Any:
    """A batch of data, with `tf.TensorSpec` in the place of arrays."""
    if isinstance(data, tf.data.Dataset):
        return _mapped(_opened, data.element_spec)
    if isinstance(data, (tuple, Mapping)) or hasattr(data, "shape"):
        return _mapped(_opened, data)
    if not isinstance(data, (Iterable, Callable)) and not hasattr(data, "__getitem__"):  # type: ignore[arg-type]
        raise InvalidInputError(f"data requires what fit takes, got {type(data).__name__}")
    batches = first_batches(data, _LOOKED_AT)
    if not batches:
        raise InvalidInputError("data requires at least one batch, got none")
    specs = _mapped(_opened, batches[0])
    for batch in batches[1:]:
        specs = keras.tree.map_structure(_both, specs, _mapped(_opened, batch))
    return specs


def _mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """A function of each array or specification, without the tuples and lists of classes of their own."""
    if isinstance(structure, Mapping):
        return {key: _mapped(function, value) for key, value in structure.items()}
    if isinstance(structure, (tuple, list)):
        return tuple(_mapped(function, value) for value in structure)
    return None if structure is None else function(structure)


def _opened(array: Any) -> tf.TensorSpec:
    """The specification of an array, or one itself, for any number of rows."""
    if not (isinstance(array, tf.TensorSpec) or (hasattr(array, "shape") and hasattr(array, "dtype"))):
        if not isinstance(array, (bool, int, float)):
            raise InvalidInputError(f"data requires dense arrays, got {type(array).__name__}")
        array = np.asarray(array)
    shape = tf.TensorShape(array.shape)
    if not shape.rank:
        raise InvalidInputError(f"data requires batches with an axis of rows, got an array of shape {shape}")
    dtype = tf.as_dtype(keras.backend.standardize_dtype(array.dtype))
    # Keras computes in its own precision.
    if dtype.is_floating:
        dtype = tf.as_dtype(keras.config.floatx())
    return tf.TensorSpec([None, *shape[1:]], dtype)


def _both(one: tf.TensorSpec, other: tf.TensorSpec) -> tf.TensorSpec:
    """What fits two batches."""
    if one.shape.rank != other.shape.rank or one.dtype != other.dtype:
        raise InvalidInputError(f"data requires batches of one kind, got {one} and {other}")
    sizes = zip(one.shape, other.shape, strict=True)
    return tf.TensorSpec([size if size == different else None for size, different in sizes], one.dtype)


def _of_batch(batch: Any) -> tuple[Any, Any, Any]:
    """Inputs, targets and weights, as Keras takes a batch apart."""
    if not isinstance(batch, tuple):
        return batch, None, None
    if not 1 <= len(batch) <= 3:
        raise InvalidInputError(f"data requires batches of inputs, targets and weights, got {len(batch)} parts")
    return (*batch, None, None)[:3]
