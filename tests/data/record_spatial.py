"""Runs TensorFlow's CPU kernels over `tests/support/spatial_cases.py` and stores what they return.

    python -m tests.data.record_spatial

Run from the repository's root with TensorFlow installed.
"""

from __future__ import annotations

import sys

from tests.data.record_gradients import record, tf
from tests.support.gradient_cases import Array, Case, save_recording
from tests.support.spatial_cases import RECORDING, cases, has_contents, on_cpu


def filled(case: Case) -> dict[str, Array]:
    """A case's results by name, without those that hold nothing."""
    return {name: value for name, value in record(case).items() if has_contents(case, name)}


def main() -> None:
    results = {case.id: filled(case) for case in cases() if on_cpu(case)}
    save_recording(RECORDING, results, tf.__version__)
    sys.stdout.write(f"{len(results)} cases, {RECORDING.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
