"""Records Keras layers, forward and gradient, and Keras' own cuDNN packing, as small data for tests.

Needs TensorFlow; writes `tests/data/keras/<case>.npz`. Run from the repository's root:

    python tests/data/record_keras_layers.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parents[1] / "keras"
STEPS, BATCH, INPUT, UNITS = 4, 3, 2, 3
LAYERS = {
    "lstm": (keras.layers.LSTM, {}),
    "gru": (keras.layers.GRU, {"reset_after": True}),
    "rnn_tanh": (keras.layers.SimpleRNN, {}),
    "rnn_relu": (keras.layers.SimpleRNN, {"activation": "relu"}),
}


def record(mode: str, *, bidirectional: bool, ragged: bool, seed: int = 0) -> dict[str, Any]:
    """Runs one layer on the CPU and takes the gradient of a random linear loss of its output sequence."""
    rng = np.random.default_rng(seed)
    kind, options = LAYERS[mode]
    if mode in ("lstm", "gru"):
        options = {**options, "use_cudnn": False}
    layer = kind(UNITS, return_sequences=True, **options)
    if bidirectional:
        layer = keras.layers.Bidirectional(layer)
    x = tf.constant(rng.standard_normal((BATCH, STEPS, INPUT)), tf.float32)
    lengths = np.array([STEPS, 2, 1] if ragged else [STEPS] * BATCH, np.int32)
    mask = tf.sequence_mask(lengths, STEPS)
    layer.build(x.shape)
    layer.set_weights([rng.standard_normal(w.shape).astype(np.float32) * 0.5 for w in layer.get_weights()])
    width = UNITS * (2 if bidirectional else 1)
    output_grad = rng.standard_normal((BATCH, STEPS, width)).astype(np.float32) * mask.numpy()[..., None]
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, mask=mask)
        loss = tf.reduce_sum(output * output_grad)
    gradients = tape.gradient(loss, [x, *layer.trainable_variables])
    data = {
        "x": x.numpy(),
        "lengths": lengths,
        # Past its end Keras repeats the last output where cuDNN has zeros.
        "output": output.numpy() * mask.numpy()[..., None],
        "output_grad": output_grad,
        "x_grad": gradients[0].numpy(),
    }
    for index, (weight, gradient) in enumerate(zip(layer.get_weights(), gradients[1:], strict=True)):
        data[f"weight_{index}"], data[f"weight_grad_{index}"] = weight, gradient.numpy()
    if mode in ("lstm", "gru") and not bidirectional:
        data["packed"] = keras_packing(mode, layer.get_weights())
    return data


class CapturedError(Exception):
    """Carries the operands of the cuDNN op out of Keras."""


def keras_packing(mode: str, weights: list[Any]) -> Any:
    """The buffer that Keras' own GPU path hands to CudnnRNNV3, which itself cannot run here."""
    module = sys.modules["keras.src.backend.tensorflow.rnn"]

    def capture(**operands: Any) -> None:
        raise CapturedError(operands["params"].numpy())

    names = ("kernel", "recurrent_kernel", "bias")
    state = tf.zeros((BATCH, UNITS))
    states = {"initial_state_h": state, "initial_state_c": state} if mode == "lstm" else {"initial_state": state}
    build = {"is_cuda_build": True, "is_rocm_build": False}
    with (
        mock.patch.object(tf.raw_ops, "CudnnRNNV3", capture),
        mock.patch.object(tf.sysconfig, "get_build_info", return_value=build),
    ):
        try:
            getattr(module, f"_cudnn_{mode}")(
                inputs=tf.zeros((BATCH, STEPS, INPUT)),
                **states,
                **{name: tf.constant(weight) for name, weight in zip(names, weights, strict=True)},
                mask=None,
                time_major=False,
                go_backwards=False,
                return_sequences=True,
            )
        except CapturedError as captured:
            return captured.args[0]
    raise RuntimeError("Keras did not call CudnnRNNV3")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for mode in LAYERS:
        for bidirectional in (False, True):
            for ragged in (False, True):
                name = "-".join([mode, *["bidirectional"] * bidirectional, *["ragged"] * ragged])
                np.savez_compressed(FOLDER / f"{name}.npz", **record(mode, bidirectional=bidirectional, ragged=ragged))


if __name__ == "__main__":
    main()
