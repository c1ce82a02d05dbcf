"""Which tensors are known to hold one value everywhere, or nothing at all."""

from __future__ import annotations

import math

import onnx_ir as ir
import pytest
from onnx import parser

from lstm_lower.graph.facts import Facts


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = MatMul(x, nothing)", 0.0),
        ("m = MatMul(x, nothing) y = Pad(m, pads)", 0.0),
        ("m = MatMul(x, nothing) y = Pad(m, pads, one)", None),
        ("m = MatMul(x, nothing) y = ReduceMean <keepdims = 0> (m)", 0.0),
        ("m = MatMul(open, nothing) y = ReduceMean <keepdims = 0> (m)", None),
        ("m = MatMul(open, nothing) y = ReduceSum <keepdims = 0> (m)", 0.0),
        ("m = Mul(one, one) y = Sub(m, one)", 0.0),
        ("y = Mul(x, zero)", None),
        ("m = Mul(one, zero) y = Neg(m)", 0.0),
    ],
)
def test_uniform(nodes: str, expected: float | None) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, K] x, float[N, K] open) => (float[?] y)
    <float[0, 3] nothing = {{}}, int64[4] pads = {{1, 0, 0, 1}}, float one = {{1}}, float zero = {{0}}> {{ {nodes} }}"""
    model = ir.from_proto(parser.parse_model(text))
    assert Facts.of(model).uniform(model.graph.outputs[0]) == expected


def test_nothing_of_sizes_beyond_memory() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[0, {2**62}, {2**62}] x) => (float[?,?,?] y) {{ y = Abs(x) }}"""
    model = ir.from_proto(parser.parse_model(text))
    facts = Facts.of(model)
    assert facts.constant(model.graph.outputs[0]) is None
    assert facts.shape(model.graph.outputs[0]) == (0, 2**62, 2**62)


@pytest.mark.parametrize(
    ("dtype", "number", "nodes", "expected"),
    [
        ("float", 1e8, "m = Add(t, one) y = Sub(m, t)", 0.0),
        ("float", 1e30, "m = Mul(t, t) y = Mul(m, one)", math.inf),
        ("int64", 2**53 + 1, "y = Sub(t, one)", None),
        ("int32", 2**31 - 1, "y = Add(t, one)", -(2.0**31)),
        ("uint8", 255, "y = Add(one, t)", 0.0),
    ],
)
def test_values_are_computed_in_their_type(dtype: str, number: float, nodes: str, expected: float | None) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (bool[N] x) => ({dtype}[?] y) <{dtype} a = {{{number}}}, {dtype} one = {{1}}> {{
        s = Shape(x) t = Expand(a, s) {nodes} }}"""
    model = ir.from_proto(parser.parse_model(text))
    assert Facts.of(model).uniform(model.graph.outputs[0]) == expected
