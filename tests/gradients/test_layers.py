"""Gradients of dropout, losses, attention and dequantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import Array, check, run
from tests.support.operator_gradients import NEWEST, check_node, given, model_of, random

torch = pytest.importorskip("torch")

X = random(6, 50)


@pytest.mark.parametrize("opset", [13, NEWEST])
@pytest.mark.parametrize("constants", [(), ("ratio", "training")])
@pytest.mark.parametrize(("ratio", "training"), [(None, None), (0.3, True), (None, True), (0.3, False), (0.0, True)])
def test_dropout(ratio: float | None, training: bool | None, constants: tuple[str, ...], opset: int) -> None:
    """The gradient is what the same run kept, scaled as it was."""
    feeds = {
        "x": X,
        "ratio": None if ratio is None else np.asarray(ratio, np.float32),
        "training": None if training is None else np.asarray(training),
    }
    if training is None:
        feeds = {"x": X}
    constants = tuple(name for name in constants if feeds.get(name) is not None)
    model = model_of("Dropout", feeds, constants=constants, opset=opset)
    fed = {name: value for name, value in feeds.items() if value is not None and name not in constants}
    seed = random(6, 50, seed=1)
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {**fed, "seed/y": seed})
    np.testing.assert_allclose(found["grad/x"], found["y"] / X * seed, rtol=1e-6)
    assert (found["y"] == 0).any() == bool(training and ratio != 0)
    twice = ll.gradient(ll.gradient(model, "y", ["x"], seeds=True), "grad/x", ["seed/y"], seeds=True)
    again = run(twice, {**fed, "seed/y": seed, "seed/grad/x": X})
    name = next(key for key in again if key.endswith("seed/y"))
    np.testing.assert_allclose(again[name], again["y"], rtol=1e-6)


LABELS = np.asarray([[2, 0, 3], [1, 1, 0]])


@pytest.mark.parametrize("opset", [13, NEWEST])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -7])
@pytest.mark.parametrize("op_type", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_losses(op_type: str, ignored: int | None, weights: bool, reduction: str, opset: int) -> None:
    for labels in (LABELS[:, 0], LABELS):
        labels = np.where(labels == 3, -7, labels) if ignored == -7 else labels
        feeds = {"x": random(2, 4, *labels.shape[1:]), "labels": labels}
        feeds |= {"weights": np.abs(random(4, seed=1)) + 0.1} if weights else {}
        attributes: dict[str, Any] = {} if ignored is None else {"ignore_index": ignored}
        outputs = ("loss", "log_prob") if op_type == "SoftmaxCrossEntropyLoss" and not weights else ("loss",)
        options = {"outputs": outputs, "reduction": reduction, "opset": opset, "dims": "static", **attributes}
        check_node(op_type, feeds, wrt=["x"], tolerance=1e-6, twice=labels.ndim == 2 and opset == NEWEST, **options)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_losses_as_in_pytorch(reduction: str) -> None:
    x, weights = random(5, 4, 3, dtype=np.float32), np.abs(random(4, dtype=np.float32)) + 0.1
    labels = np.random.default_rng(2).integers(0, 4, (5, 3))
    feeds = {"x": x, "labels": labels, "weights": weights}
    model = model_of("SoftmaxCrossEntropyLoss", feeds, reduction=reduction, ignore_index=2, dims={"x": ["N", 4, "L"]})
    seed = random(5, 3, seed=4, dtype=np.float32) if reduction == "none" else np.asarray(2, np.float32)
    found = run(ll.gradient(model, "y", ["x"], seeds=True), {**feeds, "seed/y": seed})["grad/x"]
    leaf = torch.tensor(x, requires_grad=True)
    given = {"weight": torch.tensor(weights), "ignore_index": 2, "reduction": reduction}
    torch.nn.functional.cross_entropy(leaf, torch.tensor(labels), **given).backward(torch.tensor(seed))
    assert leaf.grad is not None
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)


HEADS: dict[str, tuple[dict[str, Array], dict[str, Any]]] = {
    "plain": ({"q": random(2, 2, 3, 4), "k": random(2, 2, 5, 4, seed=1), "v": random(2, 2, 5, 6, seed=2)}, {}),
    "causal": (
        {"q": random(2, 2, 3, 4), "k": random(2, 2, 5, 4, seed=1), "v": random(2, 2, 5, 6, seed=2)},
        {"is_causal": 1, "scale": 0.3},
    ),
    "grouped": ({"q": random(1, 4, 3, 4), "k": random(1, 2, 5, 4, seed=1), "v": random(1, 2, 5, 4, seed=2)}, {}),
    "flat": (
        {"q": random(2, 3, 8), "k": random(2, 5, 8, seed=1), "v": random(2, 5, 6, seed=2)},
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "mask": (
        {
            "q": random(2, 2, 3, 4),
            "k": random(2, 2, 5, 4, seed=1),
            "v": random(2, 2, 5, 6, seed=2),
            "mask": random(3, 5, seed=4),
        },
        {},
    ),
    "a_masked_row": (
        {
            "q": random(2, 2, 3, 4),
            "k": random(2, 2, 5, 4, seed=1),
            "v": random(2, 2, 5, 6, seed=2),
            "mask": np.asarray([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool),
        },
        {},
    ),
    "softcap": (
        {"q": random(2, 2, 3, 4), "k": random(2, 2, 5, 4, seed=1), "v": random(2, 2, 5, 6, seed=2)},
        {"softcap": 2.0},
    ),
}


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("name", HEADS)
def test_attention(name: str, opset: int) -> None:
    feeds, attributes = HEADS[name]
    single = given(feeds, np.float32)
    model = model_of("Attention", single, opset=opset, dims="static", **attributes)
    check(model, single, step=0.02, tolerance=5e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    feeds = {
        "x": random(2, 2, 3, 4, dtype=np.float32),
        "cos": random(5, 2, seed=1, dtype=np.float32),
        "sin": random(5, 2, seed=2, dtype=np.float32),
        "places": np.asarray([[0, 2, 4], [1, 1, 3]]),
    }
    model = model_of("RotaryEmbedding", feeds, opset=23, dims="static", interleaved=interleaved)
    check(model, feeds, step=0.5, tolerance=1e-5)


SCALES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one": ((), {}),
    "axis": ((4,), {"axis": 1}),
    "last_axis": ((5,), {"axis": -1}),
    "blocks": ((3, 2, 5), {"axis": 1, "block_size": 2}),
    "a_shorter_block": ((3, 4, 3), {"axis": 2, "block_size": 2}),
}


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("dims", ["static", "open"])
@pytest.mark.parametrize("name", SCALES)
def test_dequantize(name: str, dims: str, zero: bool) -> None:
    shape, attributes = SCALES[name]
    x = np.random.default_rng(0).integers(-99, 99, (3, 4, 5)).astype(np.int8)
    feeds = {"x": x, "scale": np.asarray(np.abs(random(*shape)) + 0.1, np.float32)}
    feeds |= {"zero": np.asarray(np.random.default_rng(1).integers(-9, 9, shape), np.int8)} if zero else {}
    check(model_of("DequantizeLinear", feeds, dims=dims, **attributes), feeds, step=0.5, tolerance=2e-5)


STEPS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[T,2,4] x, float[2,4] h0, float[4] w, float ratio) => (float[T,2,4] ys, float[T,2,4] kept) {
  training = Constant <value = bool {1}> ()
  hT, ys, kept = Scan <num_scan_inputs = 1, body = body (float[2,4] h, float[2,4] xt)
      => (float[2,4] h1, float[2,4] y, float[2,4] d) {
    a = Add(h, xt)  n = LayerNormalization(a, w)  d = Dropout(n, ratio, training)  h1 = Tanh(n)  y = Mul(d, d)
  }> (h0, x)
}"""


def test_what_a_step_makes_besides_is_saved() -> None:
    """The mask of a dropout cannot be made again; mean and deviation need not be."""
    feeds = {
        "x": random(5, 2, 4, dtype=np.float32),
        "h0": random(2, 4, dtype=np.float32),
        "w": random(4, seed=1, dtype=np.float32),
        "ratio": np.asarray(0.0, np.float32),
    }
    model = onnx.parser.parse_model(STEPS)
    gradient = check(model, feeds, of="ys", wrt=["x", "h0", "w"], step=0.02, tolerance=1e-3)
    backward = [node for node in gradient.graph.node if node.op_type == "Scan"]
    made = [inner.op_type for node in backward for inner in node.attribute[0].g.node]
    assert made.count("Dropout") == made.count("LayerNormalization") == 1
    # Of as many elements one is dropped for certain.
    wide = onnx.parser.parse_model(STEPS.replace("2,4]", "64,4]"))
    dropped = ll.gradient(wide, "kept", ["w"], seeds=True)
    feeds |= {"x": random(1, 64, 4, dtype=np.float32), "h0": random(64, 4, dtype=np.float32)}
    feeds["ratio"] = np.asarray(0.4, np.float32)
    found = run(dropped, {**feeds, "seed/kept": np.ones((1, 64, 4), np.float32)})
    # The first step is linear in the weights.
    np.testing.assert_allclose(found["grad/w"], (found["kept"] / feeds["w"]).sum((0, 1)), rtol=1e-5, atol=1e-4)
    assert (found["kept"] == 0).any()
