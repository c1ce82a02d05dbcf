"""Carried sums become sums behind the loop only where onnxruntime sums up as it adds."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import lstm_lower as ll
from tests.support.loop_checks import run

SUMS = {
    "of elements": "s2 = Add(s, t)",
    "of products": "p = MatMul(t, w) s2 = Add(s, p)",
    "of what stays the same": "s2 = Add(s, w)",
}


@pytest.mark.parametrize("step", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_beyond_their_range_wrap(dtype: str, step: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    loops ({dtype}[5,3,3] x, {dtype}[3,3] first, {dtype}[3,3] w) => ({dtype}[3,3] last) {{
      last = Scan <num_scan_inputs = 1, body = step ({dtype}[3,3] s, {dtype}[3,3] t) => ({dtype}[3,3] s2) {{ {step} }}>
        (first, x) }}"""
    model = parser.parse_model(text)
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(0).integers(limits.min, limits.max, (7, 3, 3), np.dtype(dtype))
    feeds = {"x": numbers[:5], "first": numbers[5], "w": numbers[6]}
    for optimised in (False, True):
        after = run(ll.optimize(model), feeds, optimised=optimised)
        np.testing.assert_array_equal(after[0], run(model, feeds, optimised=False)[0])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
def test_a_reduction_of_one_large_integer_is_rounded_as_before(op: str) -> None:
    """onnxruntime reduces integers as doubles, also where there is nothing to add."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    loops (int64[1] n, float[2] x) => (int64[1] total, float[2] last) {{
      total = {op} (n)
      last = Scan <num_scan_inputs = 1, body = step (float t) => (float u) {{ u = Neg(t) }}> (x) }}"""
    model = parser.parse_model(text)
    feeds = {"n": np.array([2**62 + 1]), "x": np.zeros(2, np.float32)}
    after = run(ll.optimize(model), feeds, optimised=False)
    np.testing.assert_array_equal(after[0], run(model, feeds, optimised=False)[0])
