"""Runs TensorFlow's CPU kernels over `tests/support/gradient_cases.py` and stores what they return.

    python -m tests.data.record_gradients

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

from lstm_lower.opdef import REGISTRY
from tests.support.gradient_cases import RECORDING, Array, Case, cases, save_recording

# tf2onnx writes dtype attributes as ONNX's numbers.
_DTYPES = {6: tf.int32, 7: tf.int64}


def record(case: Case) -> dict[str, Array]:
    """Calls the raw op; a case's results by name, numbered where they are a list."""
    operands = {
        name: [tf.constant(part) for part in value] if isinstance(value, list) else tf.constant(value)
        for name, value in case.operands.items()
    }
    attributes = {
        name: _DTYPES[value] if name in ("out_type", "out_idx") else value for name, value in case.attributes.items()
    }
    results: Any = getattr(tf.raw_ops, case.op)(**operands, **attributes)
    if hasattr(results, "_asdict"):
        return {name: value.numpy() for name, value in results._asdict().items()}
    names = output_names(case.op)
    if isinstance(results, list):
        return {f"{names}[{number}]": value.numpy() for number, value in enumerate(results)}
    return {names: results.numpy()}


def output_names(op: str) -> str:
    """The name of an op's only output, or list of outputs."""
    return REGISTRY[op].outputs[0].name


def main() -> None:
    results = {case.id: record(case) for case in cases()}
    save_recording(RECORDING, results, tf.__version__)
    sys.stdout.write(f"{len(results)} cases, {RECORDING.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
