"""Bernoulli as a comparison: 1 as often as its operand says, and anew for each node."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import lstm_lower as ll

NODES = {
    "float": "(float[N] p) => (float[N] y, float[N] z) { y = Bernoulli(p) z = Bernoulli(p) }",
    "double with a seed": "(double[N] p) => (double[N] y, int64[N] z) "
    "{ y = Bernoulli<seed = 2.0>(p) z = Bernoulli<dtype = 7>(p) }",
    "half": "(float16[N] p) => (float16[N] y, bool[N] z) { y = Bernoulli(p) z = Bernoulli<dtype = 9>(p) }",
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_ones_are_as_frequent_as_the_operand_says(name: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {NODES[name]}')
    lowered = ll.lower(model)
    onnx.checker.check_model(lowered, full_check=True)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    for share in (0.1, 0.9):
        found = ll.Session(lowered).run({"p": np.full(5000, share, dtype)})
        assert found["y"].dtype == dtype
        assert [float(drawn.astype(np.float64).mean()) for drawn in found.values()] == pytest.approx(
            [share] * 2, abs=0.03
        )
        assert (found["y"].astype(bool) != found["z"].astype(bool)).any()
