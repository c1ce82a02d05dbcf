"""Float64 oracles of layers that keep their operand's shape, and of resized images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def _chosen(size: int, made: int, align_corners: bool, half_pixel_centers: bool) -> Values:
    """The matrix that takes the pixel that each place lies in; with aligned corners the nearest one."""
    places = _places(size, made, align_corners, half_pixel_centers)
    pixels = np.floor(places + np.float32(0.5) if align_corners else places).astype(int)
    chosen: Values = np.eye(size)[np.clip(pixels, 0, size - 1)]
    return chosen


def _interpolated(size: int, made: int, align_corners: bool, half_pixel_centers: bool) -> Values:
    """The matrix that takes the mean of the pixels on both sides of a place, by their distances."""
    places = _places(size, made, align_corners, half_pixel_centers)
    places = places - np.float32(0.5) if half_pixel_centers else places
    below, above = (np.eye(size)[np.clip(f(places).astype(int), 0, size - 1)] for f in (np.floor, np.ceil))
    share = (places - np.floor(places)).astype(np.float64)[:, None]
    return np.asarray(below + (above - below) * share)


def _resized(matrix: Callable[..., Values], images: npt.ArrayLike, size: npt.ArrayLike, **flags: bool) -> Values:
    x, (rows, columns) = wide(images), (int(entry) for entry in np.asarray(size))
    row, column = matrix(x.shape[1], rows, **flags), matrix(x.shape[2], columns, **flags)
    return np.asarray(np.einsum("ph,nhwc,qw->npqc", row, x, column))


def _resized_back(matrix: Callable[..., Values], grads: npt.ArrayLike, size: Sequence[int], **flags: bool) -> Values:
    dy, (rows, columns) = wide(grads), (int(entry) for entry in size)
    row, column = matrix(rows, dy.shape[1], **flags), matrix(columns, dy.shape[2], **flags)
    return np.asarray(np.einsum("ph,npqc,qw->nhwc", row, dy, column))


@oracle("ResizeNearestNeighbor")
def resize_nearest_neighbor(
    *, images: npt.ArrayLike, size: npt.ArrayLike, align_corners: bool = False, half_pixel_centers: bool = False
) -> dict[str, Values]:
    """Rows and columns are chosen by a matrix each."""
    flags = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return {"resized_images": _resized(_chosen, images, size, **flags)}


@oracle("ResizeBilinear")
def resize_bilinear(
    *, images: npt.ArrayLike, size: npt.ArrayLike, align_corners: bool = False, half_pixel_centers: bool = False
) -> dict[str, Values]:
    """Rows and columns are interpolated by a matrix each."""
    flags = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return {"resized_images": _resized(_interpolated, images, size, **flags)}


@oracle("ResizeNearestNeighborGrad")
def resize_nearest_neighbor_grad(
    *, grads: npt.ArrayLike, size: npt.ArrayLike, align_corners: bool = False, half_pixel_centers: bool = False
) -> dict[str, Values]:
    """Products with the transposed matrices."""
    flags = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return {"output": _resized_back(_chosen, grads, np.asarray(size).tolist(), **flags)}


@oracle("ResizeBilinearGrad")
def resize_bilinear_grad(
    *,
    grads: npt.ArrayLike,
    original_image: npt.ArrayLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> dict[str, Values]:
    """Products with the transposed matrices."""
    flags = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return {"output": _resized_back(_interpolated, grads, np.shape(original_image)[1:3], **flags)}


def _neighbours(channels: int, radius: int) -> Values:
    """1 where two channels are at most so far apart."""
    numbers = np.arange(channels)
    return (abs(numbers[:, None] - numbers) <= radius).astype(np.float64)


@oracle("LRN")
def local_response_normalization(
    *, input: npt.ArrayLike, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> dict[str, Values]:
    """Each element over a power of the sum of its neighbours' squares."""
    x = wide(input)
    return {"output": x / (bias + alpha * np.square(x) @ _neighbours(x.shape[-1], depth_radius)) ** beta}


@oracle("LRNGrad")
def local_response_normalization_grad(
    *,
    input_grads: npt.ArrayLike,
    input_image: npt.ArrayLike,
    output_image: npt.ArrayLike,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> dict[str, Values]:
    """With s = bias + alpha * sum of x squared: dx = dy s^-beta - 2 alpha beta x * sum of (dy x s^(-beta-1))."""
    x, dy = wide(input_image), wide(input_grads)
    near = _neighbours(x.shape[-1], depth_radius)
    s = bias + alpha * np.square(x) @ near
    return {"output": dy * s**-beta - 2 * alpha * beta * x * ((dy * x * s ** (-beta - 1)) @ near)}
