"""Oracles of the ops of detectors: box by box, and pixel by pixel.

Which boxes overlap too much, and which pixels are the nearest, is decided in float32, as the kernels do.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from lstm_lower.opdef import DType
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

_F = np.float32


def _overlap(first: Values, second: Values) -> np.floating:
    """The area of two boxes' intersection, divided by that of their union."""
    low = [np.minimum(box[:2], box[2:]) for box in (first, second)]
    high = [np.maximum(box[:2], box[2:]) for box in (first, second)]
    areas = [np.prod(b - a, dtype=_F) for a, b in zip(low, high, strict=True)]
    if min(areas) <= 0:
        return _F(0)
    both = np.prod(np.maximum(np.minimum(*high) - np.maximum(*low), _F(0)), dtype=_F)
    return _F(both / (areas[0] + areas[1] - both))


@oracle("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5")
def non_max_suppression(
    *,
    boxes: npt.ArrayLike,
    scores: npt.ArrayLike,
    max_output_size: npt.ArrayLike,
    iou_threshold: npt.ArrayLike = 0.5,
    score_threshold: npt.ArrayLike = -np.inf,
    soft_nms_sigma: npt.ArrayLike | None = None,
    pad_to_max_output_size: bool | None = None,
) -> dict[str, Values]:
    """The best of what is left, until there are enough."""
    corners, marks = np.asarray(boxes, _F), np.asarray(scores, _F)
    most, chosen = int(np.asarray(max_output_size)), [0][:0]
    for box in np.argsort(-marks, kind="stable"):
        free = all(not _overlap(corners[box], corners[other]) > np.asarray(iou_threshold, _F) for other in chosen)
        if len(chosen) < most and marks[box] > np.asarray(score_threshold, _F) and free:
            chosen.append(int(box))
    behind = (0, most - len(chosen) if pad_to_max_output_size else 0)
    found = {"selected_indices": np.pad(np.asarray(chosen, np.int32), behind)}
    if soft_nms_sigma is not None:
        found["selected_scores"] = np.pad(wide(scores)[chosen], behind)
    if pad_to_max_output_size is not None:
        found["valid_outputs"] = np.asarray(len(chosen), np.int32)
    return found


def _places(first: Values, last: Values, size: int, made: int) -> tuple[Values, Values]:
    """Where the pixels of a box lie in float32, and by how much each moves with the box's first place."""
    if made == 1:
        return np.asarray([_F(0.5) * (first + last) * _F(size - 1)]), np.asarray([0.5])
    numbers, step = np.arange(made, dtype=_F), (last - first) * _F(size - 1) / _F(made - 1)
    return first * _F(size - 1) + numbers * step, 1 - np.arange(made) / (made - 1)


def _weights(place: np.floating, size: int, method: str) -> dict[int, tuple[float, float]]:
    """Pixel -> its share in the value at a place, and how fast that grows with the place; none beyond the image."""
    if not 0 <= place <= size - 1:
        return {}
    below = int(np.floor(place))
    share = float(place - _F(below))
    if method == "nearest":
        return {below + (share >= 0.5): (1.0, 0.0)}
    return {below: (1 - share, -1.0), below + 1: (share, 1.0)} if share else {below: (1.0, 0.0)}


def _cut(
    image: Values, boxes: npt.ArrayLike, box_ind: npt.ArrayLike, size: tuple[int, int], method: str
) -> tuple[Values, Values, Values]:
    """Shares [N, P, Q, B, H, W] of all pixels, and what they grow by with the corners' places [N, P, Q, B, H, W, 4]."""
    corners, owners = np.asarray(boxes, _F), ints(box_ind)
    shape = (len(corners), *size, *image.shape[:3])
    shares, slopes, inside = np.zeros(shape), np.zeros((*shape, 4)), np.zeros(shape[:3], bool)
    for box, (y0, x0, y1, x1) in enumerate(corners):
        rows, row_moves = _places(y0, y1, image.shape[1], size[0])
        columns, column_moves = _places(x0, x1, image.shape[2], size[1])
        for p, q in product(*map(range, size)):
            for (y, (a, da)), (x, (b, db)) in product(
                _weights(rows[p], image.shape[1], method).items(), _weights(columns[q], image.shape[2], method).items()
            ):
                at = (box, p, q, owners[box], y, x)
                inside[box, p, q] = True
                shares[at] = a * b
                down, across = da * b * (image.shape[1] - 1), a * db * (image.shape[2] - 1)
                y_move, x_move = row_moves[p], column_moves[q]
                ends = [1 - y_move, 1 - x_move]
                slopes[at] = [down * y_move, across * x_move, down * ends[0], across * ends[1]]
    return shares, slopes, inside


@oracle("CropAndResize")
def crop_and_resize(
    *,
    image: npt.ArrayLike,
    boxes: npt.ArrayLike,
    box_ind: npt.ArrayLike,
    crop_size: npt.ArrayLike,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> dict[str, Values]:
    """Means by shares; the given value where no pixel has any."""
    x, (rows, columns) = wide(image), ints(crop_size)
    shares, _, inside = _cut(x, boxes, box_ind, (rows, columns), method)
    crops = np.einsum("npqbhw,bhwc->npqc", shares, x)
    return {"crops": np.where(inside[..., None], crops, extrapolation_value)}


@oracle("CropAndResizeGradImage")
def crop_and_resize_grad_image(
    *,
    grads: npt.ArrayLike,
    boxes: npt.ArrayLike,
    box_ind: npt.ArrayLike,
    image_size: npt.ArrayLike,
    T: int = DType.FLOAT,
    method: str = "bilinear",
) -> dict[str, Values]:
    """The same shares the other way."""
    dy, shape = wide(grads), ints(image_size)
    shares, _, _ = _cut(np.zeros(shape), boxes, box_ind, dy.shape[1:3], method)
    return {"output": np.einsum("npqbhw,npqc->bhwc", shares, dy)}


@oracle("CropAndResizeGradBoxes")
def crop_and_resize_grad_boxes(
    *,
    grads: npt.ArrayLike,
    image: npt.ArrayLike,
    boxes: npt.ArrayLike,
    box_ind: npt.ArrayLike,
    method: str = "bilinear",
) -> dict[str, Values]:
    """By how much the shares grow with each place."""
    dy, x = wide(grads), wide(image)
    _, slopes, _ = _cut(x, boxes, box_ind, dy.shape[1:3], method)
    return {"output": np.einsum("npqbhwk,npqc,bhwc->nk", slopes, dy, x)}
