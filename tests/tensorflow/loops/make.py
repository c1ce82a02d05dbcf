"""Makes training graphs with TensorFlow and records three steps of each, in a process of its own.

    python -m tests.tensorflow.loops.make FOLDER [NAME ...]

Without names they come line by line on standard input, and each is answered by a line: nothing, or what went wrong.
Of `v1/gru/lengths/adam` come `v1-gru-lengths-adam.meta`, a checkpoint, and `.npz` with what was fed, losses and
variables.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.tensorflow.loops.cells import model
from tests.tensorflow.loops.forms import FORMS
from tests.tensorflow.loops.kit import Feeds, Kit


def optimizer(v1: Any, name: str) -> Any:
    train = v1.train
    return {
        "sgd": lambda: train.GradientDescentOptimizer(0.1),
        "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
        "rmsprop": lambda: train.RMSPropOptimizer(0.01),
        "adam": lambda: train.AdamOptimizer(0.01),
    }[name]()


def make(tf: Any, folder: Path, name: str) -> None:
    """Makes one graph and records its steps."""
    v1 = tf.compat.v1
    kind, what, *options = name.split("/")
    frames = kind == "v1"
    (v1.disable_control_flow_v2 if frames else v1.enable_control_flow_v2)()
    (v1.disable_resource_variables if frames else v1.enable_resource_variables)()
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(3)
        random.seed(3)  # from which initializers of Keras without a seed take theirs
        kit = Kit(tf, frames)
        if options:
            loss, feeds = model(kit, what, lengths=options[0] == "lengths")
        else:
            loss, feeds = FORMS[what](kit)
        loss = tf.identity(loss, name="loss")
        if not any(op.name == "train" for op in graph.get_operations()):
            optimizer(v1, options[1] if options else "adam").minimize(loss, name="train")
        _record(v1, graph, folder / name.replace("/", "-"), loss, feeds)


def _record(v1: Any, graph: Any, path: Path, loss: Any, feeds: Feeds) -> None:
    train = graph.get_operation_by_name("train")
    variables = v1.global_variables()
    saver = v1.train.Saver()
    recorded: dict[str, Any] = {}
    # TensorFlow's improver of graphs takes longer than the steps.
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(config=config) as session:
        session.run(v1.global_variables_initializer())
        saver.save(session, str(path), write_state=False)
        for step, fed in enumerate(feeds):
            found, _ = session.run([loss, train], fed)
            recorded |= {f"in{step}/{key.name}": value for key, value in fed.items()}
            recorded[f"loss{step}"] = found
            recorded |= {
                f"var{step}/{v.name}": value for v, value in zip(variables, session.run(variables), strict=True)
            }
    np.savez(path.with_suffix(".npz"), **recorded)


def main() -> None:
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    warnings.simplefilter("ignore")
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever TensorFlow prints
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity("ERROR")
    tf.compat.v1.disable_eager_execution()
    folder = Path(sys.argv[1])
    for line in sys.argv[2:] or sys.stdin:
        try:
            make(tf, folder, line.strip())
            answer = ""
        except Exception as error:  # noqa: BLE001
            answer = f"{type(error).__name__}: {error}".replace("\n", " ")
        os.write(answers, f"{answer}\n".encode())


if __name__ == "__main__":
    main()
