"""Gradients of poolings, most of them linear or linear in pieces: differences in float32 are exact but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.differences import Array, check, opened, run
from tests.support.operator_gradients import NEWEST, check_node, evaluated, model_of, random

torch = pytest.importorskip("torch")

# Shape of the image, attributes.
WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one": ((2, 3, 9), {"kernel_shape": [3]}),
    "two": ((2, 3, 6, 5), {"kernel_shape": [3, 2]}),
    "pads": ((2, 3, 6, 5), {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1]}),
    "strides": ((2, 3, 8, 9), {"kernel_shape": [2, 3], "strides": [2, 3]}),
    "overlapping_strides": ((2, 3, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "elements_never_met": ((2, 3, 8, 9), {"kernel_shape": [1, 2], "strides": [3, 4]}),
    "ceil": ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    "ceil_pads": ((2, 3, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]}),
    "dilations": ((2, 3, 8, 9), {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [1, 2]}),
    "same_upper": ((2, 3, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((2, 3, 7, 8), {"kernel_shape": [2, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "valid": ((2, 3, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 3], "auto_pad": "VALID"}),
    "three": ((1, 2, 5, 4, 6), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
}
TWICE = ("ceil_pads", "same_lower", "dilations")


def _check(op_type: str, x: Array, *, open_sizes: bool, twice: bool, step: float, **options: Any) -> None:
    model = model_of(op_type, {"x": x}, dims="open" if open_sizes else "static", **options)
    linear = {"step": step, "tolerance": 5e-5}
    once = check(model, {"x": x}, **linear)
    if twice:
        seed = {"seed/y": random(*run(model, {"x": x})["y"].shape, seed=3, dtype=x.dtype)}
        check(once, {"x": x, **seed}, of="grad/x", **linear)


def _distinct(*shape: int) -> Array:
    """Numbers that lie apart from one another."""
    return np.random.default_rng(3).permutation(int(np.prod(shape))).reshape(shape).astype(np.float64)


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("opset", [13, NEWEST])
@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool(name: str, opset: int, open_sizes: bool) -> None:
    shape, attributes = WINDOWS[name]
    options = {"opset": opset, **attributes}
    _check("MaxPool", _distinct(*shape), open_sizes=open_sizes, twice=name in TWICE, step=0.05, **options)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_whose_places_are_read(storage_order: int) -> None:
    x = _distinct(2, 3, 6, 5)
    attributes = {"kernel_shape": [2, 2], "storage_order": storage_order}
    model = model_of("MaxPool", {"x": x}, outputs=("y", "places"), **attributes)
    before = run(model, {"x": x})["places"]
    once = check(model, {"x": x}, step=0.05)
    after = run(once, {"x": x, "seed/y": np.ones((2, 3, 5, 4))})["places"]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_average_pool(name: str, open_sizes: bool, include: int) -> None:
    shape, attributes = WINDOWS[name]
    x = random(*shape, dtype=np.float32)
    options = {"count_include_pad": include, **attributes}
    _check("AveragePool", x, open_sizes=open_sizes, twice=name in TWICE, step=0.5, **options)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", ["one", "pads", "overlapping_strides", "ceil", "dilations", "same_lower", "three"])
def test_lp_pool(name: str, p: int) -> None:
    shape, attributes = WINDOWS[name]
    x = np.sign(random(*shape)) * (np.abs(random(*shape)) + 0.2)
    if "ceil_mode" in attributes:
        # onnx's evaluator counts windows another way.
        single = {"x": x.astype(np.float32)}
        check(model_of("LpPool", single, p=p, **attributes), single, step=0.02, tolerance=2e-4)
        return
    check_node("LpPool", {"x": x}, single=True, dims="static", p=p, **attributes)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 2, 4)])
@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global(op_type: str, shape: tuple[int, ...]) -> None:
    # The runtime has no GlobalLpPool.
    x = (_distinct(*shape) / 16).astype(np.float32)
    if op_type != "GlobalLpPool":
        _check(op_type, x, open_sizes=True, twice=True, step=0.01)
        return
    for p in (1, 2, 3):
        model = model_of(op_type, {"x": x}, p=p)
        gradient = ll.gradient(model, "y", ["x"], seeds=True)
        assert [value.name for value in gradient.graph.output] == ["y", "grad/x"]


def test_max_unpool() -> None:
    x, pooled = _distinct(1, 2, 4, 6).astype(np.float32), random(1, 2, 2, 3, dtype=np.float32)
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    places = run(model_of("MaxPool", {"x": x}, outputs=("y", "places"), **windows), {"x": x})["places"]
    feeds = {"x": pooled, "places": places}
    check(model_of("MaxUnpool", feeds, **windows), feeds, step=0.5, tolerance=1e-5)


@pytest.mark.parametrize("engine", [opened, evaluated])
@pytest.mark.parametrize("shape", [[1, 2, 4, 6], [1, 2, 6, 6], [1, 2, 5, 8]])
def test_max_unpool_into_a_given_shape(shape: list[int], engine: Any) -> None:
    """The runtimes differ in where they put elements: the gradient is that of the one that runs it."""
    x, pooled = _distinct(1, 2, 4, 6).astype(np.float32), random(1, 2, 2, 3, dtype=np.float32)
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    places = run(model_of("MaxPool", {"x": x}, outputs=("y", "places"), **windows), {"x": x})["places"]
    feeds = {"x": pooled, "places": places, "shape": np.asarray(shape)}
    check(model_of("MaxUnpool", feeds, **windows), feeds, step=0.5, tolerance=1e-5, engine=engine)


F = torch.nn.functional


@pytest.mark.parametrize("op_type", ["MaxPool", "GlobalMaxPool"])
def test_the_first_of_equal_elements_is_the_largest(op_type: str) -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    attributes = {"kernel_shape": [2, 2], "strides": [1, 1]} if op_type == "MaxPool" else {}
    function = (lambda x: F.max_pool2d(x, 2, 1)) if op_type == "MaxPool" else lambda x: F.adaptive_max_pool2d(x, 1)
    leaf = torch.tensor(x, requires_grad=True)
    y = function(leaf)
    y.sum().backward()
    assert leaf.grad is not None
    gradient = ll.gradient(model_of(op_type, {"x": x}, **attributes), "y", ["x"], seeds=True)
    found = run(gradient, {"x": x, "seed/y": np.ones(y.shape, np.float32)})
    np.testing.assert_array_equal(found["grad/x"], leaf.grad.numpy())


def test_global_lp_pool_is_the_norm() -> None:
    """Against ReduceL2, whose gradient is checked elsewhere."""
    x, seed = random(2, 3, 4, 5, dtype=np.float32), random(2, 3, 1, 1, seed=1, dtype=np.float32)
    gradient = ll.gradient(model_of("GlobalLpPool", {"x": x}), "y", ["x"], seeds=True)
    norm = np.sqrt((x * x).sum((2, 3), keepdims=True))
    pool = next(node for node in gradient.graph.node if node.op_type == "GlobalLpPool")
    gradient.graph.node.remove(pool)
    gradient.graph.input.append(gradient.graph.output.pop(0))
    found = run(gradient, {"x": x, "y": norm, "seed/y": seed})["grad/x"]
    np.testing.assert_allclose(found, x / norm * seed, rtol=1e-5)
