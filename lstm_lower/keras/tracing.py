"""How Keras' recurrent layers are traced on any machine: as loops, which the loop optimiser takes apart."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

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
