"""Gradients of normalizations: central differences, PyTorch for halves and twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import Array, check, run
from tests.support.operator_gradients import NEWEST, check_node, model_of, random

torch = pytest.importorskip("torch")

X = random(2, 4, 3, 2)
VECTORS = {"scale": random(4, seed=1), "bias": random(4, seed=2)}
MOMENTS = {"mean": random(4, seed=3), "variance": np.abs(random(4, seed=4)) + 0.3}


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("opset", [17, NEWEST])
@pytest.mark.parametrize("outputs", [("y",), ("y", "", "inverse"), ("y", "mean", "inverse")])
@pytest.mark.parametrize(("axis", "bias"), [(-1, True), (2, True), (-2, False), (0, False)])
def test_layer_normalization(axis: int, bias: bool, outputs: tuple[str, ...], opset: int, dims: str) -> None:
    x = random(2, 3, 4)
    shape = x.shape[axis:]
    feeds = {"x": x, "scale": random(*shape, seed=1), **({"bias": random(*shape, seed=2)} if bias else {})}
    twice = axis == -2 and dims == "open" and opset == NEWEST
    options = {"outputs": outputs, "axis": axis, "opset": opset, "dims": dims}
    if len(outputs) == 1:
        check_node("LayerNormalization", feeds, tolerance=1e-6, twice=twice, epsilon=0.01, **options)
    # Mean and deviation are of float32; differences of these are coarse.
    single = {name: value.astype(np.float32) for name, value in feeds.items()}
    model = model_of("LayerNormalization", single, epsilon=0.1, **options)
    for output in model.graph.output:
        once = check(model, single, of=output.name, step=0.02, tolerance=1e-3)
        if twice:
            y = run(model, single)[output.name]
            fed = {**single, f"seed/{output.name}": random(*y.shape, seed=9, dtype=np.float32)}
            check(once, fed, of="grad/x", step=0.02, tolerance=1e-3)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("axis", [-1, 1, -2])
def test_rms_normalization(axis: int, dims: str) -> None:
    x = random(2, 3, 4)
    feeds = {"x": x, "scale": random(*x.shape[axis:], seed=1)}
    check_node("RMSNormalization", feeds, axis=axis, dims=dims, epsilon=0.01, twice=dims == "open", tolerance=1e-6)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 2), (1, 4, 2, 3, 2)])
def test_instance_normalization(shape: tuple[int, ...], dims: str) -> None:
    feeds = {"x": random(*shape), **VECTORS}
    check_node("InstanceNormalization", feeds, single=True, dims=dims, twice=len(shape) == 3, tolerance=1e-6)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("opset", [21, NEWEST])
@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 2)])
def test_group_normalization(shape: tuple[int, ...], opset: int, dims: str) -> None:
    feeds = {"x": random(*shape), **VECTORS}
    # It is computed in float64.
    options = {"stash_type": 11, "num_groups": 2, "epsilon": 0.01, "opset": opset, "dims": dims}
    check_node("GroupNormalization", feeds, twice=len(shape) == 3, tolerance=1e-6, **options)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 2)])
def test_scales_of_groups(shape: tuple[int, ...], dims: str) -> None:
    feeds = {"x": random(*shape), "scale": random(2, seed=1), "bias": random(2, seed=2)}
    options = {"num_groups": 2, "epsilon": 0.01, "opset": 18, "dims": dims}
    check_node("GroupNormalization", feeds, single=True, twice=len(shape) == 3, tolerance=1e-6, **options)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("opset", [13, 14, NEWEST])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_batch_normalization(shape: tuple[int, ...], opset: int, dims: str) -> None:
    feeds = {"x": random(*shape), **VECTORS, **MOMENTS}
    twice = opset == NEWEST and len(shape) == 3
    check_node("BatchNormalization", feeds, opset=opset, dims=dims, epsilon=0.01, twice=twice, tolerance=1e-6)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_batch_normalization_in_training(shape: tuple[int, ...], dims: str) -> None:
    feeds = {"x": random(*shape), **VECTORS, **MOMENTS}
    options = {"training_mode": 1, "momentum": 0.75, "epsilon": 0.01, "outputs": ("y", "mean1", "variance1")}
    twice = len(shape) == 3
    check_node("BatchNormalization", feeds, dims=dims, tolerance=1e-6, twice=twice, **options)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
def test_lp_normalization(axis: int, p: int, dims: str) -> None:
    check_node("LpNormalization", {"x": X}, axis=axis, p=p, dims=dims, twice=axis == 1, tolerance=1e-6)


def _check_single(op_type: str, x: Array, *, twice: bool, **options: Any) -> None:
    """In float32, where differences are coarse."""
    feeds = {"x": x.astype(np.float32)}
    once = check(model_of(op_type, feeds, **options), feeds, step=0.02, tolerance=5e-4)
    if twice:
        check(
            once,
            {**feeds, "seed/y": random(*x.shape, seed=1, dtype=np.float32)},
            of="grad/x",
            step=0.02,
            tolerance=2e-3,
        )


@pytest.mark.parametrize("axes", [None, [2, 3], [-1]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    attributes: dict[str, Any] = {} if axes is None else {"axes": axes}
    _check_single("MeanVarianceNormalization", X, twice=axes is None, **attributes)


@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int, dims: str) -> None:
    options = {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 0.7, "dims": dims}
    # onnx's evaluator adds up other channels.
    _check_single("LRN", random(2, 7, 3, 2), twice=size == 3, **options)


F = torch.nn.functional


def _half_layer(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], scale)


@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_halves_are_computed_in_float32(op_type: str) -> None:
    """Sums of 4096 products, and of 2048 rows, would be far off in float16."""
    x = (random(64, 4096) + 3).astype(np.float16)
    feeds: dict[str, Array] = {"x": x, "scale": random(4096, seed=1, dtype=np.float16)}
    gradient = ll.gradient(model_of(op_type, feeds), "y", ["x", "scale"], seeds=True)
    seed = random(64, 4096, seed=2, dtype=np.float16)
    found = run(gradient, {**feeds, "seed/y": seed})
    leaves = [torch.tensor(value.astype(np.float64), requires_grad=True) for value in feeds.values()]
    function = _half_layer if op_type == "LayerNormalization" else lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5)
    function(*leaves).backward(torch.tensor(seed.astype(np.float64)))
    for name, leaf in zip(feeds, leaves, strict=True):
        assert found[f"grad/{name}"].dtype == np.float16
        assert leaf.grad is not None
        np.testing.assert_allclose(found[f"grad/{name}"], leaf.grad.numpy(), rtol=2e-3, atol=2e-3)


def test_an_output_that_is_left_out_has_no_name_to_ask_for() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    g (float[2,3] x, float[3] s) => (float[2,3] y) { y, , d = LayerNormalization (x, s) }""")
    with pytest.raises(ll.InvalidInputError, match="wrt requires names of the model's values, such as x, s, got ''"):
        ll.gradient(model, "y", [""], seeds=True)
