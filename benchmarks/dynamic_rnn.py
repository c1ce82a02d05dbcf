"""`python -m benchmarks dynamic-rnn`: a training step of TensorFlow 1's `dynamic_rnn`, next to TensorFlow's session.

TensorFlow makes the step, writes it as .meta file and checkpoint, and runs it; ours is what comes of these files. A
variant is a cell and a control flow: `v1` are frames and reference variables, `v2` functions and resources. Needs the
extra [tensorflow].
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.block import Case
from benchmarks.floors import Product
from benchmarks.processes import output_of

Array = np.ndarray[Any, Any]

CELLS = ("BasicLSTMCell", "LSTMBlockCell", "GRUCell")
VARIANTS = tuple(f"{cell}-{flow}" for cell in CELLS for flow in ("v1", "v2"))
RIVALS = {"dynamic_rnn": ("floor", "tensorflow")}
SHAPES = ("100,32,128,256",)
OUTPUTS = ("loss:0", "train")


def feeds(case: Case) -> dict[str, Array]:
    """What a step is fed with; the sequences lie batch by batch, as `dynamic_rnn` takes them."""
    T, B, I, H = case.shape  # noqa: E741
    random = np.random.default_rng(0)
    return {name: random.standard_normal((B, T, size), np.float32) for name, size in (("x:0", I), ("y:0", H))}


def floor_products(case: Case) -> list[Product]:
    """The products of forward pass, backward pass and weight gradient; nobody asks for the gradient of `x`."""
    T, B, I, H = case.shape  # noqa: E741
    # A GRU's candidate reads another state than its gates: what is reset.
    parts = (2, 1) if case.variant.startswith("GRU") else (4,)
    forward = [Product((B, H), (H, part * H), T) for part in parts]
    backward = [Product((B, part * H), (part * H, H), T) for part in parts]
    weights = [Product((T * B, I + H), (T * B, part * H), turned=True) for part in parts]
    return [Product((T * B, I), (I, sum(parts) * H)), *forward, *backward, *weights]


def graph(case: Case) -> tuple[Any, Any]:
    """The graph of a step in TensorFlow, with operations `loss` and `train`, and a saver of its variables."""
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    warnings.simplefilter("ignore")
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.logging.set_verbosity("ERROR")
    v1.disable_eager_execution()
    cell, _, flow = case.variant.partition("-")
    (v1.disable_control_flow_v2 if flow == "v1" else v1.enable_control_flow_v2)()
    *_, features, units = case.shape
    start = v1.random_uniform_initializer(-0.1, 0.1, seed=0)
    with tf.Graph().as_default() as made, v1.variable_scope("", initializer=start, use_resource=flow == "v2"):
        x = v1.placeholder(tf.float32, [None, None, features], "x")
        y = v1.placeholder(tf.float32, [None, None, units], "y")
        own = cell == "LSTMBlockCell"
        step = _block_cell(tf, features, units) if own else getattr(v1.nn.rnn_cell, cell)(units)
        result, _ = v1.nn.dynamic_rnn(step, x, dtype=tf.float32)
        loss = tf.reduce_mean(tf.square(result - y), name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        saver = v1.train.Saver()
    return made, saver


def _block_cell(tf: Any, features: int, units: int) -> Any:
    """A cell that is the op LSTMBlockCell, and the gradient that TensorFlow 1 registered for it."""
    from tensorflow.python.framework import ops

    v1, names = tf.compat.v1, ("wci", "wcf", "wco")

    @ops.RegisterGradient("LSTMBlockCell")  # type: ignore[untyped-decorator]
    def gradient(op: Any, *grads: Any) -> Any:
        saved = dict(zip(("i", "cs", "f", "o", "ci", "co"), op.outputs, strict=False))
        operands = dict(zip(("x", "cs_prev", "h_prev", "w", *names, "b"), op.inputs, strict=True))
        cs_prev_grad, dgates, *_ = tf.raw_ops.LSTMBlockCellGrad(
            **operands, **saved, cs_grad=grads[1], h_grad=grads[6], use_peephole=False
        )
        xh_grad = tf.matmul(dgates, operands["w"], transpose_b=True)
        w_grad = tf.matmul(tf.concat([operands["x"], operands["h_prev"]], 1), dgates, transpose_a=True)
        x_grad, h_grad = xh_grad[:, :features], xh_grad[:, features:]
        return [x_grad, cs_prev_grad, h_grad, w_grad, None, None, None, tf.reduce_sum(dgates, 0)]

    class Cell(v1.nn.rnn_cell.RNNCell):  # type: ignore[misc, name-defined]
        state_size, output_size = (units, units), units

        def __call__(self, x: Any, state: Any) -> Any:
            with v1.variable_scope("lstm_cell", reuse=v1.AUTO_REUSE):
                w = v1.get_variable("kernel", [features + units, 4 * units])
                b = v1.get_variable("bias", [4 * units], initializer=v1.zeros_initializer())
            made = tf.raw_ops.LSTMBlockCell(
                x=x, cs_prev=state[0], h_prev=state[1], w=w, b=b, **dict.fromkeys(names, tf.zeros([units]))
            )
            return made.h, (made.cs, made.h)

    return Cell()


def in_tensorflow(case: Case, threads: int) -> Callable[[], Any]:
    """A step in TensorFlow's session, the state where the session keeps it; returns the loss."""
    made, _ = graph(case)
    import tensorflow as tf

    v1 = tf.compat.v1
    options = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    session = v1.Session(graph=made, config=options)
    with made.as_default():
        session.run(v1.global_variables_initializer())
    # Names are looked up once.
    run, fed = session.make_callable([OUTPUTS[0], OUTPUTS[1]], ["x:0", "y:0"]), feeds(case)
    return lambda: run(*fed.values())[0]


def write(prefix: str, variant: str, *shape: str) -> None:
    """Writes a step's .meta file and checkpoint."""
    made, saver = graph(Case("dynamic_rnn", tuple(map(int, shape)), variant))  # type: ignore[arg-type]
    import tensorflow as tf

    with tf.compat.v1.Session(graph=made) as session, made.as_default():
        session.run(tf.compat.v1.global_variables_initializer())
        saver.save(session, prefix, write_state=False)


def in_ours(case: Case, threads: int, schedule: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A step in a trainer, of files that TensorFlow writes in a process of its own; returns the loss."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "step")
        code = "import sys; from benchmarks.dynamic_rnn import write; write(*sys.argv[1:])"
        output_of(code, prefix, case.variant, *map(str, case.shape))
        return from_files(prefix, case, threads, schedule)


def from_files(prefix: str, case: Case, threads: int, schedule: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A step in a trainer, of a .meta file and a checkpoint; returns the loss."""
    import lstm_lower as ll
    from lstm_lower.runtime.session import default_options

    options, fed = default_options(), feeds(case)
    options.intra_op_num_threads = threads
    started = time.perf_counter()
    lowered = ll.lower(ll.from_tensorflow(f"{prefix}.meta", outputs=OUTPUTS, checkpoint=prefix), schedule=schedule)
    spent = time.perf_counter()
    trainer = ll.Trainer(lowered, session_options=options)
    # As in every race, all that is done before a session is made.
    facts = {"lower_s": spent - started, "load_s": time.perf_counter() - spent}
    return lambda: trainer.step(fed).loss, facts
