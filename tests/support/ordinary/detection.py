"""Cases of the ops of detectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_lower.opdef import DType
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, draw, grid, text


def cases() -> Iterator[Case]:
    yield from _suppression()
    yield from _cutting()


def _boxes(count: int, dtype: str) -> Array:
    """Boxes of which many overlap, some are equal, some turned round and some empty."""
    rng = np.random.default_rng(count)
    low = rng.random((count, 2))
    boxes = np.concatenate([low, low + rng.uniform(-0.1, 0.6, (count, 2))], 1)
    boxes[1::5] = boxes[::5][: len(boxes[1::5])]
    boxes[4::6, 2:] = boxes[4::6, :2]
    return np.asarray(boxes).astype(dtype)


def _suppression() -> Iterator[Case]:
    ops = {"": (), "V2": ("iou_threshold",), "V3": ("iou_threshold", "score_threshold")}
    ops |= {"V4": ops["V3"], "V5": (*ops["V3"], "soft_nms_sigma")}
    for (version, thresholds), (count, most) in (
        (op, sizes) for op in ops.items() for sizes in ((30, 9), (30, 40), (0, 3))
    ):
        for dtype, share, least in (("float32", 0.3, 0.2), ("float32", 0.0, -9.0), ("float16", 0.7, 0.5)):
            if not version and dtype == "float16":
                continue
            scores = np.round(draw((count,), dtype, "scores", scale=1), 1)
            operands = {"boxes": _boxes(count, dtype), "scores": scores, "max_output_size": np.array(most, np.int32)}
            values = {"iou_threshold": share, "score_threshold": least, "soft_nms_sigma": 0}
            operands |= {name: np.array(values[name], dtype) for name in thresholds}
            for padded in (False, True) if version in ("V4", "V5") else (None,):
                attributes = {} if padded is None else {"pad_to_max_output_size": padded}
                attributes |= {} if version else {"iou_threshold": share}
                what = text(count, most, dtype, share, padded)
                constants = ("soft_nms_sigma",) if version == "V5" else ()
                steering = ("max_output_size",) if padded else ()
                yield Case(f"NonMaxSuppression{version}", what, {**operands}, attributes, constants, steering)


def _cutting() -> Iterator[Case]:
    # All of the image, a part, one turned round, one across the edge, one beyond it, one of a single place.
    boxes = [
        [0, 0, 1, 1],
        [0.1, 0.3, 0.8, 0.9],
        [0.9, 0.8, 0.2, 0.1],
        [-0.4, 0.2, 0.6, 1.3],
        [1.2, 0, 1.5, 1],
        [0.5] * 4,
    ]
    corners, owners = np.array(boxes, np.float32), np.array([0, 1, 1, 0, 1, 0], np.int32)
    forms = [((4, 5), (3, 6)), ((5, 4), (1, 1)), ((1, 3), (2, 1)), ((6, 7), (4, 3))]
    for ((height, width), size), dtype in grid(forms, ("float16", "float64", "uint8", "int32")):
        shape, places = (2, height, width, 3), {"boxes": corners, "box_ind": owners}
        image = draw(shape, dtype, "image")
        grads = draw((len(boxes), *size, 3), "float32", "crops")
        for method in ("bilinear", "nearest"):
            what, attributes = text(shape, size, dtype, method), {"method": method}
            operands = {"image": image, **places, "crop_size": np.array(size, np.int32)}
            more = {**attributes, "extrapolation_value": -2.5}
            yield Case("CropAndResize", what, {**operands}, more, steering=("crop_size",))
            if dtype in ("float16", "float32"):
                operands = {"grads": grads, **places, "image_size": np.array(shape, np.int32)}
                kinds = {"float16": DType.FLOAT16, "float32": DType.FLOAT}
                more = {**attributes, "T": kinds[dtype].value}
                # TensorFlow adds halves up in halves.
                taken = dtype != "float16"
                yield Case("CropAndResizeGradImage", what, {**operands}, more, (), ("image_size",), taken=taken)
        yield Case("CropAndResizeGradBoxes", text(shape, size, dtype), {"grads": grads, "image": image, **places})
    none = {"boxes": corners[:0], "box_ind": owners[:0], "crop_size": np.array([2, 3], np.int32)}
    yield Case("CropAndResize", "none", {"image": draw((2, 4, 5, 3), "float32"), **none}, steering=("crop_size",))
