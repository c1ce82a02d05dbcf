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
from lstm_lower.spatial import spatial_positions

Slices = tuple[slice, ...]


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
        pairs = [explicit[2 * axis : 2 * axis + 2] for axis in range(len(kernel))]
        self.pads = [
            _padding(size, count, (k - 1) * d + 1, s, padding, pair)
            for size, count, k, s, d, pair in zip(image, windows, kernel, strides, dilations, pairs, strict=True)
        ]

    def padded(self, x: Array, fill: float = 0) -> Array:
        """The image with its padding."""
        return np.pad(x, [(0, 0), *self.pads, (0, 0)], constant_values=fill)

    def taps(self) -> Iterator[tuple[tuple[int, ...], Slices]]:
        """Each element of the window with the part of the padded image that it meets."""
        for tap in np.ndindex(*self.kernel):
            starts = [at * gap for at, gap in zip(tap, self.dilations, strict=True)]
            places = (
                slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                for start, count, stride in zip(starts, self.windows, self.strides, strict=True)
            )
            yield tap, (slice(None), *places)

    def empty(self, batch: int, channels: int) -> Array:
        """A padded image of zeros."""
        sizes = (size + before + after for size, (before, after) in zip(self.image, self.pads, strict=True))
        return np.zeros((batch, *sizes, channels))

    def inner(self, x: Array) -> Array:
        """A padded image without its padding."""
        places = (slice(before, before + size) for size, (before, _) in zip(self.image, self.pads, strict=True))
        return x[(slice(None), *places)]


def _spatial(vector: Sequence[int], data_format: str) -> list[int]:
    return [int(vector[position]) for position in spatial_positions(data_format)]


def _windows(
    image: Sequence[int],
    windows: Sequence[int],
    kernel: Sequence[int],
    data_format: str,
    *,
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    dilations: Sequence[int] | None = None,
) -> _Windows:
    """The windows that the attributes place which all these ops have."""
    rank = len(data_format)
    explicit = list(explicit_paddings) or [0] * (2 * rank)
    start = 2 * spatial_positions(data_format)[0]
    return _Windows(
        image,
        windows,
        kernel,
        _spatial(strides, data_format),
        _spatial(dilations or [1] * rank, data_format),
        padding,
        explicit[start : start + 2 * (rank - 2)],
    )


def _format(data_format: str | None, rank: int) -> str:
    return data_format or ("NHWC" if rank == 4 else "NDHWC")


@oracle("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def convolution_backprop_input(
    *,
    input_sizes: npt.ArrayLike,
    filter: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = None,
    **placement: Any,
) -> dict[str, Array]:
    """Each window's gradient goes back through the filter to the elements it covers."""
    weights, sizes = float64(filter), [int(size) for size in np.asarray(input_sizes)]
    layout = _format(data_format, len(sizes))
    dy = channels_last(out_backprop, layout)
    windows = _windows(_spatial(sizes, layout), dy.shape[1:-1], weights.shape[:-2], layout, **placement)
    channels = sizes[layout.index("C")]
    groups = channels // weights.shape[-2]
    grouped = weights.reshape(*weights.shape[:-1], groups, -1)
    dy = dy.reshape(*dy.shape[:-1], groups, -1)
    padded = windows.empty(dy.shape[0], channels)
    for tap, places in windows.taps():
        part = np.einsum("...gk,igk->...gi", dy, grouped[tap])
        padded[places] += part.reshape(*part.shape[:-2], channels)
    return {"output": channels_back(windows.inner(padded), layout)}


@oracle("Conv2DBackpropFilter", "Conv3DBackpropFilterV2")
def convolution_backprop_filter(
    *,
    input: npt.ArrayLike,
    filter_sizes: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = None,
    **placement: Any,
) -> dict[str, Array]:
    """An element of the filter gathers, over all windows, what it met times the gradient."""
    shape = [int(size) for size in np.asarray(filter_sizes)]
    layout = _format(data_format, len(shape))
    x, dy = channels_last(input, layout), channels_last(out_backprop, layout)
    windows = _windows(x.shape[1:-1], dy.shape[1:-1], shape[:-2], layout, **placement)
    groups = x.shape[-1] // shape[-2]
    padded = windows.padded(x)
    dy = dy.reshape(dy[..., 0].size, groups, -1)
    gradient = np.zeros(shape)
    for tap, places in windows.taps():
        part = np.einsum("ngi,ngk->igk", padded[places].reshape(len(dy), groups, -1), dy)
        gradient[tap] = part.reshape(shape[-2:])
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
    for tap, places in windows.taps():
        padded[places] += np.einsum("npqcm,cm->npqc", dy, weights[tap])
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
    for tap, places in windows.taps():
        gradient[tap] = np.einsum("npqc,npqcm->cm", padded[places], dy)
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
    windows = _windows(x.shape[1:-1], dy.shape[1:-1], _spatial(ksize, data_format), data_format, **placement)
    padded = windows.padded(x, -np.inf)
    chosen = np.stack([padded[places] for _, places in windows.taps()]).argmax(axis=0)
    gradient = windows.empty(x.shape[0], x.shape[-1])
    for number, (_, places) in enumerate(windows.taps()):
        gradient[places] += np.where(chosen == number, dy, 0)
    return {"output": channels_back(windows.inner(gradient), data_format)}


@oracle("MaxPoolGradV2")
def max_pool_grad_v2(*, ksize: npt.ArrayLike, strides: npt.ArrayLike, **given: Any) -> dict[str, Array]:
    """The same with sizes and strides as operands."""
    return max_pool_grad(ksize=np.asarray(ksize).tolist(), strides=np.asarray(strides).tolist(), **given)


@oracle("MaxPoolGradWithArgmax")
def max_pool_grad_with_argmax(
    *,
    input: npt.ArrayLike,
    grad: npt.ArrayLike,
    argmax: npt.ArrayLike,
    include_batch_in_index: bool = False,
    **placement: Any,
) -> dict[str, Array]:
    """A window's gradient goes to the element of that number, in its own image or in all of them."""
    images = np.zeros(np.shape(input))
    rows = images.reshape(1 if include_batch_in_index else len(images), -1)
    for row, places, dy in zip(
        rows, np.reshape(argmax, (len(rows), -1)), float64(grad).reshape(len(rows), -1), strict=True
    ):
        np.add.at(row, places, dy)
    return {"output": images}


@oracle("MaxPoolGradGrad", "MaxPool3DGradGrad")
def max_pool_grad_grad(
    *,
    orig_input: npt.ArrayLike,
    orig_output: npt.ArrayLike,
    grad: npt.ArrayLike,
    ksize: Sequence[int],
    data_format: str | None = None,
    **placement: Any,
) -> dict[str, Array]:
    """What lies at the place of each window's largest element, of equal ones at that of the first."""
    layout = _format(data_format, len(ksize))
    x, y, gradient = (channels_last(value, layout) for value in (orig_input, orig_output, grad))
    windows = _windows(x.shape[1:-1], y.shape[1:-1], _spatial(ksize, layout), layout, **placement)
    taps = [places for _, places in windows.taps()]
    image, padded = windows.padded(x, -np.inf), windows.padded(gradient)
    chosen = np.stack([image[places] for places in taps]).argmax(axis=0)
    met = np.take_along_axis(np.stack([padded[places] for places in taps]), chosen[None], 0)[0]
    return {"output": channels_back(met, layout)}


@oracle("MaxPoolGradGradV2")
def max_pool_grad_grad_v2(*, ksize: npt.ArrayLike, strides: npt.ArrayLike, **given: Any) -> dict[str, Array]:
    """The same with sizes and strides as operands."""
    return max_pool_grad_grad(ksize=np.asarray(ksize).tolist(), strides=np.asarray(strides).tolist(), **given)


@oracle("MaxPool3DGrad")
def max_pool_3d_grad(
    *,
    orig_input: npt.ArrayLike,
    orig_output: npt.ArrayLike,
    grad: npt.ArrayLike,
    ksize: Sequence[int],
    data_format: str = "NDHWC",
    **placement: Any,
) -> dict[str, Array]:
    """A window's gradient goes to each element that equals its largest."""
    x, y, dy = (channels_last(value, data_format) for value in (orig_input, orig_output, grad))
    windows = _windows(x.shape[1:-1], dy.shape[1:-1], _spatial(ksize, data_format), data_format, **placement)
    padded, gradient = windows.padded(x, -np.inf), windows.empty(x.shape[0], x.shape[-1])
    for _, places in windows.taps():
        gradient[places] += np.where(padded[places] == y, dy, 0)
    return {"output": channels_back(windows.inner(gradient), data_format)}


@oracle("AvgPoolGrad", "AvgPool3DGrad")
def avg_pool_grad(
    *,
    orig_input_shape: npt.ArrayLike,
    grad: npt.ArrayLike,
    ksize: Sequence[int],
    data_format: str | None = None,
    **placement: Any,
) -> dict[str, Array]:
    """A window's gradient is shared out evenly among those of its elements that the image has."""
    layout, sizes = _format(data_format, len(ksize)), [int(size) for size in np.asarray(orig_input_shape)]
    dy, image = channels_last(grad, layout), _spatial(sizes, layout)
    windows = _windows(image, dy.shape[1:-1], _spatial(ksize, layout), layout, **placement)
    inside = windows.padded(np.ones((1, *image, 1)))
    count = sum(inside[places] for _, places in windows.taps())
    gradient = windows.empty(dy.shape[0], dy.shape[-1])
    for _, places in windows.taps():
        gradient[places] += dy / count
    return {"output": channels_back(windows.inner(gradient), layout)}
