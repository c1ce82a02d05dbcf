"""Gradients in float16 and bfloat16: those of float32 but for rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import lstm_lower as ll
from tests.support.differences import Array, run
from tests.support.operator_gradients import evaluated, given, model_of, random

IMAGE = random(2, 4, 6, 5)
CHANNELS = {"scale": random(4, seed=1), "bias": random(4, seed=2)}
MOMENTS = {"mean": random(4, seed=3), "variance": np.abs(random(4, seed=4)) + 0.3}
ROWS = {"scale": random(5, seed=1), "bias": random(5, seed=2)}

CASES: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "add": ("Add", {"a": random(300, 4), "b": random(4)}, {}),
    "pow": ("Pow", {"a": np.abs(random(3, 4)) + 0.5, "b": random(4)}, {}),
    "clip": ("Clip", {"a": random(3, 4), "low": np.asarray(-0.5), "high": np.asarray(0.5)}, {}),
    "max": ("Max", {"a": random(3, 4), "b": random(4)}, {}),
    "gelu": ("Gelu", {"a": random(3, 4)}, {}),
    "softmax": ("Softmax", {"a": random(3, 4)}, {}),
    "log_softmax": ("LogSoftmax", {"a": random(3, 4)}, {}),
    "mean": ("ReduceMean", {"a": random(30, 40)}, {}),
    "largest": ("ReduceMax", {"a": random(3, 4)}, {}),
    "product": ("ReduceProd", {"a": random(3)}, {}),
    "norm": ("ReduceL2", {"a": random(30, 4)}, {}),
    "matmul": ("MatMul", {"a": random(5, 3, 4), "b": random(4, 2)}, {}),
    "gemm": ("Gemm", {"a": random(3, 4), "b": random(4, 2), "c": random(2)}, {}),
    "conv": ("Conv", {"x": IMAGE, "w": random(4, 4, 3, 3), "b": random(4)}, {"pads": [1, 1, 1, 1]}),
    "transposed": ("ConvTranspose", {"x": IMAGE, "w": random(4, 3, 3, 3)}, {"strides": [2, 2]}),
    "average_pool": ("AveragePool", {"x": IMAGE}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "max_pool": ("MaxPool", {"x": IMAGE}, {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "lp_pool": ("LpPool", {"x": IMAGE}, {"kernel_shape": [3, 3]}),
    "global_average": ("GlobalAveragePool", {"x": IMAGE}, {}),
    "global_max": ("GlobalMaxPool", {"x": IMAGE}, {}),
    "batch": ("BatchNormalization", {"x": IMAGE, **CHANNELS, **MOMENTS}, {}),
    "batch_training": (
        "BatchNormalization",
        {"x": IMAGE, **CHANNELS, **MOMENTS},
        {"training_mode": 1, "outputs": ("y", "mean1", "variance1")},
    ),
    "instance": ("InstanceNormalization", {"x": IMAGE, **CHANNELS}, {}),
    "group": ("GroupNormalization", {"x": IMAGE, **CHANNELS}, {"num_groups": 2}),
    "layer": ("LayerNormalization", {"x": IMAGE, **ROWS}, {}),
    "root_mean_square": ("RMSNormalization", {"x": IMAGE, "scale": ROWS["scale"]}, {}),
    "lp_normalization": ("LpNormalization", {"x": IMAGE}, {}),
    "local_response": ("LRN", {"x": IMAGE}, {"size": 3}),
    "cross_entropy": ("SoftmaxCrossEntropyLoss", {"x": random(3, 4), "labels": np.asarray([0, 3, 1])}, {}),
    "attention": ("Attention", {"q": random(1, 2, 3, 4), "k": random(1, 2, 5, 4), "v": random(1, 2, 5, 4)}, {}),
    "dequantize": ("DequantizeLinear", {"x": np.asarray([[1, -3, 5]], np.int8), "scale": np.asarray(0.5)}, {}),
}


# What onnx's evaluator computes in bfloat16.
IN_BFLOAT16 = ["add", "pow", "softmax", "mean", "matmul", "gemm", "conv", "max_pool", "batch_training", "attention"]


@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_bfloat16(name: str) -> None:
    """By onnx's evaluator: onnxruntime has no such kernels on processors."""
    op_type, feeds, attributes = CASES[name]
    narrow = given(feeds, ml_dtypes.bfloat16)
    names = [name for name, value in feeds.items() if value.dtype.kind == "f"]
    wide = {key: value.astype(np.float32) if key in names else value for key, value in narrow.items()}
    model = model_of(op_type, given(feeds, np.float16), dims="static", **attributes)
    for value in [*model.graph.input, *model.graph.output]:
        tensor = value.type.tensor_type
        if tensor.elem_type == onnx.TensorProto.FLOAT16:
            tensor.elem_type = onnx.TensorProto.BFLOAT16
    seed = random(*run(model_of(op_type, wide, dims="static", **attributes), wide)["y"].shape, seed=7, dtype=np.float32)
    made = evaluated(ll.gradient(model, "y", names, seeds=True))({**narrow, "seed/y": seed.astype(ml_dtypes.bfloat16)})
    for key, wanted in _gradients(op_type, wide, attributes).items():
        gradient = made[f"grad/{key}"]
        assert gradient.dtype == ml_dtypes.bfloat16
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(gradient.astype(np.float32), wanted, rtol=2e-2, atol=1e-2 * scale, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_float16(name: str) -> None:
    op_type, feeds, attributes = CASES[name]
    found, wanted = (_gradients(op_type, given(feeds, dtype), attributes) for dtype in (np.float16, np.float32))
    for key, gradient in found.items():
        assert gradient.dtype == np.float16
        scale = max(1.0, float(np.abs(wanted[key]).max()))
        np.testing.assert_allclose(gradient, wanted[key], rtol=2e-2, atol=1e-2 * scale, err_msg=key)


def _gradients(op_type: str, feeds: dict[str, Array], attributes: dict[str, Any]) -> dict[str, Array]:
    model = model_of(op_type, feeds, dims="static", **attributes)
    names = [name for name, value in feeds.items() if value.dtype.kind == "f"]
    gradient = ll.gradient(model, "y", names, seeds=True)
    shape = run(model, feeds)["y"].shape
    seed = random(*shape, seed=7, dtype=next(feeds[name].dtype for name in names))
    made = run(gradient, {**feeds, "seed/y": seed})
    return {name: made[f"grad/{name}"] for name in names}


def test_many_equal_elements_of_a_scatter_share() -> None:
    """More than 2048, which float16 counts no further than."""
    feeds = {"x": np.ones(1), "places": np.zeros(4095, np.int64), "updates": np.ones(4095)}
    found = _gradients("ScatterElements", given(feeds, np.float16), {"reduction": "max"})
    seed = random(1, seed=7, dtype=np.float16)
    np.testing.assert_allclose(found["x"], seed / 4096, rtol=1e-2)
    np.testing.assert_allclose(found["updates"], np.repeat(seed / 4096, 4095), rtol=1e-2)
