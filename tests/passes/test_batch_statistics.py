"""Batch normalizations in training do not write over what they read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import parser

import lstm_lower as ll
from tests.support.differences import opened

# The scale equals the old mean, and the caller's variance is read again.
TRAINING = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[5,2] x, float[2] variance) => (float[5,2] z, float loss, float[2] again)
    <float[2] scale = {1, 1}, float[2] bias = {0.5, 2}, float[2] mean = {1, 1}> {
        y, new_mean, new_variance = BatchNormalization <training_mode = 1> (x, scale, bias, mean, variance)
        z = Mul (y, x) loss = ReduceSum <keepdims = 0> (z) again = Neg (variance)
    }""")


@pytest.mark.parametrize("made_by", [ll.optimize, lambda model: ll.gradient(model, "loss", "x")])
def test_runs_do_not_change_what_is_read(made_by: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    wanted = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) + [0.5, 2]) * x
    model, variance = made_by(TRAINING), np.float32([3, 4])
    for optimised in (False, True):
        run = opened(model, optimise=optimised)
        for _ in range(2):
            found = run({"x": x, "variance": variance})
            np.testing.assert_allclose(found["z"], wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found["again"], [-3, -4])
            np.testing.assert_array_equal(variance, [3, 4])


WITHIN = """float[5,2] x) => (float[5,2] y, float[2] again) <float[2] scale = {1, 1}, float[2] mean = {1, 1},
    float[2] zero = {0, 0}>"""
BEHIND_A_FUNCTION = f"""g ({WITHIN} {{
    given = local.twice (x)
    y, new_mean, new_variance = BatchNormalization <training_mode = 1> (given, scale, zero, mean, mean)
    again = Neg (scale)
}}
<opset_import: ["": 17], domain: "local"> twice (v) => (w) {{ w = Add (v, v) }}"""
IN_A_FUNCTION = f"""g ({WITHIN} {{
    y = local.normal <mode = 1> (x, scale, zero, mean)
    again = Neg (scale)
}}
<opset_import: ["": 17], domain: "local"> normal <mode> (x, scale, bias, mean) => (y) {{
    given = Add (x, x)
    y, new_mean, new_variance = BatchNormalization <training_mode: int = @mode> (given, scale, bias, mean, mean)
}}"""


@pytest.mark.parametrize("text", [BEHIND_A_FUNCTION, IN_A_FUNCTION])
@pytest.mark.parametrize("made_by", [ll.optimize, ll.lower])
def test_functions_go_where_nothing_is_known_of_what_is_normalized(
    made_by: Callable[[onnx.ModelProto], onnx.ModelProto], text: str
) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    run = opened(made_by(parser.parse_model(f'<ir_version: 10, opset_import: ["": 17, "local": 1]> {text}')))
    for _ in range(2):
        found = run({"x": x})
        np.testing.assert_allclose(found["y"], (x - x.mean(0)) / np.sqrt(x.var(0) + 2.5e-6), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found["again"], [-1, -1])


def test_statistics_of_halves_that_are_outputs() -> None:
    """onnxruntime casts what it makes of halves, and joins equal operands: the new variance overwrote the new mean."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[2,1] x, float16[1] s, float16[1] k) => (float16[2,1] y, float16[1] new_mean, float16[1] new_variance) {
        mean = Add (k, s) variance = Add (k, s)
        y, new_mean, new_variance = BatchNormalization <training_mode = 1> (x, s, s, mean, variance)
    }"""
    x, s, k = (np.array(value, np.float16) for value in ([[0], [0.75]], [0.5], [3]))
    for optimised in (False, True):
        found = opened(ll.optimize(parser.parse_model(text)), optimise=optimised)({"x": x, "s": s, "k": k})
        np.testing.assert_allclose(found["new_mean"], [3.5 * 0.9 + x.mean() * 0.1], rtol=1e-3)
        np.testing.assert_allclose(found["new_variance"], [3.5 * 0.9 + x.var() * 0.1], rtol=1e-3)
