"""Float64 oracles of convolutions and poolings, one element of the window after another.

At window p of an axis, element r of the window lies on element p * stride + r * dilation - before of the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.numerics import Array, channels_back, channels_last
from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, index, wide
from lstm_lower.runtime.proof.oracles.registry import oracle


def _spatial(vector: Sequence[int], data_format: str) -> list[int]:
    return [int(entry) for entry, letter in zip(vector, data_format, strict=True) if letter not in "NC"]


def _taps(
    x: Array,
    kernel: Sequence[int],
    data_format: str,
    *,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] | None = None,
    explicit_paddings: Sequence[int] = (),
    fill: float = 0,
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each element of the window with what it meets: an array with an entry for each window, of an image in N..C."""
    rank = len(data_format)
    steps, gaps = _spatial(strides, data_format), _spatial(dilations or [1] * rank, data_format)
    explicit = list(explicit_paddings) or [0] * (2 * rank)
    befores, afters = _spatial(explicit[::2], data_format), _spatial(explicit[1::2], data_format)
    counts = []
    for axis, size in enumerate(x.shape[1:-1]):
        extent = (kernel[axis] - 1) * gaps[axis] + 1
        if padding == "SAME":
            missing = max((-(-size // steps[axis]) - 1) * steps[axis] + extent - size, 0)
            befores[axis], afters[axis] = missing // 2, missing - missing // 2
        counts.append((size + befores[axis] + afters[axis] - extent) // steps[axis] + 1)
    padded = np.pad(x, [(0, 0), *zip(befores, afters, strict=True), (0, 0)], constant_values=fill)
    for tap in itertools.product(*(range(size) for size in kernel)):
        places = tuple(
            slice(at * gap, at * gap + (count - 1) * step + 1, step)
            for at, gap, count, step in zip(tap, gaps, counts, steps, strict=True)
        )
        yield tap, padded[(slice(None), *places)]


@oracle("Conv2D", "Conv3D")
def convolution(
    *,
    input: npt.ArrayLike,
    filter: npt.ArrayLike,
    strides: Sequence[int],
    padding: str,
    data_format: str | None = None,
    dilations: Sequence[int] | None = None,
    explicit_paddings: Sequence[int] = (),
    use_cudnn_on_gpu: bool = True,
) -> dict[str, Values]:
    """What each element of the filter meets, times it, added up."""
    weights = wide(filter)
    layout = data_format or ("NHWC" if weights.ndim == 4 else "NDHWC")
    x = channels_last(input, layout)
    groups = x.shape[-1] // weights.shape[-2]
    split = weights.reshape(*weights.shape[:-1], groups, -1)
    total: Values = np.zeros(())
    placement = {"strides": strides, "dilations": dilations, "explicit_paddings": explicit_paddings}
    for tap, met in _taps(x, weights.shape[:-2], layout, padding=padding, **placement):  # type: ignore[arg-type]
        grouped = met.reshape(*met.shape[:-1], groups, -1)
        part = np.einsum("...gi,igk->...gk", grouped, split[tap])
        total = total + part.reshape(*met.shape[:-1], -1)
    return {"output": channels_back(total, layout)}


@oracle("DepthwiseConv2dNative")
def depthwise_convolution(
    *,
    input: npt.ArrayLike,
    filter: npt.ArrayLike,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: Sequence[int] | None = None,
    explicit_paddings: Sequence[int] = (),
) -> dict[str, Values]:
    """The same with filters of its own for each channel."""
    weights, x = wide(filter), channels_last(input, data_format)
    total: Values = np.zeros(())
    placement = {"strides": strides, "dilations": dilations, "explicit_paddings": explicit_paddings}
    for tap, met in _taps(x, weights.shape[:2], data_format, padding=padding, **placement):  # type: ignore[arg-type]
        total = total + (met[..., None] * weights[tap]).reshape(*met.shape[:-1], -1)
    return {"output": channels_back(total, data_format)}


@oracle("MaxPool", "MaxPoolV2", "MaxPool3D")
def max_pool(
    *,
    input: npt.ArrayLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str | None = None,
    explicit_paddings: Sequence[int] = (),
) -> dict[str, Values]:
    """The largest number that an element of the window meets."""
    layout = data_format or ("NHWC" if np.ndim(input) == 4 else "NDHWC")
    x = channels_last(input, layout)
    placed = _taps(
        x,
        _spatial(ksize, layout),
        layout,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        fill=-np.inf,
    )
    return {"output": channels_back(np.max([met for _, met in placed], axis=0), layout)}


@oracle("MaxPoolWithArgmax")
def max_pool_with_argmax(
    *,
    input: npt.ArrayLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    Targmax: int = 7,
    include_batch_in_index: bool = False,
) -> dict[str, Values]:
    """The largest number, and that of the first element that is so large: elements are pooled along with theirs."""
    x = wide(input)
    numbers = np.broadcast_to(np.arange(x[0].size).reshape(1, *x.shape[1:]), x.shape)
    if include_batch_in_index:
        numbers = np.arange(x.size).reshape(x.shape)
    kernel = _spatial(ksize, "NHWC")
    met = [part for _, part in _taps(x, kernel, "NHWC", strides=strides, padding=padding, fill=-np.inf)]
    places = [part for _, part in _taps(numbers, kernel, "NHWC", strides=strides, padding=padding)]
    chosen = np.argmax(met, axis=0)[None]
    largest, where = (np.take_along_axis(np.stack(parts), chosen, 0)[0] for parts in (met, places))
    return {"output": largest, "argmax": where.astype(index(Targmax))}


def _avg_pool(
    x: npt.ArrayLike, ksize: Sequence[int], strides: Sequence[int], padding: str, layout: str
) -> dict[str, Values]:
    image, kernel = channels_last(x, layout), _spatial(ksize, layout)
    total = sum(met for _, met in _taps(image, kernel, layout, strides=strides, padding=padding))
    inside = _taps(np.ones_like(image), kernel, layout, strides=strides, padding=padding)
    return {"output": channels_back(np.asarray(total / sum(met for _, met in inside)), layout)}


@oracle("AvgPool")
def avg_pool(
    *,
    value: npt.ArrayLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> dict[str, Values]:
    """The mean of those that lie on the image."""
    return _avg_pool(value, ksize, strides, padding, data_format)


@oracle("AvgPool3D")
def avg_pool_3d(
    *,
    input: npt.ArrayLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> dict[str, Values]:
    """The mean of those that lie in the volume."""
    return _avg_pool(input, ksize, strides, padding, data_format)
