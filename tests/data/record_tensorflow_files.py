"""Makes the files in `tensorflow_files/`: graphs, SavedModels and checkpoints as TensorFlow writes them.

Run with TensorFlow installed: `python tests/data/record_tensorflow_files.py`. The values are in `values.npz`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "tensorflow_files"
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
# What TensorFlow's own writer of older checkpoints has no form for.
NOT_IN_TABLES = ("bfloat16", "uint32", "uint64")

v1 = tf.compat.v1


def plain(value: Any) -> Any:
    """A value as npz files can hold it."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == tf.bfloat16.as_numpy_dtype else array


def variables_of_every_dtype() -> list[Any]:
    """One of each, in the default graph, two thirds of them in a second shard."""
    rng = np.random.default_rng(0)
    made = []
    for number, dtype in enumerate(DTYPES):
        with tf.device(f"/cpu:{min(number % 3, 1)}"):
            start = tf.cast(tf.constant(rng.integers(0, 90, (2, 3))), tf.as_dtype(dtype))
            made.append(v1.get_variable(f"of_{dtype}", initializer=start, use_resource=False))
    made.append(v1.get_variable("scalar", initializer=np.float32(2.5), use_resource=False))
    made.append(v1.get_variable("empty", initializer=np.zeros((0, 4), np.float32), use_resource=False))
    made.append(v1.get_variable("texts", initializer=tf.constant(["a", "", "long" * 50]), use_resource=False))
    return made


def partitioned() -> list[Any]:
    """Two variables in slices: of rows, and of columns from 60 on, whose keys need more than a byte a number."""
    start = v1.random_normal_initializer(seed=1)
    return [
        v1.get_variable(
            "rows", [7, 3], initializer=start, partitioner=v1.fixed_size_partitioner(3), use_resource=False
        ),
        v1.get_variable(
            "columns", [2, 200], initializer=start, partitioner=v1.fixed_size_partitioner(3, axis=1), use_resource=False
        ),
    ]


def checkpoints() -> dict[str, Any]:
    """`bundle/`, in shards, and `tables/`, an older one in several files."""
    values = {}
    with tf.Graph().as_default():
        plain_ones, sliced = variables_of_every_dtype(), partitioned()
        config = v1.ConfigProto(device_count={"CPU": 2})
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            for variable in plain_ones:
                values[variable.op.name] = plain(session.run(variable))
            for variable, axis in zip(sliced, (0, 1), strict=True):
                values[variable.name] = np.concatenate(session.run(list(variable)), axis)
            everything = [*plain_ones, *(part for variable in sliced for part in variable)]
            (FOLDER / "bundle").mkdir()
            v1.train.Saver(everything, sharded=True, save_relative_paths=True).save(
                session, str(FOLDER / "bundle" / "model.ckpt"), write_meta_graph=False
            )
            (FOLDER / "tables").mkdir()
            kept = [x for x in everything if not x.op.name.endswith(NOT_IN_TABLES)]
            v1.train.Saver(kept, sharded=True, write_version=1, save_relative_paths=True).save(
                session, str(FOLDER / "tables" / "model.ckpt"), write_meta_graph=False
            )
    return values


def training_graph() -> dict[str, Any]:
    """`step/`: a queue, a loop of TensorFlow 1, a branch, BlockLSTM and its gradient, Adam, a partitioned variable."""
    v1.disable_control_flow_v2()
    with tf.Graph().as_default():
        queue = v1.FIFOQueue(4, [tf.float32, tf.int32], shapes=[[5, 3], [5]])
        x, labels = queue.dequeue_many(2)
        keep = v1.placeholder_with_default(np.float32(1.0), [], "keep")
        start = v1.random_normal_initializer(stddev=0.3, seed=2)
        kernel = v1.get_variable("kernel", [7, 16], initializer=start, use_resource=False)
        bias = v1.get_variable("bias", [16], initializer=start, use_resource=False)
        parts = v1.get_variable(
            "dense", [4, 6], initializer=start, partitioner=v1.fixed_size_partitioner(2), use_resource=False
        )
        zeros = tf.zeros([2, 4])
        empty = tf.zeros([4])
        lstm = tf.raw_ops.BlockLSTM(
            seq_len_max=np.int64(5), x=tf.transpose(x, [1, 0, 2]), cs_prev=zeros, h_prev=zeros, w=kernel, wci=empty,
            wcf=empty, wco=empty, b=bias, name="lstm",
        )  # fmt: skip
        _, doubled = v1.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y * keep), [0, lstm.h], name="loop")
        chosen = v1.cond(keep > 0.5, lambda: doubled * 2.0, lambda: doubled, name="branch")
        logits = tf.tensordot(chosen, tf.concat(list(parts), 0), 1)
        loss = v1.losses.sparse_softmax_cross_entropy(tf.transpose(labels), logits)
        step = v1.train.get_or_create_global_step()
        v1.train.AdamOptimizer(0.01).minimize(loss, step, name="train")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            found = {f"step/{variable.op.name}": session.run(variable) for variable in v1.global_variables()}
            v1.train.Saver(save_relative_paths=True).save(
                session, str(FOLDER / "step" / "model.ckpt"), global_step=step
            )
        return found


def text() -> None:
    """`small.meta.txt`, a MetaGraphDef as text."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], "x")
        w = v1.get_variable("w", [2], use_resource=False)
        v1.losses.add_loss(tf.reduce_sum(x * w, name="loss"))
        v1.train.export_meta_graph(str(FOLDER / "small.meta.txt"), graph=graph, as_text=True, strip_default_attrs=True)


def saved_model_of_1() -> dict[str, Any]:
    """`saved_1/`: reference variables and two signatures."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        w = v1.get_variable("w", initializer=np.arange(6, dtype=np.float32).reshape(3, 2), use_resource=False)
        loss = tf.reduce_sum(tf.matmul(x, w) ** 2, name="loss")
        with tf.control_dependencies([v1.train.GradientDescentOptimizer(0.1).minimize(loss)]):
            after = tf.identity(loss, "after")
        describe = v1.saved_model.build_tensor_info
        signatures = {
            name: v1.saved_model.build_signature_def({"features": describe(x)}, {"loss": describe(result)}, name)
            for name, result in (("train", after), ("evaluate", loss))
        }
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            builder = v1.saved_model.Builder(str(FOLDER / "saved_1"))
            builder.add_meta_graph_and_variables(session, ["train"], signature_def_map=signatures)
            builder.save()
            return {"saved_1/w": session.run(w)}


class Step(tf.Module):
    """Variables, a captured constant, a list of variables, a slot of an optimizer's kind, a loop and a branch."""

    def __init__(self) -> None:
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2) / 10, name="w")
        self.many = [tf.Variable(np.full(2, n, np.float32), name="same") for n in range(2)]
        self.count = tf.Variable(0, name="count", trainable=False, dtype=tf.int64)
        self.scale = tf.constant(np.arange(200, dtype=np.float32).reshape(100, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def train(self, x: Any) -> dict[str, Any]:
        y = tf.matmul(x, self.w) + self.many[0] + self.many[1] + self.scale[1]
        _, y = tf.while_loop(lambda n, _: n < 3, lambda n, z: (n + 1, tf.tanh(z)), [0, y])
        values, indices = tf.nn.top_k(y, 1)
        y = tf.cond(tf.reduce_sum(y) > 0.0, lambda: y + values, lambda: y - tf.cast(indices, tf.float32))
        loss = tf.reduce_sum(y)
        self.w.assign_sub(0.1 * tf.gradients(loss, [self.w])[0])
        self.count.assign_add(1)
        return {"loss": loss, "y": y}


def saved_model_of_2() -> dict[str, Any]:
    """`saved_2/`: functions, objects and what these capture; `objects/` a checkpoint of the objects."""
    v1.enable_control_flow_v2()
    step = Step()
    tf.saved_model.save(step, str(FOLDER / "saved_2"), signatures={"train": step.train})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    held = {"saved_2/w": step.w.numpy(), "saved_2/scale": step.scale.numpy(), "saved_2/x": x}
    step.w.assign(step.w + 1.0)
    tf.train.Checkpoint(step).save(str(FOLDER / "objects" / "model"))
    return {**held, "objects/w": step.w.numpy()}


def main() -> None:
    """Makes all of them anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    found = {**checkpoints(), **training_graph(), **saved_model_of_1(), **saved_model_of_2()}
    text()
    np.savez_compressed(FOLDER / "values.npz", **found)


if __name__ == "__main__":
    main()
