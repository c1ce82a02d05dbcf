"""Gradients of operators that look elements up, or change them, against central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import run
from tests.support.one_node import check_node, one_node

torch = pytest.importorskip("torch")


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def _places(bound: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(bound).integers(-bound, bound, shape)


X = _random(3, 4, 2)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_gather(axis: int, shape: tuple[int, ...], opset: int) -> None:
    check_node("Gather", [X, _places(X.shape[axis], *shape)], axis=axis, opset=opset, twice=len(shape) == 2)


@pytest.mark.parametrize("place", [0, 1, -1, -2])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("sizes", ["3,4,2", "T,B,2"])
def test_gather_of_one_element(sizes: str, axis: int, place: int) -> None:
    """Zeros around its gradient: nothing needs to be added up."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]> one (double[{sizes}] x) => (double loss) {{
      place = Constant <value = int64 {{{place}}}> ()
      element = Gather <axis = {axis}> (x, place) y = Sin(element) loss = ReduceSum <keepdims = 0> (y) }}"""
    model = ll.gradient(onnx.parser.parse_model(text), of="loss", wrt=["x"])
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("Pad") == 1
    assert not any("Scatter" in operator for operator in operators)
    at = [slice(None)] * 3
    at[axis] = slice(place, place + 1 or None)
    expected = np.zeros_like(X)
    expected[tuple(at)] = np.cos(X[tuple(at)])
    np.testing.assert_allclose(run(model, {"x": X})["grad/x"], expected, rtol=1e-12)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("axis", "shape"), [(0, (5, 4, 2)), (1, (2, 7, 1)), (-1, (3, 4, 3))])
def test_gather_elements(axis: int, shape: tuple[int, ...], opset: int) -> None:
    check_node("GatherElements", [X, _places(X.shape[axis], *shape)], axis=axis, opset=opset, twice=True)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    ("batch", "shape"), [(0, (5, 1)), (0, (2, 2, 3)), (1, (3, 5, 1)), (1, (3, 2)), (2, (3, 4, 6, 1))]
)
def test_gather_nd(batch: int, shape: tuple[int, ...], opset: int) -> None:
    sizes = X.shape[batch : batch + shape[-1]]
    places = np.stack([_places(size, *shape[:-1]) for size in sizes], axis=-1)
    check_node("GatherND", [X, places], batch_dims=batch, opset=opset, twice=True)


def _distinct(axis: int, *shape: int) -> np.ndarray[Any, Any]:
    """Places along an axis, each once."""
    order = np.argsort(_random(*X.shape), axis)
    return order[tuple(slice(size) for size in shape)]


@pytest.mark.parametrize("opset", [13, 16, 18])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int, opset: int) -> None:
    places = _distinct(axis, 2, 3, 2)
    check_node("ScatterElements", [X, places, _random(2, 3, 2)], axis=axis, opset=opset, twice=True)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements_reduced(axis: int, reduction: str) -> None:
    shape = tuple(5 if i == axis % 3 else size for i, size in enumerate(X.shape))
    operands = [X, _places(X.shape[axis], *shape), _random(*shape)]
    check_node("ScatterElements", operands, axis=axis, reduction=reduction, twice=axis == 1)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(depth: int, reduction: str) -> None:
    if reduction == "none":
        places = np.asarray([[2, 1, 0], [0, 3, 1], [-2, 0, 1]])[:, :depth]
    else:
        places = np.stack([_places(size, 6) for size in X.shape[:depth]], axis=-1)
    updates = _random(len(places), *X.shape[depth:])
    check_node("ScatterND", [X, places, updates], reduction=reduction, twice=depth == 2)


@pytest.mark.parametrize("opset", [13, 16])
def test_scatter_nd_of_old_opsets(opset: int) -> None:
    check_node("ScatterND", [X, np.asarray([[2], [0]]), _random(2, 4, 2)], opset=opset, twice=True)


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [[], [1], [0, 1], [0, 1, 2], [0, 3]])
def test_products_with_zeros(zeros: list[int]) -> None:
    updates = _random(4)
    updates[zeros] = 0
    check_node("ScatterND", [_random(3), np.asarray([[0], [0], [0], [2]]), updates], reduction="mul", twice=True)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_ties_are_shared_as_in_torch(reduction: str) -> None:
    data, places, updates = np.asarray([1.0, 2, 3]), np.asarray([0, 0, 1, 2, 2]), np.asarray([1.0, 1, 2, 3, 3])
    model, feeds = one_node("ScatterElements", [data, places, updates], reduction=reduction)
    found = run(ll.gradient(model, "y", ["x0", "x2"], seeds=True), feeds | {"seed/y": np.ones(3)})
    x, u = torch.tensor(data, requires_grad=True), torch.tensor(updates, requires_grad=True)
    x.scatter_reduce(0, torch.tensor(places), u, f"a{reduction}").sum().backward()
    assert x.grad is not None
    assert u.grad is not None
    np.testing.assert_allclose(found["grad/x0"], x.grad.numpy())
    np.testing.assert_allclose(found["grad/x2"], u.grad.numpy())


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("axis", "count"), [(-1, 2), (1, 3), (0, 1)])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(axis: int, count: int, largest: int, opset: int) -> None:
    check_node("TopK", [X, np.asarray([count])], axis=axis, largest=largest, outputs=2, opset=opset, twice=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    # onnxruntime has no OneHot in float64; it is linear.
    operands = [np.asarray([[0, -1, 7], [2, 4, -9]]), np.asarray(5), _random(2).astype(np.float32)]
    check_node("OneHot", operands, axis=axis, twice=True, step=1e-1, tolerance=1e-5)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("axis", "starts"), [(-2, None), (1, [2, 0]), (2, [0, 3])])
def test_tensor_scatter(axis: int, starts: list[int] | None, mode: str) -> None:
    cache = _random(2, 5, 6, 3)
    updates = _random(2, 3, 6, 3) if axis == 1 else _random(2, 5, 3, 3)
    if mode == "circular" and starts is not None:
        starts = [start + 2 for start in starts]
    operands = [cache, updates, *([] if starts is None else [np.asarray(starts)])]
    check_node("TensorScatter", operands, axis=axis, mode=mode, opset=24, twice=starts is not None)


def test_rows_of_an_old_model_are_added_without_a_matrix() -> None:
    text = """<ir_version: 9, opset_import: ["" : 13]> g (float[N, 3] table, int64[M] places) => (float y) {
        rows = Gather (table, places)
        y = ReduceSum <keepdims = 0> (rows)
    }"""
    model = ll.gradient(onnx.parser.parse_model(text), "y", wrt=["table"])
    # Its threads would write to one place at once.
    assert "ScatterND" not in {node.op_type for node in model.graph.node}
    places = np.arange(200_000) % 100_000
    # A matrix of all places by all rows would take 80 GB.
    found = ll.Session(model).run({"table": np.zeros((100_000, 3), np.float32), "places": places})
    np.testing.assert_array_equal(found["grad/table"], np.full((100_000, 3), 2, np.float32))


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique(axis: int | None, ordered: int) -> None:
    form = {"sorted": ordered, "opset": 18, **({} if axis is None else {"axis": axis})}
    check_node("Unique", [X], twice=not ordered, **form)


@pytest.mark.parametrize(("axis", "expected"), [(None, [[1, 3, 0], [0, 2, 0]]), (0, [[1, 2, 3], [4, 5, 6]])])
def test_of_equal_elements_the_first_counts(axis: int | None, expected: list[list[float]]) -> None:
    x = np.asarray([[1.0, 3, 1], [1, 2, 3]])
    model, feeds = one_node("Unique", [x], **({} if axis is None else {"axis": axis}))
    feeds["seed/y"] = np.asarray([1.0, 2, 3]) if axis is None else np.asarray([[4.0, 5, 6], [1, 2, 3]])
    np.testing.assert_array_equal(run(ll.gradient(model, "y", ["x0"], seeds=True), feeds)["grad/x0"], expected)
