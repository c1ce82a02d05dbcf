"""Runs TensorFlow's CPU kernels over `tests/support/math_cases.py` and stores what they return.

    python -m tests.data.record_math

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import sys

from tests.data.record_gradients import record, tf
from tests.support.gradient_cases import save_recording
from tests.support.math_cases import RECORDING, cases


def main() -> None:
    results = {case.id: record(case) for case in cases()}
    save_recording(RECORDING, results, tf.__version__)
    sys.stdout.write(f"{len(results)} cases, {RECORDING.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
