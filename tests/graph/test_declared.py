"""What a model declares of its values has to agree with what follows from their operands."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.graph.verify import WrongShapeWarning

MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    declared (float[N, 3] x) => ({result} y)
    <{inner} t>
    {{
        t = Transpose(x)
        y = MatMul(x, t)
    }}
"""


def test_a_contradiction_is_named() -> None:
    model = onnx.parser.parse_model(MODEL.format(inner="double[3, N]", result="float[N, N]"))
    for convert in (ll.lower, ll.optimize):
        with pytest.raises(ll.InvalidModelError, match=r"Transpose.*'t' requires type FLOAT.*got DOUBLE"):
            convert(model)


@pytest.mark.parametrize("result", ["float[N]", "float[N, N, 2]"])
def test_a_wrong_shape_of_an_output_is_put_right_and_said(result: str) -> None:
    model = onnx.parser.parse_model(MODEL.format(inner="float[3, N]", result=result))
    for convert in (ll.lower, ll.optimize, functools.partial(ll.gradient, of="y", wrt=["x"], seeds=True)):
        with pytest.warns(WrongShapeWarning, match=r"output 'y' is declared with shape \[N.*made with \[N, N\]"):
            made = convert(model)
        onnx.checker.check_model(made, full_check=True)


@pytest.mark.parametrize("inner", ["float[2, N]", "float[3]"])
@pytest.mark.parametrize("verify_each", [False, True])
def test_wrong_shapes_of_inner_values_are_put_right(inner: str, *, verify_each: bool) -> None:
    """onnx's own inference declares some, and runtimes do not mind."""
    model = onnx.parser.parse_model(MODEL.format(inner=inner, result="float[N, N]"))
    optimized = ll.optimize(model, verify_each=verify_each)
    onnx.checker.check_model(optimized, full_check=True)
    (value,) = [value for value in optimized.graph.value_info if value.name == "t"]
    assert [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim] == [3, "N"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(ll.Session(optimized).run({"x": x})["y"], np.full((2, 2), 3, np.float32))


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


@pytest.mark.parametrize("declared", ["float[N]", "float[K]", "float[1, 2, 3, 4, 5]", "float[N, 2]"])
@pytest.mark.parametrize("last", ["Neg (z)", "Concat <axis = 0> (z, z)"])
def test_a_rank_that_a_squeeze_hides_is_not_believed(declared: str, last: str) -> None:
    """As exporters of PyTorch declare it by the names that they were given: of x[N, M, 1, 3] there is no [N]."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[N, M] x) => ({declared} y) <int64[1] axes = {{2}}, float[3] k = {{1, 2, 3}}>
    {{ a = Unsqueeze (x, axes) b = Mul (a, k) s = Squeeze (b) z = Mul (s, s) y = {last} }}""")
    with pytest.warns(WrongShapeWarning, match=r"'y' is declared with .*one of \[.*, M, 3\].*; axes of a Squeeze"):
        gradient = ll.Session(ll.gradient(model, "y", ["x"], seeds=True))
    for shape in ((2, 4), (1, 4), (2, 1), (1, 1)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        y = ll.Session(model).run({"x": x})["y"]
        found = gradient.run({"x": x, "seed/y": np.ones_like(y)})
        np.testing.assert_array_equal(found["y"], y)
        sign = {"N": -1, "C": 2}[last[0]]
        np.testing.assert_allclose(found["grad/x"], sign * 28 * x, rtol=1e-5)


@pytest.mark.parametrize(("declared", "known"), [("float[N, 3]", [["N", "M"], 3]), ("float[?, ?, 3]", ["N", "M", 3])])
def test_a_rank_that_a_squeeze_hides_is_believed_with_known_sizes(declared: str, known: list[object]) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[N, M] x) => ({declared} y) <int64[1] axes = {{2}}, float[3] k = {{1, 2, 3}}>
    {{ a = Unsqueeze (x, axes) b = Mul (a, k) s = Squeeze (b) y = Neg (s) }}""")
    seed = ll.gradient(model, "y", ["x"], seeds=True).graph.input[-1]
    found = [dim.dim_value or dim.dim_param for dim in seed.type.tensor_type.shape.dim]
    assert len(found) == len(known)
    assert all(a == b or a in (b if isinstance(b, list) else [""]) for a, b in zip(found, known, strict=True))
