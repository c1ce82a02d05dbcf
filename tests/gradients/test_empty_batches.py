"""Gradients of a batch without samples: nothing for the data, zeros for weights, whatever sizes are open."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import run

BODIES = {
    "GlobalMaxPool": "y = GlobalMaxPool(x)",
    "Conv": "y = Conv<group = 2>(x, w)",
    "ConvTranspose": "y = ConvTranspose<group = 2>(x, w)",
    "MatMul": "m = ReduceMean<keepdims = 0>(w, a) y = MatMul(x, m)",
    "linear": 'y = Resize<mode = "linear">(x, , s)',
    "cubic": 'y = Resize<mode = "cubic">(x, , s)',
    "antialias": 'y = Resize<mode = "linear", antialias = 1>(x, , half)',
}
INITIALIZERS = "float[4] s = {1, 1, 2, 2}, float[4] half = {1, 1, 0.5, 0.5}, int64[2] a = {0, 1}"


@pytest.mark.parametrize("sizes", ["N, 4, 3, 3", "N, C, H, W"])
@pytest.mark.parametrize("name", BODIES)
def test_a_batch_without_samples(name: str, sizes: str) -> None:
    graph = f"agraph (float[{sizes}] x, float[4, 2, 3, 3] w) => (float[a, b, c, d] y) <{INITIALIZERS}>"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {graph} {{ {BODIES[name]} }}')
    feeds = {"x": np.zeros((0, 4, 3, 3), np.float32), "w": np.ones((4, 2, 3, 3), np.float32)}
    made = run(model, feeds)["y"]
    found = run(ll.gradient(model, of="y", wrt=["x", "w"], seeds=True), {**feeds, "seed/y": made})
    assert found["grad/x"].shape == feeds["x"].shape
    assert found["grad/w"].shape == feeds["w"].shape
    assert not found["grad/w"].any()
