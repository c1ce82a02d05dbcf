"""Lets onnxruntime-training train, and stores losses, parameters and gradients.

    python tests/data/record_ort_training.py

Run from the repository's root in an environment as `record_onnxruntime_training.py` says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnxruntime.training import api, artifacts, onnxblock

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from ort_training_runs import RUNS, run

FOLDER = Path(__file__).with_name("ort_training")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in RUNS:
        np.savez_compressed(FOLDER / f"{name}.npz", **run(name, artifacts, onnxblock, api))


if __name__ == "__main__":
    main()
