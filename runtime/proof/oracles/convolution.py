"""Float64 oracles of the gradients of convolutions and poolings, one element of the window after another.

At window p of an axis, element r of the window lies on element p * stride + r * dilation - before of the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.numerics import Array, channels_back, channels_last, float64
from lstm_lower.runtime.proof.oracles.registry import oracle

Slices = tuple[slice, slice]


def _padding(
    size: int, windows: int, extent: int, stride: int, padding: str, explicit: Sequence[int]
) -> tuple[int, int]:
    """Padding before and after an axis; of an odd number, TensorFlow's "SAME" has one more behind."""
    if padding == "EXPLICIT":
        before, after = explicit
    elif padding == "SAME":
        total = max((windows - 1) * stride + extent - size, 0)
        before, after = total // 2, total - total // 2
    else:
        before, after = 0, 0
    return before, after


class _Windows:
    """Places of the windows on a padded image, in NHWC."""

    def __init__(
        self,
        image: Sequence[int],
        windows: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        padding: str,
        explicit: Sequence[int],
    ) -> None:
        self.image, self.windows, self.kernel = image, windows, kernel
        self.strides, self.dilations = strides, dilations
        pairs = (explicit[0:2], explicit[2:4])
        self.pads = [
            _padding(size, count, (k - 1) * d + 1, s, padding, pair)
            for size, count, k, s, d, pair in zip(image, windows, kernel, strides, dilations, pairs, strict=True)
        ]

    def padded(self, x: Array, fill: float = 0) -> Array:
        """The image with its padding."""
        return np.pad(x, [(0, 0), *self.pads, (0, 0)], constant_values=fill)

    def taps(self) -> Iterator[tuple[int, int, Slices]]:
        """Each element of the window with the slices of the padded image that it meets."""
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                starts = (row * self.dilations[0], column * self.dilations[1])
                rows, columns = (
                    slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                    for start, count, stride in zip(starts, self.windows, self.strides, strict=True)
                )
                yield row, column, (rows, columns)

    def empty(self, batch: int, channels: int) -> Array:
        """A padded image of zeros."""
        rows, columns = (size + before + after for size, (before, after) in zip(self.image, self.pads, strict=True))
        return np.zeros((batch, rows, columns, channels))

    def inner(self, x: Array) -> Array:
        """A padded image without its padding."""
        (top, _), (left, _) = self.pads
        return x[:, top : top + self.image[0], left : left + self.image[1]]


def _spatial(vector: Sequence[int], data_format: str) -> list[int]:
    return [int(entry) for entry in (vector[1:3] if data_format == "NHWC" else vector[2:4])]


def _windows(
    image: Sequence[int],
    windows: Sequence[int],
    kernel: Sequence[int],
    data_format: str,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> _Windows:
    """The windows that the attributes place which all these ops have."""
    explicit = list(explicit_paddings) or [0] * 8
    start = 2 if data_format == "NHWC" else 4
    return _Windows(
        image,
        windows,
        kernel,
        _spatial(strides, data_format),
        _spatial(dilations, data_format),
        padding,
        explicit[start : start + 4],
    )


def _channels_of(vector: npt.ArrayLike, data_format: str) -> int:
    return int(np.asarray(vector)[3 if data_format == "NHWC" else 1])


@oracle("Conv2DBackpropInput")
def conv2d_backprop_input(
    *,
    input_sizes: npt.ArrayLike,
    filter: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """Each window's gradient goes back through the filter to the elements it covers."""
    weights, dy = float64(filter), channels_last(out_backprop, data_format)
    sizes = [int(size) for size in np.asarray(input_sizes)]
    image = _spatial(sizes, data_format)
    windows = _windows(image, dy.shape[1:3], weights.shape[:2], data_format, **placement)
    channels = _channels_of(sizes, data_format)
    groups = channels // weights.shape[2]
    grouped = weights.reshape(*weights.shape[:3], groups, -1)
    dy = dy.reshape(*dy.shape[:3], groups, -1)
    padded = windows.empty(dy.shape[0], channels)
    for row, column, (rows, columns) in windows.taps():
        part = np.einsum("npqgk,igk->npqgi", dy, grouped[row, column])
        padded[:, rows, columns] += part.reshape(*part.shape[:3], channels)
    return {"output": channels_back(windows.inner(padded), data_format)}


@oracle("Conv2DBackpropFilter")
def conv2d_backprop_filter(
    *,
    input: npt.ArrayLike,
    filter_sizes: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """An element of the filter gathers, over all windows, what it met times the gradient."""
    x, dy = channels_last(input, data_format), channels_last(out_backprop, data_format)
    shape = [int(size) for size in np.asarray(filter_sizes)]
    windows = _windows(x.shape[1:3], dy.shape[1:3], shape[:2], data_format, **placement)
    groups = x.shape[3] // shape[2]
    padded = windows.padded(x)
    dy = dy.reshape(*dy.shape[:3], groups, -1)
    gradient = np.zeros(shape)
    for row, column, (rows, columns) in windows.taps():
        met = padded[:, rows, columns]
        part = np.einsum("npqgi,npqgk->igk", met.reshape(*met.shape[:3], groups, -1), dy)
        gradient[row, column] = part.reshape(shape[2:])
    return {"output": gradient}


@oracle("DepthwiseConv2dNativeBackpropInput")
def depthwise_backprop_input(
    *,
    input_sizes: npt.ArrayLike,
    filter: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """The same with a filter for each channel, which makes M of it."""
    weights, dy = float64(filter), channels_last(out_backprop, data_format)
    sizes = [int(size) for size in np.asarray(input_sizes)]
    image = _spatial(sizes, data_format)
    windows = _windows(image, dy.shape[1:3], weights.shape[:2], data_format, **placement)
    dy = dy.reshape(*dy.shape[:3], *weights.shape[2:])
    padded = windows.empty(dy.shape[0], weights.shape[2])
    for row, column, (rows, columns) in windows.taps():
        padded[:, rows, columns] += np.einsum("npqcm,cm->npqc", dy, weights[row, column])
    return {"output": channels_back(windows.inner(padded), data_format)}


@oracle("DepthwiseConv2dNativeBackpropFilter")
def depthwise_backprop_filter(
    *,
    input: npt.ArrayLike,
    filter_sizes: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """The same with a filter for each channel, which makes M of it."""
    x, dy = channels_last(input, data_format), channels_last(out_backprop, data_format)
    shape = [int(size) for size in np.asarray(filter_sizes)]
    windows = _windows(x.shape[1:3], dy.shape[1:3], shape[:2], data_format, **placement)
    padded = windows.padded(x)
    dy = dy.reshape(*dy.shape[:3], *shape[2:])
    gradient = np.zeros(shape)
    for row, column, (rows, columns) in windows.taps():
        gradient[row, column] = np.einsum("npqc,npqcm->cm", padded[:, rows, columns], dy)
    return {"output": gradient}


@oracle("MaxPoolGrad")
def max_pool_grad(
    *,
    orig_input: npt.ArrayLike,
    orig_output: npt.ArrayLike,
    grad: npt.ArrayLike,
    ksize: Sequence[int],
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """A window's gradient goes to its largest element; of equal ones to the first, row by row."""
    x, dy = channels_last(orig_input, data_format), channels_last(grad, data_format)
    windows = _windows(x.shape[1:3], dy.shape[1:3], _spatial(ksize, data_format), data_format, **placement)
    padded = windows.padded(x, -np.inf)
    stacked = np.stack([padded[:, rows, columns] for _, _, (rows, columns) in windows.taps()])
    chosen = stacked.argmax(axis=0)
    gradient = windows.empty(x.shape[0], x.shape[3])
    for number, (_, _, (rows, columns)) in enumerate(windows.taps()):
        gradient[:, rows, columns] += np.where(chosen == number, dy, 0)
    return {"output": channels_back(windows.inner(gradient), data_format)}


@oracle("AvgPoolGrad")
def avg_pool_grad(
    *,
    orig_input_shape: npt.ArrayLike,
    grad: npt.ArrayLike,
    ksize: Sequence[int],
    data_format: str = "NHWC",
    **placement: Any,
) -> dict[str, Array]:
    """A window's gradient is shared out evenly among those of its elements that the image has."""
    dy, sizes = channels_last(grad, data_format), [int(size) for size in np.asarray(orig_input_shape)]
    image = _spatial(sizes, data_format)
    windows = _windows(image, dy.shape[1:3], _spatial(ksize, data_format), data_format, **placement)
    inside = windows.padded(np.ones((1, *image, 1)))
    count = sum(inside[:, rows, columns] for _, _, (rows, columns) in windows.taps())
    gradient = windows.empty(dy.shape[0], dy.shape[3])
    for _, _, (rows, columns) in windows.taps():
        gradient[:, rows, columns] += dy / count
    return {"output": channels_back(windows.inner(gradient), data_format)}
