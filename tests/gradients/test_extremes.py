"""First and second derivatives far from zero, where exponentials overflow, and at it, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from tests.support.differences import run
from tests.support.operator_gradients import model_of, random

torch = pytest.importorskip("torch")
F = torch.nn.functional

FAR = [-1000, -100, -20, -3, 0, 1, 20, 100, 1000]
# The operator, PyTorch's function, the points, an exponent.
CASES: dict[str, tuple[str, Any, list[float], float | None]] = {
    "sigmoid": ("Sigmoid", torch.sigmoid, FAR, None),
    "tanh": ("Tanh", torch.tanh, FAR, None),
    "gelu": ("Gelu", F.gelu, FAR, None),
    "swish": ("Swish", F.silu, FAR, None),
    "softsign": ("Softsign", F.softsign, FAR, None),
    "softmax": ("Softmax", lambda x: x.softmax(-1), FAR, None),
    "log_softmax": ("LogSoftmax", lambda x: x.log_softmax(-1), FAR, None),
    "log_sum_exp": ("ReduceLogSumExp", lambda x: x.logsumexp(-1, keepdim=True), FAR, None),
    "product": ("ReduceProd", lambda x: x.prod().reshape(1), [0, 2, 3], None),
    "product_of_zeros": ("ReduceProd", lambda x: x.prod().reshape(1), [0, 0, 3], None),
    **{
        f"power_{b}": ("Pow", lambda x, b=b: x ** torch.tensor(b), [0, 1e-10, 1, 2], b)
        for b in (0.0, 0.5, 1.0, 2.0, 3.0)
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    op_type, function, points, exponent = CASES[name]
    feeds = {"x": np.asarray(points, np.float32)}
    feeds |= {} if exponent is None else {"b": np.asarray(exponent, np.float32)}
    once = ll.gradient(model_of(op_type, feeds, dims="static"), "y", ["x"], seeds=True)
    twice = ll.gradient(once, "grad/x", ["x", "seed/y"], seeds=True)
    x = torch.tensor(feeds["x"], requires_grad=True)
    y = function(x)
    seed = torch.tensor(np.abs(random(*y.shape, seed=1, dtype=np.float32)), requires_grad=True)
    second = torch.tensor(random(*x.shape, seed=2, dtype=np.float32))
    (dx,) = torch.autograd.grad(y, x, seed, create_graph=True)
    ddx, dseed = torch.autograd.grad(dx, [x, seed], second)
    fed = {**feeds, "seed/y": seed.detach().numpy(), "seed/grad/x": second.numpy()}
    found = run(twice, fed)
    for key, wanted in {"grad/x": dx, "grad/grad/x/x": ddx, "grad/seed/y": dseed}.items():
        np.testing.assert_allclose(found[key], wanted.numpy(force=True), rtol=1e-4, atol=1e-6, err_msg=key)


RECTIFIERS: dict[str, Any] = {
    "Relu(x)": F.relu,
    "Clip(x, low, high)": lambda x: x.clamp(-1, 1),
    "Clip(x, low)": lambda x: x.clamp(-1),
    "LeakyRelu <alpha = 0.1> (x)": lambda x: F.leaky_relu(x, 0.1),
    "Elu(x)": F.elu,
    "Celu <alpha = 2.0> (x)": lambda x: F.celu(x, 2.0),
    "Selu(x)": F.selu,
    "HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)": F.hardsigmoid,
    "HardSwish(x)": F.hardswish,
    "ThresholdedRelu <alpha = 1.0> (x)": lambda x: F.threshold(x, 1.0, 0.0),
    "Shrink <lambd = 0.5> (x)": F.hardshrink,
}


@pytest.mark.parametrize("text", RECTIFIERS)
def test_not_a_number_through_rectifiers(text: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[9] x) => (float[9] y) <float low = {{-1.0}}, float high = {{1.0}}> {{ y = {text} }}""")
    feeds = {
        "x": np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 3, -4]),
        "seed/y": np.arange(1, 10, dtype=np.float32),
    }
    x = torch.tensor(feeds["x"], requires_grad=True)
    RECTIFIERS[text](x).backward(torch.tensor(feeds["seed/y"]))
    found = run(ll.gradient(model, "y", ["x"], seeds=True), feeds)["grad/x"]
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5)


NOT_NUMBERS = {
    "ReduceMax <keepdims = 0> (x, one)": lambda x: x.amax(1),
    "ReduceMin <keepdims = 0> (x, one)": lambda x: x.amin(1),
    "ReduceL2 <keepdims = 0> (x, one)": lambda x: x.norm(2, 1),
    "ReduceSumSquare <keepdims = 0> (x, one)": lambda x: (x * x).sum(1),
    "ReduceProd <keepdims = 0> (x, one)": lambda x: x.prod(1),
    "ReduceLogSumExp <keepdims = 0> (x, one)": lambda x: x.logsumexp(1),
    "Softmax (x)": lambda x: x.softmax(1),
}


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_not_a_number_along_an_axis(text: str) -> None:
    """Where a result is NaN its gradients are: zeros would hide it from whoever watches them."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[5, 3] x) => (y) <int64[1] one = {{1}}> {{ y = {text} }}""")
    rows = [[np.nan, 1, 2], [2, np.inf, 2], [3, 3, 1], [0, 0, 0], [-1, 0, 1]]
    feeds = {"x": np.asarray(rows, np.float32)}
    x = torch.tensor(feeds["x"], requires_grad=True)
    y = NOT_NUMBERS[text](x)
    feeds["seed/y"] = np.arange(1, y.numel() + 1, dtype=np.float32).reshape(y.shape)
    y.backward(torch.tensor(feeds["seed/y"]))
    found = run(ll.gradient(model, "y", ["x"], seeds=True), feeds)["grad/x"]
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_not_a_number_among_operands(op_type: str) -> None:
    """Any of the operands may be why, so that each gets a share."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[6] a, float[6] b) => (float[6] y) {{ y = {op_type} (a, b) }}""")
    a, b = np.float32([np.nan, 1, np.nan, np.inf, 2, 1]), np.float32([1, np.nan, np.nan, np.inf, 2, 3])
    feeds = {"a": a, "b": b, "seed/y": np.float32([2, 4, 6, 8, 10, 12])}
    found = run(ll.gradient(model, "y", ["a", "b"], seeds=True), feeds)
    lost, won = ("grad/a", "grad/b") if op_type == "Max" else ("grad/b", "grad/a")
    np.testing.assert_array_equal(found[lost], [1, 2, 3, 4, 5, 0])
    np.testing.assert_array_equal(found[won], [1, 2, 3, 4, 5, 12])
