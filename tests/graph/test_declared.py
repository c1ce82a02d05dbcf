"""What a model declares of its values has to agree with what follows from their operands."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import lstm_lower as ll

MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    declared (float[N, 3] x) => ({result} y)
    <{inner} t>
    {{
        t = Transpose(x)
        y = MatMul(x, t)
    }}
"""


@pytest.mark.parametrize(
    ("inner", "result", "message"),
    [
        ("float[2, N]", "float[N, N]", r"Transpose.*'t' requires shape \[3, N\].*got \[2, N\]"),
        ("float[3]", "float[N, N]", r"Transpose.*'t' requires shape \[3, N\].*got \[3\]"),
        ("double[3, N]", "float[N, N]", r"Transpose.*'t' requires type FLOAT.*got DOUBLE"),
        ("float[3, N]", "float[N]", r"MatMul.*'y' requires shape \[N, N\].*got \[N\]"),
    ],
)
def test_a_contradiction_is_named(inner: str, result: str, message: str) -> None:
    model = onnx.parser.parse_model(MODEL.format(inner=inner, result=result))
    for convert in (ll.lower, ll.optimize):
        with pytest.raises(ll.InvalidModelError, match=message):
            convert(model)


@pytest.mark.parametrize("inner", ["float[3, N]", "float[3, M]", "float[3, 5]"])
def test_what_may_be_true_is_kept(inner: str) -> None:
    model = onnx.parser.parse_model(MODEL.format(inner=inner, result="float[N, N]"))
    for convert in (ll.lower, ll.optimize):
        onnx.checker.check_model(convert(model), full_check=True)


def test_a_number_stays_where_a_name_follows() -> None:
    """A Loop without any iteration gives the sizes that its body declares."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[B,H] x) => (float[?,?,?] y) <int64 none = {0}, bool yes = {1}>
    { y = Loop (none, yes) <body = step (int64 i, bool c) => (bool d, float[3,2] z)
        { d = Identity(c) z = Identity(x) }> }"""
    feeds = {"x": np.zeros((3, 2), np.float32)}
    assert ll.Session(ll.optimize(onnx.parser.parse_model(text))).run(feeds)["y"].shape == (0, 3, 2)
