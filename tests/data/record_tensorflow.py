"""Runs TensorFlow's CPU kernels over `tests/support/tensorflow_cases.py` and stores what they return.

    python -m tests.data.record_tensorflow                              # the recording that the tests read
    python -m tests.data.record_tensorflow --output x.npz ID ID ...     # some cases, elsewhere

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import tensorflow as tf

from tests.support.tensorflow_cases import CASES, RECORDING, Case, Results, save_recording


def record(case: Case) -> Results:
    """Calls the raw op eagerly, where LSTMBlockCellGrad does not have the buffer fault it has inside graphs."""
    operands = {name: tf.constant(value) for name, value in case.operands().items()}
    outputs = getattr(tf.raw_ops, case.op)(**operands, **case.attributes)
    return {name: case.defined(name, value.numpy()) for name, value in outputs._asdict().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="ids of cases; all when none is given")
    parser.add_argument("--output", type=Path, default=RECORDING)
    arguments = parser.parse_args()
    unknown = set(arguments.ids) - {case.id for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    chosen = [case for case in CASES if not arguments.ids or case.id in arguments.ids]
    save_recording(arguments.output, {case.id: record(case) for case in chosen}, tf.__version__)
    sys.stdout.write(f"{len(chosen)} cases, {arguments.output.stat().st_size} bytes: {arguments.output}\n")


if __name__ == "__main__":
    main()
