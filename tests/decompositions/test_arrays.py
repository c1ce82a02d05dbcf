"""Operators on arrays, written in those that every target has, compute the same in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from lstm_lower.passes.decompositions.decompose import DecomposePass
from tests.support.loop_checks import run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)
OPEN = np.array([[np.nan, np.inf, 1], [-np.inf, 2, np.nan]], np.float32)
ROWS = RNG.standard_normal((5, 3)).astype(np.float32)
# Twice the same row, the last one by its number from behind, and one that is nobody's.
NUMBERS = np.array([[0], [2], [2], [-1], [0]])


CASES = {
    "Size": ("(float[N,M] x) => (int64 y) { y = Size(x) }", {"x": X}),
    "Size of nothing": ("(float[N,M] x) => (int64 y) { y = Size(x) }", {"x": X[:0]}),
    "Size of a scalar": ("(float x) => (int64 y) { y = Size(x) }", {"x": X[0, 0]}),
    "Tile": ("(float[N,M] x) => (float[A,B] y) { r = Constant<value = int64[2] {2,3}>() y = Tile(x, r) }", {"x": X}),
    "Tile of nothing": ("(float[N,M] x) => (float[A,B] y) { r = Constant<value = int64[2] {1,3}>() y = Tile(x, r) }",
                        {"x": X[:0]}),
    "Tile once": ("(float[N,M] x) => (float[N,M] y) { r = Constant<value = int64[2] {1,1}>() y = Tile(x, r) }",
                  {"x": X}),
    "Max": ("(float[N,M] x, float[M] z) => (float[N,M] y) { a = Neg(x) y = Max(x, z, a) }", {"x": X, "z": X[0]}),
    "Max of NaN": ("(float[N,M] x, float[M] z) => (float[N,M] y) { y = Max(x, z) }", {"x": OPEN, "z": X[0]}),
    "Max of one": ("(float[N,M] x) => (float[N,M] y) { y = Max(x) }", {"x": X}),
    "Min": ("(float[N,M] x, float[M] z) => (float[N,M] y) { a = Neg(x) y = Min(a, x, z) }", {"x": X, "z": X[0]}),
    "Sum": ("(float[N,M] x, float[M] z) => (float[N,M] y) { a = Neg(x) y = Sum(a, z, x, x) }", {"x": X, "z": X[0]}),
    "Mean": ("(float[N,M] x, float[M] z) => (float[N,M] y) { a = Exp(x) y = Mean(a, z, x) }", {"x": X, "z": X[0]}),
    "Where": ("(bool[M] c, float[N,M] x, float z) => (float[N,M] y) { y = Where(c, x, z) }",
              {"c": np.array([True, False, True]), "x": OPEN, "z": np.float32(np.nan)}),
    "Where broadcast by the condition": ("(bool[N,1] c, float[M] x, float z) => (float[N,M] y) { y = Where(c, x, z) }",
                                          {"c": np.array([[True], [False]]), "x": OPEN[0], "z": np.float32(3)}),
    "ArgMax": ("(float[N,M] x) => (int64[N,1] y) { y = ArgMax<axis = -1>(x) }", {"x": X.round()}),
    "ArgMax of equal ones": ("(float[N,M] x) => (int64[M] y) { y = ArgMax<axis = 0, keepdims = 0>(x) }", {"x": X * 0}),
    "ArgMin": ("(float[N,M] x) => (int64[N] y) { y = ArgMin<axis = 1, keepdims = 0>(x) }", {"x": X}),
    "ScatterND": (
        "(float[V,H] d, int64[N,1] i, float[N,H] u) => (float[V,H] y) { y = ScatterND<reduction = \"add\">(d, i, u) }",
        {"d": np.ones((4, 3), np.float32), "i": NUMBERS, "u": ROWS}),
    "ScatterND of what is not finite": (
        "(float[4,3] d, int64[N,1] i, float[N,3] u) => (float[4,3] y) { y = ScatterND<reduction = \"add\">(d, i, u) }",
        {"d": np.ones((4, 3), np.float32), "i": NUMBERS[:2], "u": OPEN}),
    "ScatterND of numbers": (
        "(float[V] d, int64[N,1] i, float[N] u) => (float[V] y) { y = ScatterND<reduction = \"add\">(d, i, u) }",
        {"d": np.ones(4, np.float32), "i": NUMBERS, "u": ROWS[:, 0]}),
}  # fmt: skip
# Forms that the formula does not serve.
LEFT = {
    "ArgMax": ("(float[N,M] x) => (int64[N,1] y) { y = ArgMax<axis = 1, select_last_index = 1>(x) }", {"x": X}),
    "Tile": ("(float[N,M] x, int64[2] r) => (float[A,B] y) { y = Tile(x, r) }", {"x": X, "r": np.array([2, 1])}),
    "Tile none": ("(float[N,M] x) => (float[A,B] y) { r = Constant<value = int64[2] {0,1}>() y = Tile(x, r) }",
                  {"x": X}),
    "ScatterND": (
        "(float[V,H] d, int64[N,2] i, float[N] u) => (float[V,H] y) { y = ScatterND<reduction = \"add\">(d, i, u) }",
        {"d": X, "i": np.array([[0, 0]]), "u": X[0, :1]}),
}  # fmt: skip


def decomposed(name: str, text: str, opset: int) -> tuple[onnx.ModelProto, onnx.ModelProto, bool]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')
    work = ir.from_proto(model)
    kept = {node for node in work.graph if node.op_type == name.split(maxsplit=1)[0]}
    step = DecomposePass(lambda node: node in kept)
    step.verify_each = True
    modified = step(work).modified
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    return model, after, modified


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("opset", [16, 18, 21])
@pytest.mark.parametrize("name", CASES)
def test_the_formula(name: str, opset: int, *, optimised: bool) -> None:
    text, feeds = CASES[name]
    before, after, modified = decomposed(name, text, opset)
    assert modified
    arrays = {key: np.asarray(value) for key, value in feeds.items()}
    (expected,), (actual,) = run(before, arrays, optimised=optimised), run(after, arrays, optimised=optimised)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LEFT)
def test_other_forms_stay(name: str) -> None:
    assert not decomposed(name, LEFT[name][0], 18)[2]
