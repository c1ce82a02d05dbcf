"""How Keras' recurrent layers are traced, on any machine, so that no while loop is left.

Without a GPU Keras traces its layers as while loops over TensorLists, whose gradient is another such loop. Instead of
taking those apart, LSTM and GRU layers are traced on the path that Keras has for cuDNN: one op forward and one
backward, which this project lowers to loops of its own, with the weight gradients outside of them. Layers that cuDNN
cannot express (SimpleRNN, other activations, masks, recurrent dropout, `reset_after=False`) are unrolled, which is
exact and needs a known number of steps. Masks are unrolled, too: cuDNN knows right padding only, and its outputs
behind the end of a sequence are zeros where Keras repeats the last one.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras.src import backend

from lstm_lower.errors import UnsupportedOpError

# By name, since the package has a function of the module's name.
keras_rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")


@contextlib.contextmanager
def without_loops() -> Iterator[None]:
    """Recurrent layers traced within become cuDNN ops or are unrolled.

    Raises:
        UnsupportedOpError: while tracing, a layer can be neither; the error has its name.
    """
    layers: list[str] = []
    inner_loop, plain_rnn = keras.layers.RNN.inner_loop, keras_rnn.rnn
    build = dict(tf.sysconfig.get_build_info())

    def named(layer: Any, *args: Any, **kwargs: Any) -> Any:
        layers.append(layer.name)
        try:
            return inner_loop(layer, *args, **kwargs)
        finally:
            layers.pop()

    def unrolled(step: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        time = 0 if kwargs.get("time_major") else 1
        if any(tensor.shape[time] is None for tensor in tf.nest.flatten(inputs)):
            raise UnsupportedOpError(
                f"layer '{layers[-1] if layers else '?'}' requires a known number of steps, since cuDNN cannot "
                "express it (mask, activation, recurrent dropout or kind of cell), got an open one"
            )
        return plain_rnn(step, inputs, *args, **{**kwargs, "unroll": True})

    with (
        mock.patch.object(keras.layers.RNN, "inner_loop", named),
        mock.patch.object(backend, "rnn", unrolled),
        mock.patch.object(backend, "lstm", _unmasked(keras_rnn.lstm)),
        mock.patch.object(backend, "gru", _unmasked(keras_rnn.gru)),
        # Whether a layer's arguments suit cuDNN is asked as before; only the GPU itself is not.
        mock.patch.object(keras_rnn, "_is_gpu_available", return_value=True),
        # Keras puts GRU gates into cuDNN's order only where TensorFlow is built with CUDA.
        mock.patch.object(
            tf.sysconfig, "get_build_info", return_value={**build, "is_cuda_build": True, "is_rocm_build": False}
        ),
    ):
        yield


def _unmasked(layer: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        mask = kwargs.get("mask", next((arg for arg in args if getattr(arg, "dtype", None) == tf.bool), None))
        if mask is not None:
            # Keras' own sign that its general path has to be taken.
            raise NotImplementedError
        return layer(*args, **kwargs)

    return call
