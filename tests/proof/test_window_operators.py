"""The float64 reference's operators over windows, next to onnxruntime's on whole numbers, which both have exactly."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx.reference
import onnxruntime as ort
import pytest

from lstm_lower.runtime.proof.reference_operators import WINDOW_OPERATORS

RNG = np.random.default_rng(0)

CASES = {
    "Conv<kernel_shape = [3]>(x, w, b)": [(2, 4, 9), (6, 4, 3), (6,)],
    "Conv<group = 2, strides = [2, 1], dilations = [1, 2], pads = [0, 1, 2, 3]>(x, w)": [(2, 4, 9, 8), (6, 2, 3, 2)],
    'Conv<auto_pad = "SAME_LOWER", strides = [2, 3]>(x, w)': [(1, 2, 8, 7), (3, 2, 3, 2)],
    'Conv<auto_pad = "SAME_UPPER", strides = [2, 3]>(x, w)': [(1, 2, 8, 7), (3, 2, 3, 2)],
    'Conv<auto_pad = "VALID", strides = [2, 1, 1]>(x, w)': [(1, 2, 5, 4, 3), (3, 2, 2, 2, 2)],
    "ConvTranspose(x, w, b)": [(2, 4, 5), (4, 3, 3), (3,)],
    "ConvTranspose<group = 2, strides = [2, 3], dilations = [1, 2], pads = [0, 1, 2, 1]>(x, w, b)": [
        (2, 4, 5, 4),
        (4, 3, 3, 2),
        (6,),
    ],
    "ConvTranspose<strides = [2, 2], output_padding = [1, 0]>(x, w)": [(1, 2, 3, 4), (2, 3, 3, 3)],
    "ConvTranspose<strides = [2, 2], output_shape = [6, 8]>(x, w)": [(1, 2, 3, 4), (2, 3, 3, 3)],
    'ConvTranspose<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)': [(1, 2, 3, 4), (2, 3, 3, 3)],
    'ConvTranspose<auto_pad = "SAME_LOWER", strides = [2, 2]>(x, w)': [(1, 2, 3, 4), (2, 3, 3, 3)],
    "MaxPool<kernel_shape = [3], strides = [2], pads = [1, 1]>(x)": [(2, 3, 8)],
    "MaxPool<kernel_shape = [3, 2], strides = [2, 1], dilations = [1, 2], pads = [1, 0, 0, 1]>(x)": [(2, 3, 8, 7)],
    "MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)": [(2, 3, 8, 7)],
    'MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)': [(2, 3, 8, 7)],
    "MaxPool<kernel_shape = [2, 2], strides = [2, 2], storage_order = 1>(x)": [(2, 3, 6, 4)],
    "MaxPool<kernel_shape = [2, 3, 2], strides = [2, 2, 2], pads = [0, 1, 0, 0, 1, 0]>(x)": [(1, 2, 4, 5, 4)],
    "GatherElements<axis = 1>(x, i)": [(2, 70), (2, 300)],
    "GatherElements<axis = -1>(x, i)": [(3, 4, 70), (2, 3, 5)],
    'ScatterElements<axis = -1, reduction = "none">(x, i, u)': [(3, 4), (3, 4)],
    'ScatterElements<axis = 0, reduction = "add">(x, i, u)': [(3, 4), (5, 2)],
    'ScatterElements<axis = 1, reduction = "mul">(x, i, u)': [(3, 4), (2, 3)],
    'ScatterElements<axis = 1, reduction = "max">(x, i, u)': [(3, 4), (2, 3)],
    'ScatterElements<axis = 1, reduction = "min">(x, i, u)': [(3, 4), (2, 3)],
}


@pytest.mark.parametrize("node", CASES)
def test_next_to_onnxruntime(node: str) -> None:
    shapes = CASES[node]
    names = node[node.rindex("(") + 1 : -1].split(", ")
    feeds = {}
    for name, shape in zip(names, [*shapes, shapes[-1]], strict=False):
        if name == "i":
            # Without a reduction no place comes twice in a line: their order would not be defined.
            feeds[name] = (
                RNG.integers(-1, 3, shape)
                if "none" not in node
                else RNG.permuted(np.tile(np.arange(4), (3, 1)), axis=-1)
            )
        else:
            feeds[name] = RNG.integers(-5, 6, shape).astype(np.float32)
    outputs = "y, n" if "MaxPool" in node else "y"
    inputs = ", ".join(
        f"{'int64' if array.dtype == np.int64 else 'float'}[{','.join(map(str, array.shape))}] {name}"
        for name, array in feeds.items()
    )
    kinds = "float y, int64 n" if "MaxPool" in node else "float y"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => ({kinds}) {{ {outputs} = {node} }}'
    )
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    found = onnx.reference.ReferenceEvaluator(model, new_ops=list(WINDOW_OPERATORS)).run(None, feeds)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
