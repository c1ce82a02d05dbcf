"""The rows of the matrix of providers that are not in Python compute what float64 says."""

from __future__ import annotations

import pytest

from benchmarks.providers import ROWS, block_backward, bundle, measured
from tests.anywhere.support import ROOT, chromium, node


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), [("Node", node), ("browser (Chromium, WASM)", chromium)])
def test_rows(name: str, program: object) -> None:
    node()
    assert callable(program)
    program()
    (row,) = [row for row in ROWS if row.name == name]
    step = bundle("bundle", ROOT / "examples/keras_digits/digits_train.onnx")
    for subject, schedule in ((block_backward((4, 2, 3, 5)), "unroll"), (step, "auto")):
        line = measured(subject, row, schedule, 1)
        assert line["loads"], line
        assert line["right"], line
