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


def test_sums_of_products_of_factors_that_differ_in_size_stay() -> None:
    """What has another shape at every step has no sequence; what keeps its shape has, though nobody knows its size."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    loops (float[6,3] x, float[A,3] y, float[B,3] z, int64[T,1] lengths, float[3,3] first)
      => (float[3,3] last, float[3,3] same) {
      start = Constant <value_ints = [0]> ()
      last, same = Scan <num_scan_inputs = 1, body = step (float[3,3] s, float[3,3] u, int64[1] n)
        => (float[3,3] s2, float[3,3] u2) {
          piece = Slice (x, start, n)
          bent = Tanh (piece)
          turned = Transpose <perm = [1, 0]> (bent)
          p = MatMul (turned, piece)
          s2 = Add (s, p)
          scale = Cast <to = 1> (n)
          yz = Add (y, z)
          scaled = Mul (yz, scale)
          flat = Transpose <perm = [1, 0]> (scaled)
          q = MatMul (flat, yz)
          u2 = Add (u, q)
      }> (first, first, lengths) }"""
    model = parser.parse_model(text)
    random = np.random.default_rng(0)
    feeds = {
        name: random.standard_normal((n, 3)).astype("f") for name, n in (("x", 6), ("y", 1), ("z", 2), ("first", 3))
    }
    feeds["lengths"] = np.array([[2], [6], [1]])
    lowered = ll.optimize(model)
    for after, before in zip(run(lowered, feeds, optimised=False), run(model, feeds, optimised=False), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5)
    (scan,) = [node for node in lowered.graph.node if node.op_type == "Scan"]
    assert len(scan.output) == 1


def test_each_step_is_summed_up_by_itself() -> None:
    """As the loop did; all numbers one after another would be wrong by 1e-4."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    loops (float[T,50,3,3] x, float[3,3] first, float[50,3,3] sign) => (float[3,3] last, float[50,3,3] turned) {
      axes = Constant <value_ints = [0]> ()
      last, turned = Scan <num_scan_inputs = 1, body = step (float[3,3] s, float[50,3,3] c, float[50,3,3] t)
        => (float[3,3] s2, float[50,3,3] c2) {
          c2 = Neg (c)
          even = Mul (c, c2)
          signed = Mul (t, even)
          total = ReduceSum <keepdims = 0> (signed, axes)
          s2 = Add (s, total)
      }> (first, sign, x) }"""
    x = np.random.default_rng(0).uniform(0.111, 0.1111, (600, 50, 3, 3)).astype("f")
    feeds = {"x": x, "first": np.zeros((3, 3), "f"), "sign": np.ones((50, 3, 3), "f")}
    last, _ = run(ll.optimize(parser.parse_model(text)), feeds, optimised=True)
    np.testing.assert_allclose(last, -x.astype(float).sum((0, 1)), rtol=1e-5)
