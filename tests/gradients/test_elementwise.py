"""Gradients of operators that treat every element alike: central differences, and PyTorch where there are kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from tests.support.differences import Array, run
from tests.support.operator_gradients import NEWEST, check_node, evaluated, model_of, random

torch = pytest.importorskip("torch")

X = random(3, 4) + 0.05
INSIDE = np.tanh(X) * 0.9
SIGNED = np.where(np.abs(X) < 0.1, 0.3, X)

# Operator, operand, attributes, whether the runtime has it in float64.
UNARY: dict[str, tuple[str, Array, dict[str, Any], bool]] = {
    "neg": ("Neg", X, {}, True),
    "abs": ("Abs", SIGNED, {}, True),
    "acos": ("Acos", INSIDE, {}, False),
    "acosh": ("Acosh", np.abs(X) + 1.2, {}, False),
    "asin": ("Asin", INSIDE, {}, False),
    "asinh": ("Asinh", X, {}, False),
    "atan": ("Atan", X, {}, False),
    "atanh": ("Atanh", INSIDE, {}, False),
    "cos": ("Cos", X, {}, True),
    "cosh": ("Cosh", X, {}, False),
    "erf": ("Erf", X, {}, False),
    "exp": ("Exp", X, {}, True),
    "log": ("Log", np.abs(X) + 0.1, {}, True),
    "reciprocal": ("Reciprocal", SIGNED, {}, True),
    "sigmoid": ("Sigmoid", X, {}, True),
    "sin": ("Sin", X, {}, True),
    "sinh": ("Sinh", X, {}, False),
    "softplus": ("Softplus", X, {}, False),
    "softsign": ("Softsign", SIGNED, {}, False),
    "sqrt": ("Sqrt", np.abs(X) + 0.1, {}, True),
    "tan": ("Tan", INSIDE, {}, False),
    "tanh": ("Tanh", X, {}, True),
    "relu": ("Relu", SIGNED, {}, True),
    "elu": ("Elu", SIGNED, {"alpha": 1.5}, False),
    "elu_plain": ("Elu", SIGNED, {}, False),
    "selu": ("Selu", SIGNED, {}, False),
    "selu_other": ("Selu", SIGNED, {"alpha": 1.5, "gamma": 0.5}, False),
    "leaky_relu": ("LeakyRelu", SIGNED, {"alpha": 0.25}, False),
    "leaky_relu_plain": ("LeakyRelu", SIGNED, {}, False),
    "thresholded_relu": ("ThresholdedRelu", SIGNED, {"alpha": 0.5}, False),
    "shrink": ("Shrink", SIGNED, {"lambd": 0.75, "bias": 0.25}, False),
    "shrink_hard": ("Shrink", SIGNED, {"lambd": 0.5}, False),
    "hard_sigmoid": ("HardSigmoid", SIGNED * 2, {"alpha": 0.5, "beta": 0.25}, False),
    "hard_sigmoid_plain": ("HardSigmoid", SIGNED * 2, {}, False),
    "hard_swish": ("HardSwish", SIGNED * 3, {}, False),
    "mish": ("Mish", X, {}, False),
    "gelu": ("Gelu", X, {}, False),
    "gelu_tanh": ("Gelu", X, {"approximate": "tanh"}, False),
    "swish": ("Swish", X, {}, True),
    "swish_alpha": ("Swish", X, {"alpha": 1.5}, True),
    "identity": ("Identity", X, {}, True),
    "mean_of_one": ("Mean", X, {}, False),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    op_type, x, attributes, double = UNARY[name]
    check_node(op_type, {"x": x}, single=not double, twice=True, tolerance=1e-6, **attributes)


WIDE, ROW, COLUMN = SIGNED + 0.5, random(4, seed=1) + 0.3, random(3, 1, seed=2)

BROADCAST: dict[str, tuple[str, dict[str, Array], dict[str, Any], bool]] = {
    "add": ("Add", {"a": WIDE, "b": ROW}, {}, True),
    "sub": ("Sub", {"a": COLUMN, "b": WIDE}, {}, True),
    "mul": ("Mul", {"a": COLUMN, "b": ROW}, {}, True),
    "div": ("Div", {"a": WIDE, "b": np.abs(ROW) + 0.5}, {}, True),
    "pow": ("Pow", {"a": np.abs(WIDE) + 0.5, "b": ROW}, {}, True),
    "fmod": ("Mod", {"a": WIDE * 3, "b": ROW + 0.01}, {"fmod": 1}, True),
    "min": ("Min", {"a": WIDE, "b": ROW, "c": COLUMN}, {}, True),
    "max": ("Max", {"a": WIDE, "b": ROW, "c": COLUMN}, {}, True),
    "sum": ("Sum", {"a": WIDE, "b": ROW, "c": COLUMN}, {}, False),
    "mean": ("Mean", {"a": WIDE, "b": ROW, "c": COLUMN}, {}, False),
    "prelu": ("PRelu", {"a": WIDE, "b": ROW}, {}, False),
    "prelu_channels": ("PRelu", {"a": random(2, 3, 4), "b": random(3, 1)}, {}, False),
}


@pytest.mark.parametrize("dims", ["open", "static", "unranked"])
@pytest.mark.parametrize("name", BROADCAST)
def test_broadcast(name: str, dims: str) -> None:
    op_type, feeds, attributes, double = BROADCAST[name]
    check_node(op_type, feeds, single=not double, twice=dims == "static", dims=dims, **attributes)


@pytest.mark.parametrize("opset", [13, NEWEST])
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0, -1.5, np.int64(3), np.int32(0)])
def test_pow_of_a_constant(power: Any, opset: int) -> None:
    feeds = {"x": np.abs(SIGNED), "power": np.asarray(power)}
    check_node("Pow", feeds, wrt=["x"], constants=["power"], opset=opset, twice=True)


@pytest.mark.parametrize("bounds", [(-0.5, 0.6), (None, 0.6), (-0.5, None), (None, None), (0.6, -0.5)])
@pytest.mark.parametrize("constants", [(), ("low", "high")])
def test_clip(bounds: tuple[float | None, float | None], constants: tuple[str, ...]) -> None:
    feeds = {"x": X, **{k: None if v is None else np.asarray(v) for k, v in zip(("low", "high"), bounds, strict=True)}}
    if bounds == (0.6, -0.5) and constants:
        pytest.skip("the runtime's optimiser takes crossed constants another way")
    check_node("Clip", feeds, constants=[k for k in constants if feeds[k] is not None], twice=True)


def test_where() -> None:
    feeds = {"condition": X > 0, "yes": ROW, "no": COLUMN}
    check_node("Where", feeds, twice=True)


@pytest.mark.parametrize("op_type", ["Ceil", "Floor", "Round", "Sign"])
def test_steps_are_flat(op_type: str) -> None:
    check_node(op_type, {"x": X * 3})


@pytest.mark.parametrize(("op_type", "to"), [("Cast", onnx.TensorProto.DOUBLE), ("CastLike", None)])
def test_casts(op_type: str, to: int | None) -> None:
    feeds = {"x": X.astype(np.float32)} | ({} if to else {"like": X})
    model = model_of(op_type, feeds, **({"to": to} if to else {}))
    seed = random(3, 4)
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {**feeds, "seed/y": seed})["grad/x"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, seed.astype(np.float32))


def test_what_went_through_integers_has_no_gradient() -> None:
    graph = """<ir_version: 9, opset_import: ["" : 17]>
    g (double[4] x, double[4] z) => (double[4] y) { i = Cast <to = 7> (x)  f = Cast <to = 11> (i)  y = Mul(f, z) }"""
    found = run(
        ll.gradient(onnx.parser.parse_model(graph), "y", ["x", "z"], seeds=True),
        {"x": np.arange(4.0), "z": np.ones(4), "seed/y": np.ones(4)},
    )
    np.testing.assert_array_equal(found["grad/x"], np.zeros(4))
    np.testing.assert_array_equal(found["grad/z"], np.arange(4.0))


F = torch.nn.functional

KINKS: dict[str, tuple[str, dict[str, Any], list[float], Any]] = {
    "relu": ("Relu", {}, [-1, 0, 1], torch.relu),
    "abs": ("Abs", {}, [-1, 0, 1], torch.abs),
    "elu": ("Elu", {"alpha": 2.0}, [-1, 0, 1], lambda x: F.elu(x, 2.0)),
    "celu": ("Celu", {"alpha": 2.0}, [-300, -1, -0.3, 0, 1, 300], lambda x: F.celu(x, 2.0)),
    "selu": ("Selu", {}, [-1, 0, 1], F.selu),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.5}, [-1, 0, 1], lambda x: F.leaky_relu(x, 0.5)),
    "thresholded_relu": ("ThresholdedRelu", {"alpha": 0.5}, [0.25, 0.5, 0.75], lambda x: F.threshold(x, 0.5, 0.0)),
    "softshrink": ("Shrink", {"lambd": 0.5, "bias": 0.5}, [-1, -0.5, 0, 0.5, 1], lambda x: F.softshrink(x, 0.5)),
    "hardshrink": ("Shrink", {"lambd": 0.5}, [-1, -0.5, 0, 0.5, 1], lambda x: F.hardshrink(x, 0.5)),
    "hard_sigmoid": (
        "HardSigmoid",
        {"alpha": 0.25, "beta": 0.5},
        [-4, -2, 0, 2, 4],
        lambda x: (x * 0.25 + 0.5).clamp(0, 1),
    ),
    "hard_swish": ("HardSwish", {}, [-4, -3, 0, 3, 4], F.hardswish),
    "sqrt": ("Sqrt", {}, [0, 1], torch.sqrt),
    "softsign": ("Softsign", {}, [-1, 0, 1], F.softsign),
    "round": ("Round", {}, [-0.5, 0, 0.5], torch.round),
    "softplus_far": ("Softplus", {}, [-200, 200], F.softplus),
    "elu_far": ("Elu", {}, [-2000, 2000], F.elu),
    "mish_far": ("Mish", {}, [-200, 200], F.mish),
    "gelu_far": ("Gelu", {}, [-200, 200], F.gelu),
    "sigmoid_far": ("Sigmoid", {}, [-200, 200], torch.sigmoid),
}

HARD = {"hard_sigmoid": "at the ends PyTorch's clamp has the gradient, its hardsigmoid has not"}


@pytest.mark.parametrize("name", KINKS)
def test_kinks_are_as_in_pytorch(name: str) -> None:
    op_type, attributes, points, function = KINKS[name]
    x = np.asarray(points, np.float32)
    gradient = ll.gradient(model_of(op_type, {"x": x}, **attributes), "y", ["x"], seeds=True)
    found = run(gradient, {"x": x, "seed/y": np.ones_like(x)})["grad/x"]
    leaf = torch.tensor(x, requires_grad=True)
    function(leaf).sum().backward()
    assert leaf.grad is not None
    wanted = leaf.grad.numpy()
    if name in HARD:
        wanted[[1, 3]] = 0
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


PAIRS: dict[str, tuple[str, dict[str, Any], list[list[float]], Any]] = {
    "max": ("Max", {}, [[0, 1, 2], [1, 1, 1]], torch.maximum),
    "min": ("Min", {}, [[0, 1, 2], [1, 1, 1]], torch.minimum),
    "prelu": ("PRelu", {}, [[-1, 0, 1], [0.5, 0.5, 0.5]], lambda x, a: torch.where(x > 0, x, a * x)),
    "fmod": ("Mod", {"fmod": 1}, [[-7, 7, 6, 5.5, -5.5], [3, -3, 3, 2, 2]], torch.fmod),
    "pow": ("Pow", {}, [[0, 0, 0, 0, 0, 2, -2], [0, 1, 2, 0.5, -1, 0, 3]], torch.pow),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_as_in_pytorch(name: str) -> None:
    op_type, attributes, (first, second), function = PAIRS[name]
    feeds = {"a": np.asarray(first, np.float32), "b": np.asarray(second, np.float32)}
    gradient = ll.gradient(model_of(op_type, feeds, **attributes), "y", ["a", "b"], seeds=True)
    found = run(gradient, {**feeds, "seed/y": np.ones_like(feeds["a"])})
    leaves = [torch.tensor(value, requires_grad=True) for value in feeds.values()]
    function(*leaves).sum().backward()
    for key, leaf in zip(feeds, leaves, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(found[f"grad/{key}"], leaf.grad.numpy(), rtol=1e-6, atol=1e-7, err_msg=key)


def test_three_equal_operands_share() -> None:
    feeds = {name: np.ones(2) for name in "abc"}
    found = run(ll.gradient(model_of("Max", feeds), "y", list("abc"), seeds=True), {**feeds, "seed/y": np.ones(2)})
    for name in "abc":
        np.testing.assert_allclose(found[f"grad/{name}"], np.full(2, 1 / 3))


def test_halves_are_summed_in_float32() -> None:
    """In float16 a sum of ones does not get beyond 2048."""
    feeds = {"a": np.ones((4096, 1), np.float16), "b": np.ones(1, np.float16)}
    model = model_of("Mul", feeds)
    found = run(ll.gradient(model, "y", ["b"], seeds=True), {**feeds, "seed/y": np.ones((4096, 1), np.float16)})
    np.testing.assert_array_equal(found["grad/b"], np.asarray([4096], np.float16))
    assert evaluated(model)(feeds)["y"].dtype == np.float16
