"""Masked LSTM and GRU layers on the path for cuDNN, whatever their masks look like.

cuDNN knows lengths, that is, masks that end each sequence. A masked step changes neither state nor output, so a row's
steps can be sorted, those that count first and in their order: the states are the same, and the row has a length. The
outputs go back to the steps they belong to; between them Keras repeats the last one.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# By name, since the package has a function of the module's name.
keras_rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")


def masked(layer: Callable[..., Any], zero_output: Callable[[], bool]) -> Callable[..., Any]:
    """Keras' `lstm` or `gru` for cuDNN, for any mask.

    Args:
        layer: the function; it raises NotImplementedError for what cuDNN cannot express.
        zero_output: whether the layer that is traced now returns zeros, and not the last output, for masked steps.

    Returns:
        A function with the same arguments and results: last output `[B, H]`, outputs `[B, T, H]` (or `[B, 1, H]`),
        and the states `[B, H]` behind the last step.
    """
    signature = inspect.signature(layer)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        # Whether a loop is unrolled is chosen when the model is lowered.
        given = {**bound.arguments, "unroll": False}
        if given["bias"] is None:
            given["bias"] = _no_bias(given)
        mask = given["mask"]
        if mask is None:
            return layer(**given)
        mask = tf.cast(mask, tf.bool)
        mask = tf.reshape(mask, tf.shape(mask)[:2])
        inputs = given["inputs"]
        if given["go_backwards"]:
            inputs, mask = tf.reverse(inputs, [1]), tf.reverse(mask, [1])
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
        order, places = _sorted(mask, lengths)
        _, outputs, states = layer(
            **{
                **given,
                "inputs": _permuted(inputs, order, places),
                "mask": tf.sequence_mask(lengths, tf.shape(mask)[1]),
                "go_backwards": False,
                "return_sequences": True,
            }
        )
        zeros = zero_output()
        last = tf.where((mask[:, -1] if zeros else lengths > 0)[:, None], states[0], 0)
        if not given["return_sequences"]:
            return last, last[:, None], states
        outputs.set_shape([*inputs.shape[:2], outputs.shape[-1]])
        if zeros:
            return last, tf.where(mask[..., None], _permuted(outputs, places, order), 0), states
        done = tf.cumsum(tf.cast(mask, tf.int32), 1)
        repeated = tf.gather(outputs, tf.maximum(done - 1, 0), batch_dims=1)
        return last, tf.where((done > 0)[..., None], repeated, 0), states

    return call


def _no_bias(given: dict[str, Any]) -> tf.Tensor:
    """Zeros for a layer without bias: `[4*H]` for an LSTM, `[2, 3*H]` for a GRU."""
    kernel = tf.convert_to_tensor(given["kernel"])
    gates = kernel.shape[-1]
    return tf.zeros([2, gates] if "reset_after" in given else [gates], kernel.dtype)


def _sorted(mask: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The steps of each row, those that count first, and the place of each step in that order; both `[B, T]`."""
    counted = tf.cast(mask, tf.int32)
    places = tf.where(mask, tf.cumsum(counted, 1), lengths[:, None] + tf.cumsum(1 - counted, 1)) - 1
    # Distinct and exact below 2^24 steps; onnxruntime sorts floats on every provider.
    order = tf.math.top_k(tf.cast(-places, tf.float32), tf.shape(mask)[1]).indices
    return order, places


def _permuted(x: tf.Tensor, order: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """The steps of x `[B, T, F]` in an order; its gradient goes the way back without a sum."""

    def permute(x: tf.Tensor) -> Any:
        return tf.gather(x, order, batch_dims=1), lambda gradient: tf.gather(gradient, places, batch_dims=1)

    result = tf.custom_gradient(permute)(x)
    result.set_shape(x.shape)
    return result
