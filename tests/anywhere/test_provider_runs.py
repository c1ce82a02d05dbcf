"""The rows of the matrix of providers that are not in Python compute what float64 says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.providers import ROWS, block_backward, bundle, measured
from lstm_lower.errors import InvalidInputError
from tests.anywhere.support import ROOT, chromium, node


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "program"),
    [("Node", node), ("browser (Chromium, WASM)", chromium), ("browser (Chromium, WebGPU)", chromium)],
)
def test_rows(name: str, program: object) -> None:
    node()
    assert callable(program)
    program()
    (row,) = [row for row in ROWS if row.name == name]
    step = bundle("bundle", ROOT / "examples/keras_digits/digits_train.onnx")
    for subject in (block_backward((4, 2, 3, 5)), step):
        line = measured(subject, row, "unroll" if subject is not step else row.schedules[0], 1)
        assert line["loads"], line
        assert line["right"], line


@pytest.mark.slow
def test_what_a_browser_says_of_a_model_that_it_does_not_take() -> None:
    node()
    chromium()
    (row,) = [row for row in ROWS if row.name == "browser (Chromium, WebGPU)"]
    wide = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (double[2] x) => (double[2] y) { y = Neg(x) }'
    )
    with pytest.raises(InvalidInputError, match="Can't create a session"):
        row.run(wide, {"x": np.ones(2)}, 1)
