"""Whole training graphs with cuDNN ops: their gradients are the derivatives of their own loss.

The graphs come from TensorFlow, converted to ONNX up to the recurrent ops; TensorFlow itself can run them on GPUs only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import lstm_lower as ll

FOLDER = Path(__file__).parents[1] / "data" / "graphs"

KERAS = (
    "w0_sequential_1_embedding_1_embeddings",
    "w1_sequential_1_lstm_1_lstm_cell_kernel",
    "w2_sequential_1_lstm_1_lstm_cell_recurrent_kernel",
    "w3_sequential_1_lstm_1_lstm_cell_bias",
    "w4_sequential_1_dense_1_kernel",
    "w5_sequential_1_dense_1_bias",
)
PLAIN = ("params", "dense_w", "dense_b", "x", "h0", "c0")

# Graph -> loss, and input -> its gradient.
GRAPHS: dict[str, tuple[str, dict[str, str]]] = {
    "cudnn_v1_train__lstm_2l_bidir": ("loss:0", {f"{name}:0": f"grad_{name}:0" for name in PLAIN}),
    "cudnn_v3_train__lstm_2l_bidir": ("loss:0", {f"{name}:0": f"grad_{name}:0" for name in PLAIN}),
    "keras3_lstm_train__gpu_stateless": (
        "Identity_6:0",
        {f"{name}:0": f"Identity{f'_{index}' if index else ''}:0" for index, name in enumerate(KERAS)},
    ),
}


def load(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    with np.load(FOLDER / f"{name}.npz") as data:
        feeds = {f"{key[3:]}:0": data[key] for key in data if key.startswith("in:")}
    return onnx.load(FOLDER / "onnx" / f"{name}.onnx"), feeds


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph in double precision, in which differences of the loss are worth something."""
    graph = model.graph
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t"):
                tensors.append(attribute.t)
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    return model


def doubled(feeds: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in feeds.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_are_the_derivatives_of_the_loss(name: str) -> None:
    loss, gradients = GRAPHS[name]
    model, feeds = load(name)
    session = ll.Session(ll.lower(in_float64(model)))
    feeds = doubled(feeds)
    results = session.run(feeds)
    rng = np.random.default_rng(0)

    def loss_at(moved: str, direction: Any, step: float) -> float:
        return float(session.run({**feeds, moved: feeds[moved] + step * direction}, [loss])[loss])

    for moved, gradient in gradients.items():
        direction, h = rng.standard_normal(feeds[moved].shape), 1e-3
        ends = [loss_at(moved, direction, step * h) for step in (-2, -1, 1, 2)]
        difference = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        slope = float(np.sum(results[gradient] * direction))
        assert slope == pytest.approx(difference, rel=1e-6, abs=1e-9), moved


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_single_precision_agrees(name: str) -> None:
    model, feeds = load(name)
    lowered = ll.lower(model)
    onnx.checker.check_model(lowered, full_check=True)
    assert {entry.domain for entry in lowered.opset_import} == {""}
    assert [value.name for value in lowered.graph.output] == [value.name for value in model.graph.output]
    results = ll.Session(lowered).run(feeds)
    exact = ll.Session(ll.lower(in_float64(load(name)[0]))).run(doubled(feeds))
    for key, value in exact.items():
        np.testing.assert_allclose(results[key], value, rtol=0, atol=5e-6 * max(1, np.abs(value).max()), err_msg=key)


@pytest.mark.parametrize(
    ("name", "loops"), [("cudnn_v1_train__lstm_2l_bidir", 8), ("keras3_lstm_train__gpu_stateless", 2)]
)
def test_forward_runs_once(name: str, loops: int) -> None:
    lowered = ll.lower(load(name)[0])
    assert sum(node.op_type == "Scan" for node in lowered.graph.node) == loops
