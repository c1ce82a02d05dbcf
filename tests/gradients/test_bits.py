"""Gradients of what reads numbers as bits: there are none but of bits that stay what they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll

MASK = "k = Constant <value = int32 {2147483647}> ()"


def _model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 26]> g (float[N] x) => (float[N] y) {{ {body} }}'
    )


@pytest.mark.parametrize(
    "body",
    [
        f"b = BitCast <to = 6> (x) {MASK} c = BitwiseAnd (b, k) a = BitCast <to = 1> (c) y = Mul (a, x)",
        "b = BitCast <to = 6> (x) c = Cast <to = 1> (b) y = Mul (c, x)",
    ],
)
def test_arithmetic_by_bits_is_refused(body: str) -> None:
    """Its gradient is not zero: the first of them is that of Abs."""
    with pytest.raises(ll.UnsupportedOpError, match=r"BitCast '.': to, for the gradient.*written in arithmetic"):
        ll.gradient(_model(body), "y", ["x"], seeds=True)


@pytest.mark.parametrize(
    "body",
    [
        "b = BitCast <to = 1> (x) y = Mul (b, x)",
        "b = BitCast <to = 6> (x) y = Mul (x, x)",
        f"b = BitCast <to = 6> (x) {MASK} s = Less (b, k) c = Cast <to = 1> (s) d = Add (c, x) y = Mul (d, x)",
    ],
)
def test_bits_that_only_decide_are_steps(body: str) -> None:
    model = ll.gradient(_model(body), "y", ["x"], seeds=True)
    # onnxruntime has no BitCast yet; onnx's evaluator has one.
    x = np.asarray([1.5, -2.0, 0.25], np.float32)
    found = onnx.reference.ReferenceEvaluator(model).run(["grad/x"], {"x": x, "seed/y": np.ones_like(x)})[0]
    shift = 1 if "Less" in body else 0
    np.testing.assert_array_equal(found, 2 * x + shift)
