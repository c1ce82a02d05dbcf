"""Cases of layers that keep their operand's shape, and of resized images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_lower.ops.raw import NUMBERS
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import FLOATS, HALVES, Case, draw, grid, text


def cases() -> Iterator[Case]:
    for op in ("BiasAdd", "BiasAddV1"):
        dtypes = NUMBERS if op == "BiasAdd" else FLOATS
        for shape, dtype in grid([(2, 3), (0, 3), (2, 4, 3), (2, 3, 4, 5, 2)], dtypes):
            operands = {"value": draw(shape, dtype, op), "bias": draw(shape[-1:], dtype, "bias")}
            yield Case(op, text(shape, dtype), {**operands}, unranked=dtype == "float32")
    for shape in [(2, 3, 4), (2, 3, 4, 5)]:
        operands = {"value": draw(shape, "float32"), "bias": draw((3,), "float32", "bias")}
        yield Case("BiasAdd", text(shape, "NCHW"), {**operands}, {"data_format": "NCHW"})
    for op in ("Softmax", "LogSoftmax"):
        for shape, dtype in grid([(5,), (3, 1), (0, 4), (2, 3, 4), (3, 7)], FLOATS):
            yield Case(op, text(shape, dtype), {"logits": draw(shape, dtype, op)}, unranked=dtype == "float32")
        far = np.array([[1000, 0, -1000], [80, 90, 100], [-np.inf, 0, 1]], np.float32)
        yield Case(op, "far", {"logits": far})
    whole = ("int8", "uint8", "int16", "uint16", "int32", "int64")
    for op in ("ResizeNearestNeighbor", "ResizeBilinear"):
        shapes = [((3, 4), (6, 8)), ((3, 4), (1, 1)), ((7, 5), (3, 4)), ((1, 1), (2, 3)), ((4, 6), (7, 5))]
        for (image, size), dtype in grid(shapes, (*FLOATS, *whole)):
            for corners, centres in [(False, False), (True, False), (False, True)]:
                operands = {"images": draw((2, *image, 3), dtype, op), "size": np.array(size, np.int32)}
                attributes = {"align_corners": corners, "half_pixel_centers": centres}
                what = text(image, size, dtype, corners, centres)
                yield Case(op, what, {**operands}, attributes, steering=("size",))
    yield from _image_gradients()


def _normalized(x: Array, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5) -> Array:
    """What LRN makes of an image."""
    channels = np.arange(x.shape[-1])
    near = np.abs(channels[:, None] - channels) <= depth_radius
    return np.asarray(x / (bias + alpha * (x**2 @ near)) ** beta)


def _image_gradients() -> Iterator[Case]:
    shapes = [((3, 4), (6, 8)), ((7, 5), (3, 4)), ((1, 1), (2, 3)), ((4, 6), (7, 5)), ((5, 4), (1, 2))]
    for (image, size), dtype in grid(shapes, FLOATS):
        for corners, centres in [(False, False), (True, False), (False, True)]:
            attributes = {"align_corners": corners, "half_pixel_centers": centres}
            what = text(image, size, dtype, corners, centres)
            grads = draw((2, *size, 3), dtype, "nearest")
            operands = {"grads": grads, "size": np.array(image, np.int32)}
            if dtype != "bfloat16":  # for which TensorFlow has no kernel
                yield Case("ResizeNearestNeighborGrad", what, {**operands}, attributes, steering=("size",))
            original = draw((2, *image, 3), dtype, "original")
            operands = {"grads": draw((2, *size, 3), "float32", "linear"), "original_image": original}
            yield Case("ResizeBilinearGrad", what, {**operands}, attributes)
    for shape, dtype in grid([(2, 3, 4, 5), (1, 2, 2, 1), (1, 3, 2, 7)], (HALVES[0], "float32")):
        for attributes in ({}, {"depth_radius": 1, "bias": 2.0, "alpha": 0.3, "beta": 0.75}):
            what = text(shape, dtype, *attributes.values())
            image = draw(shape, dtype, "LRN", scale=1)
            yield Case("LRN", what, {"input": image}, attributes)
            result = _normalized(image.astype(np.float64), **attributes).astype(dtype)
            grads = draw(shape, dtype, "LRNGrad", scale=1)
            operands = {"input_grads": grads, "input_image": image, "output_image": result}
            yield Case("LRNGrad", what, operands, attributes)
