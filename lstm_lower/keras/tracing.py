"""How Keras' layers are traced on any machine: recurrent ones as loops, which the loop optimiser takes apart."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import image as keras_image
from keras.src.backend import numpy as keras_numpy
from keras.src.ops import image as keras_image_ops

from lstm_lower.replacement import replaced

# What chooses another form for reasons of speed that hold elsewhere: a cuDNN op where there is a GPU, one step after
# the other. `lower` chooses anew, for every layer alike.
_CHOICES = {"use_cudnn": False, "unroll": False}


@contextlib.contextmanager
def as_loops(model: keras.Model) -> Iterator[None]:
    """Recurrent layers of a model, however deep, become loops when they are traced within."""
    with contextlib.ExitStack() as held:
        for layer in model._flatten_layers():
            for name, choice in _CHOICES.items():
                if hasattr(layer, name):
                    held.callback(setattr, layer, name, getattr(layer, name))
                    setattr(layer, name, choice)
            if isinstance(layer, keras.layers.TimeDistributed):
                held.callback(delattr, layer, "call")
                layer.call = functools.partial(_at_each_step, layer, layer.call)
        yield


@contextlib.contextmanager
def in_our_form() -> Iterator[None]:
    """Operations of Keras that cannot be traced, or have no counterpart, have another form within."""
    with contextlib.ExitStack() as held:
        held.enter_context(replaced(keras_numpy, "argmax", _argmax))
        for module in (keras_image_ops, keras.ops.image):
            held.enter_context(replaced(module, "resize", functools.partial(_resize, module.resize)))
        yield


def _argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> tf.Tensor:
    """Keras' own looks at the bits of each number, to tell 0 from -0."""
    x = tf.convert_to_tensor(x)
    if axis is None:
        return tf.argmax(tf.reshape(x, [-1]), output_type=tf.int32)
    found = tf.argmax(x, axis, output_type=tf.int32)
    return tf.expand_dims(found, axis) if keepdims else found


def _resize(own: Any, images: Any, size: Any, *args: Any, **options: Any) -> Any:
    """Keras' own compares the size with 0, which cannot be traced where the picture's size is open."""
    if any(tf.is_tensor(part) for part in size):
        return keras_image.resize(images, tuple(size), *args, **options)
    return own(images, size, *args, **options)


def _at_each_step(layer: Any, call: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """The layer within for each step; Keras (3.15) makes as many steps as there are rows where the number is open."""
    if inputs.shape[1] is not None:
        return call(inputs, training=training, mask=mask)
    inner = layer.layer
    given = {"inputs": inputs} | ({"mask": mask} if inner._call_has_mask_arg and mask is not None else {})
    options = {"training": training} if inner._call_has_training_arg else {}

    def turned(x: Any) -> Any:
        return tf.transpose(x, [1, 0, *range(2, len(x.shape))])

    def step(given: dict[str, Any]) -> Any:
        return inner.call(given["inputs"], **{name: x for name, x in given.items() if name != "inputs"}, **options)

    parts = {name: keras.KerasTensor((x.shape[0], *x.shape[2:]), x.dtype.name) for name, x in given.items()}
    made = keras.src.backend.compute_output_spec(step, parts)
    spec = tf.TensorSpec(made.shape, made.dtype)
    return turned(tf.map_fn(step, {name: turned(x) for name, x in given.items()}, fn_output_signature=spec))
