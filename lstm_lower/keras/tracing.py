"""How Keras' recurrent layers are traced, on any machine, so that no while loop is left.

Without a GPU Keras traces its layers as while loops over TensorLists, whose gradient is another such loop. Instead of
taking those apart, LSTM and GRU layers are traced on the path that Keras has for cuDNN: one op forward and one
backward, which this project lowers to loops of its own, with the weight gradients outside of them; masks as
`lstm_lower.keras.masks` describes. Layers that cuDNN cannot express (SimpleRNN, cells of one's own, other activations,
recurrent dropout, `reset_after=False`) are unrolled, which is exact and needs a known number of steps.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras.src import backend

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.keras.masks import keras_rnn, masked

# A step is 27 nodes of a SimpleRNN, 145 of an LSTM with a mask; 100 of the latter take minutes to export and lower.
_MANY_STEPS = 50


@contextlib.contextmanager
def without_loops() -> Iterator[None]:
    """Recurrent layers traced within become cuDNN ops or are unrolled.

    Raises:
        UnsupportedOpError: while tracing, a layer can be neither; the error has its name.
    """
    layers: list[Any] = []
    plain_rnn = keras_rnn.rnn
    build = dict(tf.sysconfig.get_build_info())

    def watched(inner_loop: Any) -> Any:
        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            layers.append(layer)
            try:
                # The layer's choice of kernel is about speed on a GPU.
                with mock.patch.object(layer, "use_cudnn", "auto") if hasattr(layer, "use_cudnn") else nothing:
                    return inner_loop(layer, *args, **kwargs)
            finally:
                layers.pop()

        return call

    nothing = contextlib.nullcontext()

    def unrolled(step: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        time = 0 if kwargs.get("time_major") else 1
        name = layers[-1].name if layers else "?"
        steps = [tensor.shape[time] for tensor in tf.nest.flatten(inputs)]
        if None in steps:
            raise UnsupportedOpError(
                f"layer '{name}' requires a known number of steps, since cuDNN cannot express it (kind of cell, "
                "activation or recurrent dropout) and it is unrolled, got an open one; fix it with input_spec"
            )
        if max(steps) > _MANY_STEPS:
            warnings.warn(
                f"layer '{name}' is unrolled over {max(steps)} steps, since cuDNN cannot express it; the model will be "
                "large and slow to export",
                stacklevel=2,
            )
        return plain_rnn(step, inputs, *args, **{**kwargs, "unroll": True})

    def zero_output() -> bool:
        return bool(layers) and bool(layers[-1].zero_output_for_mask)

    with (
        mock.patch.object(keras.layers.RNN, "inner_loop", watched(keras.layers.RNN.inner_loop)),
        mock.patch.object(keras.layers.LSTM, "inner_loop", watched(keras.layers.LSTM.inner_loop)),
        mock.patch.object(keras.layers.GRU, "inner_loop", watched(keras.layers.GRU.inner_loop)),
        mock.patch.object(backend, "rnn", unrolled),
        mock.patch.object(backend, "lstm", masked(keras_rnn.lstm, zero_output)),
        mock.patch.object(backend, "gru", masked(keras_rnn.gru, zero_output)),
        # Whether a layer's arguments suit cuDNN is asked as before; only the GPU itself is not.
        mock.patch.object(keras_rnn, "_is_gpu_available", return_value=True),
        # Sorted masks are what cuDNN takes, and a row without any step keeps its state here.
        mock.patch.object(keras_rnn, "_assert_valid_mask"),
        # Keras puts GRU gates into cuDNN's order only where TensorFlow is built with CUDA.
        mock.patch.object(
            tf.sysconfig, "get_build_info", return_value={**build, "is_cuda_build": True, "is_rocm_build": False}
        ),
    ):
        yield
