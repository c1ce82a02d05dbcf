"""What is done with a seed of the kind `tensorflow`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tests.support.fuzz.tf_programs.forms import built, feeds_of
from tests.support.fuzz.tf_programs.judging import Finding, judged, judged_keras
from tests.support.fuzz.tf_programs.programs import Program, program
from tests.support.fuzz.tf_programs.reducing import reduced
from tests.support.fuzz.worker import Stage

tf.get_logger().setLevel("CRITICAL")


def answer(seed: int, known: list[str], stage: Stage) -> dict[str, Any]:
    """The program of a seed next to TensorFlow; of ten, one is a model of Keras, which is not made smaller."""
    if seed % 10 == 3:
        found = judged_keras(seed, stage)
        if found.failed:
            finding = {"case": "keras", "kind": found.kind, "detail": found.detail}
            return {"verdict": "failed", "findings": [finding]}
        return _counted(found)
    stage("original")
    made = program(seed)
    found = judged(made, stage)
    if not found.failed:
        return _counted(found)
    files = {}
    if found.kind not in known:
        stage(f"original, being reduced after {found.kind}")
        made = reduced(made, found, judged)
        files = _files(made)
    finding = {"case": made.form, "kind": found.kind, "detail": found.detail, "files": files}
    return {"verdict": "failed", "findings": [finding]}


def _counted(found: Finding) -> dict[str, Any]:
    reason = f"{found.kind}: {unnumbered(found.detail)}"[:160]
    return {"verdict": found.kind, "counts": {} if found.kind == "passed" else {reason: 1}}


def unnumbered(text: str) -> str:
    """A reason without the names and numbers of the program that it is about."""
    return re.sub(r"'[^']*'|\d+", "_", text)


def _files(made: Program) -> dict[str, str]:
    held = io.BytesIO()
    np.savez(held, **feeds_of(made)[0])
    with tempfile.TemporaryDirectory() as name:
        graph = built(made, Path(name)).graph_def
    texts = {".txt": made.describe().encode(), ".pb": graph.SerializeToString(), ".npz": held.getvalue()}
    return {name: text.hex() for name, text in texts.items()}
