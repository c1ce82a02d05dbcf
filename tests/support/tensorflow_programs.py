"""Programs of TensorFlow's that train, save and restore, each run in a process of its own.

`python -m tests.support.tensorflow_programs KIND begin FOLDER` trains six steps and saves the state before the first,
after three and after all; `KIND go_on PATH FOLDER` restores a state, trains three steps and saves that.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import forks

SEQUENCES = np.random.default_rng(0).random((8, 5, 3)).astype(np.float32)
ROWS = SEQUENCES[:, 0]
TARGETS = np.random.default_rng(1).random((8, 2)).astype(np.float32)


def run(kind: str, *arguments: str | Path) -> None:
    """Runs a program in a process of its own."""
    command = ["-m", "tests.support.tensorflow_programs", kind, *map(str, arguments)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(forks.ROOT), "PYTHONWARNINGS": "error"}
    done = forks.run(command, forks.ROOT, environment, seconds=300, imported=forks.IMPORTED_BY_PROGRAMS)
    assert done.returncode == 0, done.stderr[-2000:]


class Graph:
    """A graph of TensorFlow 1 with Adam and its slots, in a session; variables that the step does not use, too.

    Its saver may know variables by other names, and large ones may lie in slices.
    """

    def __init__(self, kind: str) -> None:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        tf.set_random_seed(1)
        x, y = tf.placeholder(tf.float32, [None, 3], "x"), tf.placeholder(tf.float32, [None, 2], "y")
        partitioner = tf.fixed_size_partitioner(2) if kind == "sliced" else None
        with tf.variable_scope("net", partitioner=partitioner):
            first, second = (tf.convert_to_tensor(tf.get_variable(*each)) for each in (("v", [3, 4]), ("w", [4, 2])))
        tf.get_variable("unused", [5])
        tf.get_variable("texts", initializer=tf.constant(["a", "bc"]))
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ first) @ second - y), name="loss")
        step = tf.train.get_or_create_global_step()
        update = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step, name="train")
        renamed = {f"other/{each.op.name}": each for each in tf.global_variables()} if kind == "renamed" else None
        self._saver = tf.train.Saver(renamed, max_to_keep=None)
        self._session = tf.Session()
        self._session.run(tf.global_variables_initializer())
        self._step = lambda: self._session.run(update, {x: ROWS, y: TARGETS})

    def train(self) -> None:
        """Takes a step."""
        self._step()

    def save(self, path: str) -> None:
        """Writes a checkpoint."""
        self._saver.save(self._session, path)

    def restore(self, path: str) -> None:
        """Reads one."""
        self._saver.restore(self._session, path)


class Copies(Graph):
    """One step for three workers, each with copies of the weights, or for three towers, whose gradients are averaged.

    All are fed alike; a worker takes the weights over before its step.
    """

    def __init__(self, kind: str) -> None:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        tf.set_random_seed(1)
        names = ["worker_0", "worker_1", "worker_2"] if kind == "workers" else ["tower_0", "tower_1", "tower_2"]
        optimizer = tf.train.AdamOptimizer(0.05)
        with tf.variable_scope("global"):
            weights = [tf.get_variable(*each) for each in (("v", [3, 4]), ("w", [4, 2]))]
        self._feeds, updates, gradients = {}, [], []
        for name in names:
            with tf.variable_scope(name):
                x, y = tf.placeholder(tf.float32, [None, 5, 3], "x"), tf.placeholder(tf.float32, [None, 2], "y")
                own = [tf.get_variable(w.op.name[-1], w.shape) for w in weights] if kind == "workers" else weights
                steps = tf.transpose(x, [1, 0, 2])
                state = tf.foldl(lambda h, row, v=own[0]: tf.tanh(row @ v + h), steps, tf.zeros_like(x[:, 0] @ own[0]))
                loss = tf.reduce_mean(tf.square(state @ own[1] - y), name="loss")
                # Which waits with updates for all gradients: these read variables of references.
                gradients.append([gradient for gradient, _ in optimizer.compute_gradients(loss, own)])
            self._feeds |= {x: SEQUENCES, y: TARGETS}
            if kind == "workers":
                updates.append(
                    optimizer.apply_gradients(zip(gradients[-1], weights, strict=True), name=f"{name}/train")
                )
                copies = tf.group(*(copy.assign(weight) for copy, weight in zip(own, weights, strict=True)))
                self._copy = copies if name == names[0] else self._copy
        if kind == "towers":
            self._copy = tf.no_op()
            means = [tf.reduce_mean(tf.stack(each), 0) for each in zip(*gradients, strict=True)]
            updates = [optimizer.apply_gradients(zip(means, weights, strict=True), name="train")]
        self._saver = tf.train.Saver(max_to_keep=None)
        self._session = tf.Session()
        self._session.run(tf.global_variables_initializer())
        self._update = updates[0]

    def train(self) -> None:
        """Takes a step, the first worker's if there are any."""
        self._session.run(self._copy)
        self._session.run(self._update, self._feeds)


def keras_module() -> Any:
    """A Keras model with the four functions of TensorFlow's recipe for training on devices."""
    import keras
    import tensorflow as tf

    path = tf.TensorSpec((), tf.string, name="path")
    sequences = tf.TensorSpec((None, 5, 3), name="x")

    class Module(tf.Module):
        def __init__(self) -> None:
            keras.utils.set_random_seed(1)
            layers = keras.layers
            self.model = keras.Sequential(
                [keras.Input((5, 3)), layers.LSTM(4, return_sequences=True), layers.LSTM(4), layers.Dense(2)]
            )
            self.optimizer = keras.optimizers.Adam(0.05)
            self.optimizer.build(self.model.trainable_variables)

        @tf.function(input_signature=[sequences, tf.TensorSpec((None, 2), name="y")])
        def train(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.model(x, training=True) - y) ** 2)
            weights = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

        @tf.function(input_signature=[sequences])
        def infer(self, x: Any) -> Any:
            return {"scores": self.model(x, training=False)}

        @tf.function(input_signature=[path])
        def save(self, path: Any) -> Any:
            weights = self.model.weights
            names = [weight.path for weight in weights]
            tf.raw_ops.Save(filename=path, tensor_names=names, data=[weight.value.read_value() for weight in weights])
            return {"path": path}

        @tf.function(input_signature=[path])
        def restore(self, path: Any) -> Any:
            for weight in self.model.weights:
                read = tf.raw_ops.Restore(file_pattern=path, tensor_name=weight.path, dt=tf.float32)
                weight.value.assign(tf.ensure_shape(read, weight.shape))
            return {"path": path}

    return Module()


class Signatures:
    """A SavedModel whose signatures train, infer, save and restore."""

    def __init__(self, kind: str) -> None:  # noqa: ARG002
        self._module = keras_module()

    def train(self) -> None:
        """Takes a step."""
        signatures = getattr(self._module, "signatures", None)
        train = self._module.train if signatures is None else signatures["train"]
        train(x=SEQUENCES, y=TARGETS)

    def save(self, path: str) -> None:
        """Writes a SavedModel."""
        import tensorflow as tf

        names = ("train", "infer", "save", "restore")
        signatures = getattr(self._module, "signatures", None) or {name: getattr(self._module, name) for name in names}
        tf.saved_model.save(self._module, path, signatures=signatures)

    def restore(self, path: str) -> None:
        """Goes on with a SavedModel."""
        import tensorflow as tf

        self._module = tf.saved_model.load(path)


def momentum_module() -> Any:
    """Two variables with velocities, in a module whose step is a function."""
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__("net")
            start = np.random.default_rng(2)
            shapes = {"v": (3, 4), "w": (4, 2)}
            self.weights = [tf.Variable(start.random(s).astype(np.float32), name=n) for n, s in shapes.items()]
            self.velocities = [
                tf.Variable(tf.zeros(s), name=f"{n}/velocity", trainable=False) for n, s in shapes.items()
            ]
            self.unused = tf.Variable(tf.ones([5]), name="unused")

        @tf.function(input_signature=[tf.TensorSpec((None, 3), name="x"), tf.TensorSpec((None, 2), name="y")])
        def train(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.tanh(x @ self.weights[0]) @ self.weights[1] - y) ** 2)
            gradients = tape.gradient(loss, self.weights)
            for weight, velocity, gradient in zip(self.weights, self.velocities, gradients, strict=True):
                velocity.assign(0.9 * velocity + gradient)
                weight.assign_sub(0.05 * velocity)
            return {"loss": loss}

    return Module()


class Objects:
    """A module whose checkpoints know values by the attributes of objects."""

    def __init__(self, kind: str) -> None:  # noqa: ARG002
        import tensorflow as tf

        self._module = momentum_module()
        self._checkpoint = tf.train.Checkpoint(module=self._module)

    def train(self) -> None:
        """Takes a step."""
        self._module.train(ROWS, TARGETS)

    def save(self, path: str) -> None:
        """Writes a checkpoint."""
        self._checkpoint.write(path)

    def restore(self, path: str) -> None:
        """Reads one."""
        self._checkpoint.read(path).assert_consumed()


class Saved:
    """A compiled Keras model that was saved with its optimizer, or whose weights were."""

    def __init__(self, kind: str) -> None:  # noqa: ARG002
        import keras

        self._keras: Any = keras
        self._model: Any = None
        self._data: Any = None

    def train(self) -> None:
        """Takes a step."""
        self._model.train_on_batch(self._data["x"], self._data["y"])

    def save(self, path: str) -> None:
        """Writes the values of all variables."""
        variables = (*self._model.weights, *self._model.optimizer.variables)
        np.savez(f"{path}.npz", *(variable.numpy() for variable in variables))

    def restore(self, path: str) -> None:
        """Loads the model; where only weights were saved, into one that is built anew."""
        self._data = np.load(Path(path).with_name("data.npz"))
        if not path.endswith(".weights.h5"):
            self._model = self._keras.models.load_model(path)
            return
        layers = self._keras.layers
        self._model = self._keras.Sequential([self._keras.Input((5, 3)), layers.LSTM(4), layers.Dense(1)])
        self._model.compile(self._keras.optimizers.Adam(0.01), "mse")
        self._model.optimizer.build(self._model.trainable_variables)
        self._model.load_weights(path)


PROGRAMS: dict[str, type[Graph | Signatures | Objects | Saved]] = {
    "plain": Graph,
    "renamed": Graph,
    "sliced": Graph,
    "workers": Copies,
    "towers": Copies,
    "saved": Signatures,
    "objects": Objects,
    "keras": Saved,
}


def main(kind: str, what: str, *paths: str) -> None:
    """Runs one program."""
    warnings.simplefilter("ignore")  # of Keras and of TensorFlow about their older forms
    program = PROGRAMS[kind](kind)
    *before, folder = paths
    if what == "go_on":
        program.restore(before[0])
    names = {"begin": ("begin", "three", "six"), "go_on": ("before", "after")}[what]
    for number, name in enumerate(names):
        for _ in range(3 if number else 0):
            program.train()
        program.save(f"{folder}/{name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
