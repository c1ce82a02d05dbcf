"""Trains a character-level LSTM from an ONNX file alone, step by step beside TensorFlow.

The file is made here: TensorFlow's own training step, gradients and optimizer included, imported and lowered. From then
on the loop needs nothing but onnxruntime: the file says which output is the next value of which input, and holds the
initial values. Both train on the same batches; the losses are compared after every step, and the time per step is taken
in turns.

    python examples/tensorflow_training/train_from_file.py                              # 200 steps of SGD and of Adam
    python examples/tensorflow_training/train_from_file.py --sizes 100,32,128,256 --steps 20 --threads 2

Needs TensorFlow (pip install lstm-lower[tensorflow]).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf

import lstm_lower as ll
from lstm_lower.pictures import BLUE, ORANGE, picture
from lstm_lower.records import state as training_state

Array = np.ndarray[Any, Any]
Losses = dict[str, list[float]]

TEXT = (
    "The step that a loop repeats is the step that it pays for; whatever does not change from one turn to the next "
    "belongs outside, where it is done once, and wide. "
)
CHARACTERS = sorted(set(TEXT))

# Losses after the last step may differ by this much, relative. Adam divides by small numbers, which spreads rounding.
TOLERANCE = {"sgd": 1e-4, "adam": 1e-3}


class CharacterLSTM(tf.Module):
    """Embedding, BlockLSTM with peepholes, dense layer, and an optimizer's state."""

    def __init__(self, embedding: int, units: int, optimizer: str) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        classes = len(CHARACTERS)

        def weight(name: str, *shape: int) -> tf.Variable:
            scale = 1 / np.sqrt(shape[0]) if len(shape) > 1 else 0.05
            return tf.Variable((scale * rng.standard_normal(shape)).astype(np.float32), name=name)

        self.emb = weight("emb", classes, embedding)
        self.w = weight("w", embedding + units, 4 * units)
        self.peepholes = [weight(name, units) for name in ("wci", "wcf", "wco")]
        self.b = weight("b", 4 * units)
        self.dense_w = weight("dense_w", units, classes)
        self.dense_b = weight("dense_b", classes)
        self.weights = [self.emb, self.w, *self.peepholes, self.b, self.dense_w, self.dense_b]
        self.units = units
        self.optimizer = optimizer
        if optimizer == "adam":
            zeros = {
                variable.name.removesuffix(":0"): np.zeros(variable.shape, np.float32) for variable in self.weights
            }
            self.m = [tf.Variable(value, trainable=False, name=f"{name}/m") for name, value in zeros.items()]
            self.v = [tf.Variable(value, trainable=False, name=f"{name}/v") for name, value in zeros.items()]
            self.powers = [tf.Variable(0.9, trainable=False, name="beta1_power")]
            self.powers.append(tf.Variable(0.999, trainable=False, name="beta2_power"))

    def loss(self, ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Mean cross entropy of the next characters; ids and labels [T, B]."""
        state = tf.zeros([tf.shape(ids)[1], self.units])
        wci, wcf, wco = self.peepholes
        layer = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.shape(ids, out_type=tf.int64)[0],
            x=tf.gather(self.emb, ids),
            cs_prev=state,
            h_prev=state,
            w=self.w,
            wci=wci,
            wcf=wcf,
            wco=wco,
            b=self.b,
            cell_clip=0.0,
            use_peephole=True,
        )
        logits = tf.matmul(tf.reshape(layer.h, [-1, self.units]), self.dense_w) + self.dense_b
        labels = tf.reshape(labels, [-1])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def train(self, ids: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """One step: the loss before it, and the weights assigned."""
        with tf.GradientTape() as tape:
            loss = self.loss(ids, labels)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, self.weights)]
        if self.optimizer == "sgd":
            for variable, gradient in zip(self.weights, gradients, strict=True):
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.5, delta=gradient)
            return {"loss": loss}
        beta1, beta2 = 0.9, 0.999
        for variable, m, v, gradient in zip(self.weights, self.m, self.v, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=self.powers[0].read_value(),
                beta2_power=self.powers[1].read_value(),
                lr=0.005,
                beta1=beta1,
                beta2=beta2,
                epsilon=1e-7,
                grad=gradient,
            )
        self.powers[0].assign(self.powers[0] * beta1)
        self.powers[1].assign(self.powers[1] * beta2)
        return {"loss": loss}


def batches(steps: int, length: int, batch: int) -> Iterator[tuple[Array, Array]]:
    """Random windows of the text: ids and the characters that follow them, each [T, B]."""
    rng = np.random.default_rng(4)
    text = np.array([CHARACTERS.index(character) for character in TEXT * (length // len(TEXT) + 2)], np.int32)
    for _ in range(steps):
        starts = rng.integers(0, len(text) - length - 1, batch)
        windows = np.stack([text[start : start + length + 1] for start in starts], axis=1)
        yield windows[:-1], windows[1:]


def step_from_file(path: Path, threads: int) -> Callable[[Array, Array], float]:
    """A training step that knows the file and nothing else."""
    import onnxruntime  # after lstm_lower, so that it reports nothing of this process

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # It would say of each weight that it can be fed and is therefore no constant.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    pairs = training_state.parse(session.get_modelmeta().custom_metadata_map).pairs
    initial = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    state = {pair.input: initial[pair.input] for pair in pairs}
    next_value = {pair.output: pair.input for pair in pairs if pair.output is not None}
    outputs = ["loss", *next_value]

    def step(ids: Array, labels: Array) -> float:
        loss, *values = session.run(outputs, {"ids": ids, "labels": labels, **state})
        # A scalar comes back as a number and must go in as an array.
        state.update({next_value[name]: np.asarray(value) for name, value in zip(next_value, values, strict=True)})
        return float(loss)

    return step


def compare(optimizer: str, sizes: tuple[int, int, int, int], steps: int, threads: int) -> tuple[float, Losses]:
    """Trains both ways and prints what came of it.

    Returns:
        The relative difference of the last losses, and the losses of both, step by step.
    """
    length, batch, embedding, units = sizes
    model = CharacterLSTM(embedding, units, optimizer)
    specs = [tf.TensorSpec([length, None], tf.int32, name=name) for name in ("ids", "labels")]
    train = tf.function(model.train, input_signature=specs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"char_lstm_{optimizer}.onnx"
        start = time.perf_counter()
        onnx.save(ll.lower(ll.from_tensorflow(train, weights="inputs")), path)
        made = time.perf_counter() - start
        step = step_from_file(path, threads)

    times: dict[str, list[float]] = {"tensorflow": [], "onnxruntime": []}
    losses: Losses = {name: [] for name in times}
    worst = last = 0.0
    for ids, labels in batches(steps, length, batch):
        start = time.perf_counter()
        expected = float(train(tf.constant(ids), tf.constant(labels))["loss"])
        middle = time.perf_counter()
        got = step(ids, labels)
        times["tensorflow"].append(middle - start)
        times["onnxruntime"].append(time.perf_counter() - middle)
        losses["tensorflow"].append(expected)
        losses["onnxruntime"].append(got)
        last = abs(got - expected) / expected
        worst = max(worst, last)
    median = {name: 1e3 * float(np.median(values)) for name, values in times.items()}
    print(f"{optimizer}: {steps} steps, made in {made:.1f} s, last loss {expected:.6f}")
    print(f"  relative difference of the losses: {last:.1e} after the last step, {worst:.1e} at most")
    ratio = median["tensorflow"] / median["onnxruntime"]
    took = f"TensorFlow {median['tensorflow']:.2f} ms, the file {median['onnxruntime']:.2f} ms"
    print(f"  per step: {took}, {ratio:.2f} times as fast")
    return last, losses


def draw(runs: dict[str, Losses], path: Path) -> None:
    """Draws the losses of both for each optimizer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, height=3) as figure:
        panels = figure.subplots(1, len(runs), squeeze=False)[0]
        for axes, (optimizer, losses) in zip(panels, runs.items(), strict=True):
            axes.plot(losses["tensorflow"], linewidth=3, color=ORANGE, label="TensorFlow")
            axes.plot(losses["onnxruntime"], linewidth=1, color=BLUE, label="onnxruntime, from the file")
            axes.set(xlabel="step", ylabel="cross entropy per character", title=optimizer)
            axes.legend()


def main() -> None:
    """Runs both optimizers; fails when a loss is out of tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sizes", default="20,8,16,32", help="T,B,I,H: steps, batch, embedding, units")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimizer", choices=sorted(TOLERANCE), action="append")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where to put losses.svg")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    length, batch, embedding, units = (int(size) for size in arguments.sizes.split(","))
    runs: dict[str, Losses] = {}
    for optimizer in arguments.optimizer or ["sgd", "adam"]:
        sizes = length, batch, embedding, units
        difference, runs[optimizer] = compare(optimizer, sizes, arguments.steps, arguments.threads)
        if difference > TOLERANCE[optimizer]:
            raise SystemExit(
                f"{optimizer}: the losses differ by {difference:.1e}, more than {TOLERANCE[optimizer]:.0e}"
            )
    draw(runs, arguments.out / "losses.svg")


if __name__ == "__main__":
    main()
