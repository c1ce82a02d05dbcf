"""What gradients of convolutions, poolings and batch normalisation refuse, and what they say then."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import lstm_lower as ll
from tests.rules.test_gradients import single_node
from tests.support.spatial_cases import IMAGES

FLOAT, DOUBLE, INT32 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32
WINDOW = {"strides": [1, 1, 1, 1], "padding": "VALID"}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
IMAGE, RESULT, FILTER = [2, 5, 5, 3], [2, 3, 3, 4], [3, 3, 3, 4]


def _input_call(dtype: int = FLOAT, image: Any = (INT32, [4]), weights: Any = FILTER, result: Any = RESULT) -> Any:
    return {"input_sizes": image, "filter": (dtype, weights), "out_backprop": (dtype, result)}


def _filter_call(dtype: int = FLOAT, image: Any = IMAGE, result: Any = RESULT) -> Any:
    return {"input": (dtype, image), "filter_sizes": (INT32, [4]), "out_backprop": (dtype, result)}


def _pool_call(image: Any = (2, 4, 4, 3), result: Any = (2, 2, 2, 3), dtype: int = FLOAT) -> Any:
    return {"orig_input": (dtype, image), "orig_output": (dtype, result), "grad": (dtype, result)}


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        (
            "Conv2DBackpropInput",
            _input_call(DOUBLE),
            WINDOW,
            "out_backprop requires dtype float32 or a half (onnxruntime has no ConvTranspose in float64), got float64",
        ),
        ("Conv2DBackpropFilter", _filter_call(DOUBLE), WINDOW, "out_backprop requires dtype float32 or a half"),
        (
            "Conv2DBackpropInput",
            _input_call(),
            WINDOW,
            "input_sizes requires a known number of channels, got an unknown one",
        ),
        (
            "Conv2DBackpropFilter",
            _filter_call(),
            WINDOW,
            "filter_sizes requires known sizes, got values known at run time only",
        ),
        (
            "DepthwiseConv2dNativeBackpropInput",
            _input_call(weights=[3, 3, "C", "M"]),
            WINDOW,
            "filter requires known numbers of channels, got unknown ones",
        ),
        (
            "AvgPoolGrad",
            {"orig_input_shape": (INT32, [4]), "grad": (DOUBLE, [2, 2, 2, 3])},
            POOL,
            "grad requires dtype float32 or a half",
        ),
    ],
)
def test_what_cannot_be_lowered_is_said(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.lower(_one(op, operands, 13, attributes))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


def _one(op: str, operands: Any, opset: int, attributes: Any) -> onnx.ModelProto:
    model = single_node(op, operands, 1, **attributes)
    model.opset_import[0].version = opset
    model.graph.output[0].type.tensor_type.elem_type = next(
        dtype for name, (dtype, _) in operands.items() if name in (*IMAGES, "filter")
    )
    return model


def _both(message: str, change: dict[str, Any]) -> list[Any]:
    """A wrong attribute of a convolution and of a pooling."""
    return [
        ("Conv2DBackpropFilter", _filter_call(), WINDOW | change, message),
        ("MaxPoolGrad", _pool_call(), POOL | change, message),
    ]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        *_both("attribute strides requires four numbers above 0", {"strides": [1, 1]}),
        *_both("attribute strides requires four numbers above 0", {"strides": [1, 0, 1, 1]}),
        *_both("attribute strides requires four numbers above 0", {"strides": [2, 1, 1, 1]}),
        *_both("attribute padding requires one of", {"padding": "FULL"}),
        *_both("attribute data_format requires one of", {"data_format": "NHCW"}),
        *_both("attribute explicit_paddings requires none with padding VALID", {"explicit_paddings": [0] * 8}),
        *_both("attribute explicit_paddings requires eight numbers", {"padding": "EXPLICIT"}),
        *_both(
            "attribute explicit_paddings requires eight numbers",
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, -1, 0, 0, 0, 0, 0]},
        ),
        (
            "Conv2DBackpropFilter",
            _filter_call(),
            WINDOW | {"dilations": [1, 1, 1, 2]},
            "attribute dilations requires four numbers above 0",
        ),
        ("MaxPoolGrad", _pool_call(), POOL | {"ksize": [1, 2, 2, 3]}, "attribute ksize requires four numbers above 0"),
        ("MaxPoolGrad", _pool_call(result=(2, 2, 3, 3)), POOL, "grad requires 2 columns (for 4 of the image), got 3"),
        ("MaxPoolGrad", _pool_call(result=(2, 2, 2, 4)), POOL, "orig_output requires shape [N, P, Q, C]"),
        ("MaxPoolGrad", _pool_call(image=(2, 4, 4)), POOL, "orig_input requires rank 4"),
        (
            "AvgPoolGrad",
            {"orig_input_shape": (INT32, [3]), "grad": (FLOAT, [2, 2, 2, 3])},
            POOL,
            "orig_input_shape requires shape [4]",
        ),
        ("Conv2DBackpropInput", _input_call(result=[2, 3, 3, 5]), WINDOW, "out_backprop requires shape [N, P, Q, K]"),
        ("Conv2DBackpropInput", _input_call(image=(FLOAT, [4])), WINDOW, "input_sizes requires dtype int32"),
        (
            "DepthwiseConv2dNativeBackpropInput",
            _input_call(result=[2, 3, 3, 13]),
            WINDOW,
            "out_backprop requires 12 channels, 4 for each of 3, got 13",
        ),
        (
            "FusedBatchNormGradV3",
            {
                "y_backprop": (FLOAT, IMAGE),
                "x": (FLOAT, [2, 5, 4, 3]),
                "scale": (FLOAT, [3]),
                "mean": (FLOAT, [3]),
                "variance": (FLOAT, [3]),
                "reserve": (FLOAT, []),
            },
            {},
            "x requires shape [2, 5, 5, 3] (as y_backprop), got [2, 5, 4, 3]",
        ),
        (
            "FusedBatchNormV3",
            {
                "x": (FLOAT, IMAGE),
                "scale": (FLOAT, [3]),
                "offset": (FLOAT, [3]),
                "mean": (FLOAT, [0]),
                "variance": (FLOAT, [0]),
            },
            {"is_training": 0},
            "mean requires shape [3] (C from x), got [0]",
        ),
        (
            "FusedBatchNormV3",
            {
                "x": (FLOAT, IMAGE),
                "scale": (FLOAT, [4]),
                "offset": (FLOAT, [4]),
                "mean": (FLOAT, [0]),
                "variance": (FLOAT, [0]),
            },
            {},
            "x requires 4 channels (as scale), got 3",
        ),
        (
            "FusedBatchNorm",
            {
                "x": (FLOAT, [2, 3]),
                "scale": (FLOAT, [3]),
                "offset": (FLOAT, [3]),
                "mean": (FLOAT, [0]),
                "variance": (FLOAT, [0]),
            },
            {},
            "x requires rank 4 (NHWC), got rank 2",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


@pytest.mark.parametrize(
    ("op", "vector", "sizes", "message"),
    [
        (
            "Conv2DBackpropInput",
            "input_sizes",
            [3, 5, 5, 3],
            "input_sizes requires sizes that fit the other operands (N",
        ),
        (
            "Conv2DBackpropInput",
            "input_sizes",
            [2, 6, 5, 3],
            "out_backprop requires 4 rows (for 6 of the image), got 3",
        ),
        ("Conv2DBackpropInput", "input_sizes", [2, 5, 5, 4], "filter requires input channels that divide 4"),
        ("Conv2DBackpropFilter", "filter_sizes", [3, 3, 3, 5], "filter_sizes requires sizes that fit the other op"),
        ("Conv2DBackpropFilter", "filter_sizes", [3, 3, 2, 4], "filter_sizes requires input channels that divide 3"),
        ("Conv2DBackpropFilter", "filter_sizes", [2, 3, 3, 4], "out_backprop requires 4 rows (for 5 of the image)"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(op: str, vector: str, sizes: list[int], message: str) -> None:
    _refused(op, vector, sizes, _input_call() if vector == "input_sizes" else _filter_call(), message)


def test_no_channels_that_could_be_divided_are_refused() -> None:
    message = "filter_sizes requires input channels that divide 0"
    _refused("Conv2DBackpropFilter", "filter_sizes", [3, 3, 4, 4], _filter_call(image=[2, 5, 5, 0]), message)


def _refused(op: str, vector: str, sizes: list[int], call: Any, message: str) -> None:
    model = single_node(op, call, 1, **WINDOW)
    model.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int32), vector))
    kept = [value for value in model.graph.input if value.name != vector]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(model)
    assert str(caught.value).startswith(f"{op} 'node': {message}")
