"""Gradients of reductions and of what looks along an axis: central differences, and PyTorch where there are kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from tests.support.differences import Array, run
from tests.support.operator_gradients import NEWEST, check_node, model_of, random

torch = pytest.importorskip("torch")

X = random(3, 2, 4)
POSITIVE = np.abs(X) + 0.2
REDUCTIONS = {
    "ReduceSum": X,
    "ReduceMean": X,
    "ReduceMax": X,
    "ReduceMin": X,
    "ReduceProd": X,
    "ReduceL1": np.where(np.abs(X) < 0.1, 0.3, X),
    "ReduceL2": X,
    "ReduceLogSum": POSITIVE,
    "ReduceLogSumExp": X,
    "ReduceSumSquare": X,
}


def _axes(op_type: str, axes: list[int] | None, opset: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """The axes as an operand or as an attribute."""
    if axes is None:
        return {}, {}
    if opset >= 18 or op_type == "ReduceSum":
        return {"axes": np.asarray(axes, np.int64)}, {}
    return {}, {"axes": axes}


@pytest.mark.parametrize("opset", [13, NEWEST])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]])
@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_axes(op_type: str, axes: list[int] | None, keepdims: int, opset: int) -> None:
    operand, attribute = _axes(op_type, axes, opset)
    feeds = {"x": REDUCTIONS[op_type], **operand}
    twice = axes == [1] and opset == NEWEST
    check_node(op_type, feeds, constants=tuple(operand), keepdims=keepdims, opset=opset, twice=twice, **attribute)


@pytest.mark.parametrize("dims", ["open", "unranked"])
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[], [1], [-1, 0]])
@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd"])
def test_axes_of_run_time(op_type: str, axes: list[int], keepdims: int, noop: int, dims: str) -> None:
    feeds = {"x": REDUCTIONS[op_type], "axes": np.asarray(axes, np.int64)}
    if not axes and noop and op_type == "ReduceL2":
        pytest.skip("without axes the runtime hands the operand on")
    check_node(op_type, feeds, keepdims=keepdims, noop_with_empty_axes=noop, dims=dims)


@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_unknown_rank(op_type: str) -> None:
    check_node(op_type, {"x": REDUCTIONS[op_type]}, dims="unranked", keepdims=0)


def test_product_over_axes_of_run_time_has_second_derivatives() -> None:
    x = np.array(X)
    x[1, 0, 2] = x[0, 1, 1] = x[2, 1, 1] = 0
    check_node("ReduceProd", {"x": x, "axes": np.asarray([2, 0])}, keepdims=0, dims="unranked", twice=True)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, -2])
@pytest.mark.parametrize("dims", ["open", "unranked"])
def test_softmax(op_type: str, axis: int | None, dims: str) -> None:
    check_node(op_type, {"x": X}, dims=dims, twice=axis is None, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("read_twice", [False, True])
@pytest.mark.parametrize("by_row", [True, False])
def test_what_is_chosen_behind_a_softmax(op_type: str, by_row: bool, read_twice: bool) -> None:
    """Rows that a mask hides as a whole are NaN; zeros in their place have no gradient."""
    shape = "N, 1" if by_row else "N, 4"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
    choice (double[N, 4] x, double[N, 4] bias, bool[{shape}] hidden, double[N, 4] w, double v) => (double loss)
    <double zero = {{0}}> {{
        scores = Add(x, bias)
        y = {op_type}(scores)
        z = Where(hidden, zero, y)
        weighted = Mul(z, w)
        total = ReduceSum<keepdims = 0>(weighted)
        {"square = Mul(y, y)" if read_twice else "square = Mul(z, z)"}
        second = ReduceSum<keepdims = 0>(square)
        scaled = Mul(second, v)
        loss = Add(total, scaled)
    }}""")
    x, w = random(5, 4, seed=1), random(5, 4, seed=2)
    bias = np.zeros((5, 4))
    if by_row and not read_twice:
        bias[[1, 3]] = -np.inf
    rows = np.asarray([False, True, False, True, True])
    hidden = rows[:, None] if by_row else rows[:, None] & (w > 0)
    feeds = {"x": x, "bias": bias, "hidden": hidden, "w": w, "v": np.asarray(0.3)}
    found = run(ll.gradient(model, "loss", ["x"]), feeds)["grad/x"]
    tensor = torch.tensor(x, requires_grad=True)
    # Rows without -inf, which PyTorch differentiates as well; the others' gradients are zero.
    seen = np.isfinite(bias).all(1)
    y = torch.nn.functional.softmax(tensor, -1) if op_type == "Softmax" else tensor.log_softmax(-1)
    z = torch.where(torch.tensor(hidden), 0.0, y)
    second = y if read_twice else z
    ((z * torch.tensor(w))[seen].sum() + 0.3 * (second * second)[seen].sum()).backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    feeds = {"x": X, "axis": np.asarray(1)}
    check_node("CumSum", feeds, exclusive=exclusive, reverse=reverse, twice=True)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(
    ("axis", "known", "dims"), [(0, True, "open"), (-1, True, "unranked"), (-2, False, "unranked")]
)
def test_cumprod(axis: int, known: bool, dims: str, exclusive: int, reverse: int) -> None:
    x = np.array(X)
    x[1, 0, 2] = 0
    x[0, 1, 1] = x[2, 1, 1] = 0
    feeds = {"x": x, "axis": np.asarray(axis)}
    constants = ("axis",) if known else ()
    form: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse, "opset": 26}
    model = model_of("CumProd", feeds, constants=constants, dims=dims, **form)
    gradient = ll.gradient(model, "y", ["x"], seeds=True)
    # The runtime has no CumProd yet, which its gradient does not read.
    gradient.graph.node.remove(next(node for node in gradient.graph.node if node.op_type == "CumProd"))
    del gradient.graph.output[0]
    gradient.opset_import[0].version = NEWEST
    seed = random(*x.shape, seed=1)
    found = run(gradient, {"x": x, "seed/y": seed} | ({} if known else {"axis": feeds["axis"]}))["grad/x"]
    leaf = torch.tensor(x, requires_grad=True)
    turned = leaf.flip(axis) if reverse else leaf
    if exclusive:
        size = x.shape[axis]
        turned = torch.cat([torch.ones_like(turned).narrow(axis, 0, 1), turned.narrow(axis, 0, size - 1)], axis)
    made = turned.cumprod(axis)
    (made.flip(axis) if reverse else made).backward(torch.tensor(seed))
    assert leaf.grad is not None
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-12, atol=1e-12)


def _empty() -> Array:
    return np.zeros((0, 3))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceProd"])
def test_empty(op_type: str) -> None:
    feeds = {"x": _empty(), "axes": np.asarray([0])}
    model = model_of(op_type, feeds, constants=("axes",))
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {"x": _empty(), "seed/y": np.ones((1, 3))})
    assert found["grad/x"].shape == (0, 3)


# The operator, points, PyTorch's function: what is equal shares, what is zero has a gradient of zero or shares too.
KINKS: dict[str, tuple[str, list[list[float]], Any]] = {
    "max_ties": ("ReduceMax", [[1, 2, 2], [3, 3, 3]], lambda x: x.amax(1)),
    "min_ties": ("ReduceMin", [[1, 1, 2], [3, 3, 3]], lambda x: x.amin(1)),
    "l2_of_zero": ("ReduceL2", [[0, 0, 0], [3, 4, 0]], lambda x: torch.linalg.vector_norm(x, dim=1)),
    "l1_of_zero": ("ReduceL1", [[0, 0, 0], [3, -4, 0]], lambda x: torch.linalg.vector_norm(x, ord=1, dim=1)),
    "prod_of_zero": ("ReduceProd", [[0, 2, 3], [0, 0, 3], [1, 2, 3]], lambda x: x.prod(1)),
    # The logarithm of a count is lost beside what stands for minus infinity: shares are 1 each.
    "lost": ("ReduceLogSumExp", [[-1e30, -1e30, -1e30], [-1e9, -1e9, -2e9], [-2e7, -2e7, 5]], lambda x: x.logsumexp(1)),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks_are_as_in_pytorch(name: str) -> None:
    op_type, points, function = KINKS[name]
    feeds = {"x": np.asarray(points, np.float32), "axes": np.asarray([1])}
    model = model_of(op_type, feeds, constants=("axes",), keepdims=0)
    seed = np.arange(1, len(points) + 1, dtype=np.float32)
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {"x": feeds["x"], "seed/y": seed})["grad/x"]
    leaf = torch.tensor(feeds["x"], requires_grad=True)
    function(leaf).backward(torch.tensor(seed))
    assert leaf.grad is not None
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("far", [1.0, 1e3, -1e4, -1e5])
def test_shares_of_a_sum_far_from_zero_keep_their_digits(far: float) -> None:
    points = (np.random.default_rng(0).normal(size=(50, 8)) + far).astype(np.float32)
    model = model_of("ReduceLogSumExp", {"x": points, "axes": np.asarray([1])}, constants=("axes",), keepdims=0)
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {"x": points, "seed/y": np.ones(50, np.float32)})["grad/x"]
    np.testing.assert_allclose(found, torch.tensor(points).double().softmax(1).numpy(), rtol=0, atol=5e-7)


def test_products_with_zeros_have_second_derivatives() -> None:
    x = np.asarray([[0.0, 2, 3, 4], [0, 0, 3, 4]])
    check_node("ReduceProd", {"x": x, "axes": np.asarray([1])}, constants=("axes",), twice=True)


@pytest.mark.parametrize("op_type", ["Hardmax", "ArgMax"])
def test_places_are_flat(op_type: str) -> None:
    x = X.astype(np.float32)
    model = model_of(op_type, {"x": x})
    if op_type == "ArgMax":
        with pytest.raises(ll.InvalidInputError, match="floating"):
            ll.gradient(model, "y", ["x"], seeds=True)
        return
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {"x": x, "seed/y": np.ones_like(x)})
    np.testing.assert_array_equal(found["grad/x"], np.zeros_like(x))
