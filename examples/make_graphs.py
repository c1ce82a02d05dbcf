"""Makes the example graphs: TensorFlow's own gradients of small LSTM models, exported by tf2onnx.

Needs TensorFlow and tf2onnx (pip install lstm-lower[tensorflow,tf2onnx]). For each model two files are written into
`graphs/`, beside this script:

- `<name>.onnx`: the training graph. Ordinary operators are ONNX's own; the recurrent ops and the gradient ops
  that tf2onnx does not handle well stand as nodes of domain `ai.onnx.converters.tensorflow`, attributes kept;
- `<name>.npz`: `in:<tensor>`, the feeds, and `out:<tensor>`, what TensorFlow's CPU kernels made of them.

Usage: python examples/make_graphs.py [--out DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tf2onnx import convert, utils

DOMAIN = "ai.onnx.converters.tensorflow"
OPSET = 18

# tf2onnx has no handler for these, or one that loses the gradient (SparseSoftmaxCrossEntropyWithLogits), that
# refuses scalar indices (DynamicStitch), or that costs a sort and a table of all segments times the most
# frequent one (UnsortedSegmentSum).
LEFT_AS_NODES = (
    "BiasAddGrad",
    "BlockLSTM",
    "BlockLSTMGrad",
    "DynamicStitch",
    "SparseSoftmaxCrossEntropyWithLogits",
    "StridedSliceGrad",
    "UnsortedSegmentSum",
)

TEXT = (
    "A loop that runs a thousand times should do in each turn only what the turn before made possible; "
    "all other work belongs in front of it, or behind it, where one wide product does it at once. "
)
STEPS, BATCH, EMBEDDING, UNITS = 20, 4, 16, 32
CHARACTERS = sorted(set(TEXT.lower()))

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


def char_lstm_weights(rng: np.random.Generator) -> Feeds:
    """Returns initial weights by name; peepholes and biases are not zero, which would hide faults."""

    def glorot(rows: int, columns: int) -> Array:
        bound = np.sqrt(6.0 / (rows + columns))
        return rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)

    def small(size: int) -> Array:
        return (0.1 * rng.standard_normal(size)).astype(np.float32)

    return {
        "emb": glorot(len(CHARACTERS), EMBEDDING),
        "w": glorot(EMBEDDING + UNITS, 4 * UNITS),
        "wci": small(UNITS),
        "wcf": small(UNITS),
        "wco": small(UNITS),
        "b": small(4 * UNITS),
        "dense_w": glorot(UNITS, len(CHARACTERS)),
        "dense_b": small(len(CHARACTERS)),
    }


def char_lstm_train() -> tuple[list[str], list[str], Feeds]:
    """Builds one SGD step of a character-level LSTM in the default graph.

    Weights are graph inputs; loss, every gradient and every updated weight are outputs.

    Returns:
        Names of the input tensors, names of the output tensors, and feeds by input name.
    """
    rng = np.random.default_rng(7)
    weights = char_lstm_weights(rng)
    text = np.array([CHARACTERS.index(character) for character in TEXT.lower()], np.int32)
    starts = rng.integers(0, len(text) - STEPS - 1, BATCH)
    windows = np.stack([text[start : start + STEPS + 1] for start in starts], axis=1)
    feeds = {
        "ids:0": windows[:-1],
        "labels:0": windows[1:],
        "learning_rate:0": np.array(0.5, np.float32),
        **{f"{name}:0": value for name, value in weights.items()},
    }

    v1 = tf.compat.v1
    ids = v1.placeholder(tf.int32, [STEPS, None], "ids")
    labels = v1.placeholder(tf.int32, [STEPS, None], "labels")
    learning_rate = v1.placeholder(tf.float32, [], "learning_rate")
    variables = {name: v1.placeholder(tf.float32, value.shape, name) for name, value in weights.items()}

    state = tf.zeros(tf.stack([tf.shape(ids)[1], UNITS]))
    layer = tf.raw_ops.BlockLSTM(
        seq_len_max=tf.constant(STEPS, tf.int64),
        x=tf.gather(variables["emb"], ids),
        cs_prev=state,
        h_prev=state,
        w=variables["w"],
        wci=variables["wci"],
        wcf=variables["wcf"],
        wco=variables["wco"],
        b=variables["b"],
        cell_clip=0.0,
        use_peephole=True,
        name="lstm",
    )
    logits = tf.nn.bias_add(tf.matmul(tf.reshape(layer.h, [-1, UNITS]), variables["dense_w"]), variables["dense_b"])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, [-1]), logits=logits)
    loss = tf.reduce_mean(losses, name="loss")

    outputs = [loss.name]
    gradients = v1.gradients(loss, list(variables.values()))
    for (name, variable), gradient in zip(variables.items(), gradients, strict=True):
        gradient = tf.identity(tf.convert_to_tensor(gradient), f"grad_{name}")
        update = tf.subtract(variable, learning_rate * gradient, f"new_{name}")
        outputs += [gradient.name, update.name]
    return list(feeds), outputs, feeds


def input_saliency() -> tuple[list[str], list[str], Feeds]:
    """Builds the gradient of a classifier's winning score with respect to its input.

    The weights are constants of the graph; of the two stacked layers the second reads only the first steps of
    the first, so that a `StridedSliceGrad` stands between them.

    Returns:
        Names of the input tensors, names of the output tensors, and feeds by input name.
    """
    steps, used, features, units, classes = 12, 9, 8, 16, 5
    rng = np.random.default_rng(11)
    feeds = {"x:0": rng.standard_normal((steps, 3, features)).astype(np.float32)}

    def constant(name: str, *shape: int) -> tf.Tensor:
        return tf.constant((0.3 * rng.standard_normal(shape)).astype(np.float32), name=name)

    def lstm(sequence: tf.Tensor, name: str) -> tf.Tensor:
        batch = tf.shape(sequence)[1]
        width = int(sequence.shape[2])
        state = tf.zeros(tf.stack([batch, units]))
        return tf.raw_ops.BlockLSTM(
            seq_len_max=tf.shape(sequence, out_type=tf.int64)[0],
            x=sequence,
            cs_prev=state,
            h_prev=state,
            w=constant(f"{name}_w", width + units, 4 * units),
            wci=tf.zeros([units]),
            wcf=tf.zeros([units]),
            wco=tf.zeros([units]),
            b=constant(f"{name}_b", 4 * units),
            cell_clip=0.0,
            name=name,
        ).h

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [steps, None, features], "x")
    hidden = lstm(lstm(x, "first")[:used], "second")
    scores = tf.nn.bias_add(tf.matmul(hidden[-1], constant("dense_w", units, classes)), constant("dense_b", classes))
    score = tf.reduce_sum(tf.reduce_max(tf.nn.softmax(scores), axis=1), name="score")
    saliency = tf.identity(v1.gradients(score, [x])[0], "saliency")
    norm = tf.sqrt(tf.reduce_sum(tf.square(saliency), axis=2), name="saliency_norm")
    return [x.name], [score.name, saliency.name, norm.name], feeds


def name_dimensions(model: onnx.ModelProto, batch_axis: Mapping[str, int]) -> None:
    """Names the batch dimension of inputs and outputs, and clears the converter's names of others."""
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if batch_axis.get(value.name) == axis:
                dim.dim_param = "batch"
            elif dim.dim_param:
                dim.ClearField("value")


def drop_unused_opsets(model: onnx.ModelProto) -> None:
    """Drops opset imports that no node needs."""
    used = {"", *(node.domain for node in model.graph.node)}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def export(
    name: str,
    build: Callable[[], tuple[list[str], list[str], Feeds]],
    batch_axis: Mapping[str, int],
    folder: Path,
) -> None:
    """Builds a graph, runs it in TensorFlow, converts it, and writes `<name>.onnx` and `<name>.npz`."""
    with tf.Graph().as_default() as graph:
        inputs, outputs, feeds = build()
        with tf.compat.v1.Session(graph=graph) as session:
            results: Sequence[Array] = session.run(outputs, feeds)
        definition = graph.as_graph_def()
    model, _ = convert.from_graph_def(
        definition,
        name=name,
        input_names=inputs,
        output_names=outputs,
        opset=OPSET,
        custom_ops=dict.fromkeys(LEFT_AS_NODES, DOMAIN),
        extra_opset=[utils.make_opsetid(DOMAIN, 1)],
    )
    name_dimensions(model, batch_axis)
    drop_unused_opsets(model)
    onnx.checker.check_model(model, full_check=True)
    unknown = {node.op_type for node in model.graph.node if node.domain == DOMAIN} - set(LEFT_AS_NODES)
    if unknown or [value.name for value in model.graph.output] != outputs:
        raise ValueError(f"{name}: the conversion lost something, {unknown} {model.graph.output}")

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / f"{name}.onnx")
    arrays = {f"in:{tensor}": value for tensor, value in feeds.items()}
    arrays |= {f"out:{tensor}": value for tensor, value in zip(outputs, results, strict=True)}
    np.savez_compressed(folder / f"{name}.npz", allow_pickle=False, **arrays)


def main() -> None:
    """Writes both example graphs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "graphs")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    export("char_lstm_train", char_lstm_train, {"ids:0": 1, "labels:0": 1}, folder)
    export("input_saliency", input_saliency, {"x:0": 1, "saliency:0": 1, "saliency_norm:0": 1}, folder)


if __name__ == "__main__":
    main()
