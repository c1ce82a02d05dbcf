"""A training step of a Keras layer over a cell of one's own, exported and in Keras.

Needs the extra [tensorflow]. Keras and the exported step take turns, each in a process of its own, since thread pools
disturb each other within one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.block import Case

CLASSES = 10


def lstm_cell(units: int) -> Any:
    """An LSTM cell as one writes it oneself."""
    import keras

    class Cell(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.state_size, self.output_size = [units, units], units

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 4 * units), name="kernel")
            self.recurrent = self.add_weight(shape=(units, 4 * units), name="recurrent")
            self.bias = self.add_weight(shape=(4 * units,), name="bias")

        def call(self, x: Any, states: Any) -> Any:
            h, c = states
            i, f, g, o = keras.ops.split(x @ self.kernel + h @ self.recurrent + self.bias, 4, axis=-1)
            c = keras.ops.sigmoid(f) * c + keras.ops.sigmoid(i) * keras.ops.tanh(g)
            h = keras.ops.sigmoid(o) * keras.ops.tanh(c)
            return h, [h, c]

    return Cell()


def made(case: Case, threads: int, _: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A contestant: one step of training, of the exported model or, as the op `keras`, of Keras itself."""
    import time

    import keras
    import tensorflow as tf

    import lstm_lower as ll
    from lstm_lower.runtime.session import default_options

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    T, B, I, H = case.shape  # noqa: E741
    keras.utils.set_random_seed(0)
    layers = [keras.layers.RNN(lstm_cell(H)), keras.layers.Dense(CLASSES, activation="softmax")]
    model: Any = keras.Sequential([keras.Input((T, I)), *layers])
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    x, y = random.standard_normal((B, T, I)).astype(np.float32), random.integers(0, CLASSES, B)
    if case.op == "keras":
        batch = tf.constant(x), tf.constant(y)
        return lambda: model.train_on_batch(*batch), {}
    options = default_options()
    options.intra_op_num_threads = threads
    from lstm_lower.keras.exporter import from_keras

    start = time.perf_counter()
    step = from_keras(model)
    middle = time.perf_counter()
    trainer = ll.Trainer(step, session_options=options)
    facts = {"export_s": middle - start, "trainer_s": time.perf_counter() - middle}
    return lambda: trainer.step({"x": x, "y": y}).loss, facts
