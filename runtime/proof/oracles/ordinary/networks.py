"""Float64 oracles of layers that keep their operand's shape, and of resized images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, oracles_by, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _log_softmax(x: Values) -> Values:
    shifted = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


oracles_by(
    {
        "BiasAddV1": np.add,
        "LogSoftmax": _log_softmax,
        "Softmax": lambda x: np.exp(_log_softmax(x)),
    }
)


@oracle("BiasAdd")
def bias_add(*, value: npt.ArrayLike, bias: npt.ArrayLike, data_format: str = "NHWC") -> dict[str, Values]:
    """A number for each channel is added."""
    x, numbers = wide(value), wide(bias)
    behind = x.ndim - 2 if data_format == "NCHW" else 0
    return {"output": x + numbers.reshape(-1, *[1] * behind)}


def _places(size: int, made: int, align_corners: bool, half_pixel_centers: bool) -> npt.NDArray[np.float32]:
    """Where the pixels of the result lie, in float32: which pixel is the nearest depends on how that rounds."""
    numbers = np.arange(made, dtype=np.float32)
    if align_corners and made > 1:
        return numbers * (np.float32(size - 1) / np.float32(made - 1))
    scale = np.float32(size) / np.float32(made)
    return (numbers + np.float32(0.5)) * scale if half_pixel_centers else numbers * scale


@oracle("ResizeNearestNeighbor")
def resize_nearest_neighbor(
    *,
    images: npt.ArrayLike,
    size: npt.ArrayLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> dict[str, Values]:
    """The pixel that a place lies in; with aligned corners the nearest one."""
    result = wide(images)
    for axis, made in ((1, int(np.asarray(size)[0])), (2, int(np.asarray(size)[1]))):
        places = _places(result.shape[axis], made, align_corners, half_pixel_centers)
        pixels = np.floor(places + np.float32(0.5) if align_corners else places).astype(int)
        result = np.take(result, np.clip(pixels, 0, result.shape[axis] - 1), axis=axis)
    return {"resized_images": result}


@oracle("ResizeBilinear")
def resize_bilinear(
    *,
    images: npt.ArrayLike,
    size: npt.ArrayLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> dict[str, Values]:
    """The mean of the pixels on both sides of a place, by their distances."""
    result = np.asarray(images).astype(np.float64)
    for axis, made in ((1, int(np.asarray(size)[0])), (2, int(np.asarray(size)[1]))):
        places = _places(result.shape[axis], made, align_corners, half_pixel_centers)
        places = places - np.float32(0.5) if half_pixel_centers else places
        last = result.shape[axis] - 1
        below, above = (
            np.take(result, np.clip(whole.astype(int), 0, last), axis=axis)
            for whole in (np.floor(places), np.ceil(places))
        )
        share = (places - np.floor(places)).astype(np.float64).reshape(-1, *[1] * (3 - axis))
        result = below + (above - below) * share
    return {"resized_images": result}
