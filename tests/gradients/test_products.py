"""Gradients of matrix products, of every rank and with every broadcast of batches."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import run
from tests.support.operator_gradients import check_node, model_of, random

SHAPES = {
    "vectors": ((4,), (4,)),
    "vector_matrix": ((4,), (4, 3)),
    "matrix_vector": ((2, 4), (4,)),
    "matrices": ((2, 4), (4, 3)),
    "vector_batch": ((4,), (5, 4, 3)),
    "batch_vector": ((5, 2, 4), (4,)),
    "batch_matrix": ((5, 2, 4), (4, 3)),
    "two_batches_matrix": ((2, 5, 2, 4), (4, 3)),
    "matrix_batch": ((2, 4), (5, 4, 3)),
    "batches": ((5, 2, 4), (5, 4, 3)),
    "broadcast_batches": ((5, 1, 2, 4), (6, 4, 3)),
    "broadcast_left": ((1, 2, 4), (5, 4, 3)),
    "broadcast_right": ((5, 6, 2, 4), (1, 4, 3)),
}


@pytest.mark.parametrize("dims", ["static", "open", "unranked"])
@pytest.mark.parametrize("name", SHAPES)
def test_matmul(name: str, dims: str) -> None:
    first, second = SHAPES[name]
    check_node("MatMul", {"a": random(*first), "b": random(*second, seed=1)}, dims=dims, twice=True)


@pytest.mark.parametrize("dims", ["static", "open", "unranked"])
@pytest.mark.parametrize(
    "shapes", [((0, 4), (4, 3)), ((2, 0), (0, 3)), ((0, 2, 4), (4, 3)), ((3, 0, 4), (4, 3)), ((2, 4), (4, 0))]
)
def test_matmul_of_nothing(shapes: tuple[tuple[int, ...], tuple[int, ...]], dims: str) -> None:
    feeds = {"a": random(*shapes[0]), "b": random(*shapes[1])}
    model = model_of("MatMul", feeds, dims=dims)
    seed = np.ones((feeds["a"] @ feeds["b"]).shape)
    found = run(ll.gradient(model, "y", ["a", "b"], seeds=True), {**feeds, "seed/y": seed})
    for name, value in feeds.items():
        np.testing.assert_array_equal(found[f"grad/{name}"], np.zeros(value.shape))


TRANSPOSED = "g (float[N,4] x, float[3,4] w) => (float[N,3] y) { t = Transpose <perm = [1, 0]> (w) y = MatMul(x, t) }"


def test_the_gradient_of_a_weight_that_is_read_transposed_is_transposed_nowhere() -> None:
    """It is larger than the rows that it is a product of."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {TRANSPOSED}')
    gradient = ll.gradient(model, "y", ["w"], seeds=True)
    x, w, dy = (random(*shape, seed=seed).astype(np.float32) for seed, shape in enumerate([(5, 4), (3, 4), (5, 3)]))
    found = run(gradient, {"x": x, "w": w, "seed/y": dy})
    np.testing.assert_allclose(found["grad/w"], dy.T @ x, rtol=1e-5)
    moved = [node.input[0] for node in gradient.graph.node if node.op_type == "Transpose"]
    assert sorted(moved) == ["seed/y", "w"]


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (3,), (1,), (2, 1), (1, 3), (2, 3)])
def test_gemm(trans_a: int, trans_b: int, bias: tuple[int, ...] | None) -> None:
    a, b = random(2, 4), random(4, 3, seed=1)
    feeds = {"a": a.T.copy() if trans_a else a, "b": b.T.copy() if trans_b else b}
    feeds |= {} if bias is None else {"c": random(*bias, seed=2)}
    scales = {} if bias in (None, (3,)) else {"alpha": 0.5, "beta": 0.25}
    for dims in ("static", "open"):
        check_node("Gemm", feeds, transA=trans_a, transB=trans_b, dims=dims, twice=bias == (1, 3), **scales)


@pytest.mark.parametrize("op_type", ["MatMulInteger", "ConvInteger"])
def test_products_of_integers_are_flat(op_type: str) -> None:
    shape = (1, 1, 4) if op_type == "ConvInteger" else (2, 2)
    graph = f"""<ir_version: 9, opset_import: ["" : 19]> g (float{list(shape)} x) => (float y) {{
      i = Cast <to = 3> (x)  p = {op_type} (i, i)  f = Cast <to = 1> (p)  y = ReduceSum <keepdims = 0> (f) }}"""
    found = run(ll.gradient(onnx.parser.parse_model(graph), "y", ["x"]), {"x": np.ones(shape, np.float32)})
    np.testing.assert_array_equal(found["grad/x"], np.zeros(shape, np.float32))
