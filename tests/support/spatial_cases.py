"""Calls of the gradients of convolutions, poolings and batch normalisation, compared with TensorFlow's CPU kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.spatial import spatial_axes, spatial_positions
from tests.support.gradient_cases import DTYPES, Array, Case, Operands, normal, rng_of

RECORDING = Path(__file__).parents[1] / "data" / "tensorflow" / "spatial.npz"

FORMATS = ("NHWC", "NCHW")
VOLUME_FORMATS = ("NDHWC", "NCDHW")
FORMATS_OF = {2: FORMATS, 3: VOLUME_FORMATS}

# Operands that hold sizes.
SIZES = ("input_sizes", "filter_sizes", "orig_input_shape")
IMAGES = ("input", "out_backprop", "orig_input", "orig_output", "grad", "y_backprop", "x", "argmax")
WINDOWS_SIZES = ("ksize", "strides")

# What a window may look like: rows and columns of the kernel (of a volume also slices), strides, padding.
Sizes = tuple[int, ...]
Window = tuple[Sizes, Sizes, str]
WINDOWS: list[tuple[Sizes, Window]] = [
    ((5, 6), ((3, 2), (1, 1), "VALID")),
    ((5, 6), ((3, 2), (1, 1), "SAME")),
    ((5, 6), ((2, 3), (1, 1), "EXPLICIT")),
    ((7, 8), ((3, 3), (2, 2), "VALID")),  # columns that no window meets
    ((7, 8), ((3, 3), (2, 2), "SAME")),
    ((7, 7), ((2, 3), (3, 3), "SAME")),
    ((8, 9), ((2, 2), (3, 3), "VALID")),
    ((7, 6), ((3, 4), (2, 2), "EXPLICIT")),
    ((6, 5), ((1, 1), (2, 2), "SAME")),
    ((1, 9), ((1, 3), (1, 1), "SAME")),  # a convolution of sequences
    ((3, 2), ((5, 3), (1, 1), "SAME")),  # a window larger than the image
    ((4, 4), ((4, 4), (4, 4), "VALID")),
    ((7, 9), ((3, 2), (2, 3), "SAME")),
    ((6, 8), ((2, 2), (3, 3), "SAME")),  # elements between windows, and at their ends
]
VOLUMES: list[tuple[Sizes, Window]] = [
    ((3, 5, 6), ((2, 3, 2), (1, 1, 1), "VALID")),
    ((3, 5, 6), ((2, 3, 2), (1, 1, 1), "SAME")),
    ((4, 7, 6), ((3, 3, 2), (2, 2, 3), "SAME")),
    ((4, 6, 5), ((2, 2, 1), (2, 3, 2), "VALID")),
]
EXPLICIT = [0, 0, 1, 0, 1, 2, 0, 0]


def _vector(sizes: Sizes, data_format: str) -> list[int]:
    return list(_image((1, *sizes, 1), data_format))


def _image(shape: Sizes, data_format: str) -> Sizes:
    n, *inner, c = shape
    return shape if data_format[-1] == "C" else (n, c, *inner)


def _attributes(window: Window, data_format: str, *, dilations: Sizes | None = None) -> dict[str, Any]:
    _, strides, padding = window
    attributes: dict[str, Any] = {"strides": _vector(strides, data_format), "padding": padding}
    if padding == "EXPLICIT":
        shift = 0 if data_format == "NHWC" else 2
        attributes["explicit_paddings"] = [*[0] * shift, *EXPLICIT][:8]
    if data_format not in ("NHWC", "NDHWC"):
        attributes["data_format"] = data_format
    if dilations is not None:
        attributes["dilations"] = _vector(dilations, data_format)
    return attributes


def _windows_of(image: Sizes, window: Window, attributes: dict[str, Any]) -> Sizes:
    axes = spatial_axes({"data_format": FORMATS_OF[len(image)][0]} | attributes, window[0])
    return tuple(axis.output_size(size) for axis, size in zip(axes, image, strict=True))


def _convolution(
    image: Sizes,
    window: Window,
    *,
    batch: int = 2,
    channels: int = 3,
    groups: int = 1,
    results: int = 4,
    dtype: str = "float32",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
) -> Iterator[Case]:
    attributes = _attributes(window, data_format, dilations=dilations)
    what = f"{image}-{window}-{channels}-{groups}-{dtype}-{data_format}-{dilations}".replace(" ", "").replace("'", "")
    kind, version = ("Conv2D", "") if len(image) == 2 else ("Conv3D", "V2")
    counts = _windows_of(image, window, attributes)
    rng = rng_of("convolution", what)
    x = normal(rng, _image((batch, *image, channels), data_format), dtype)
    y = normal(rng, _image((batch, *counts, results), data_format), dtype)
    weights = normal(rng, (*window[0], channels // groups, results), dtype)
    sizes = {"input_sizes": np.array(x.shape, np.int32), "filter_sizes": np.array(weights.shape, np.int32)}
    given: Operands = {"input_sizes": sizes["input_sizes"], "filter": weights, "out_backprop": y}
    yield Case(f"{kind}BackpropInput{version}", what, given, attributes)
    given = {"input": x, "filter_sizes": sizes["filter_sizes"], "out_backprop": y}
    yield Case(f"{kind}BackpropFilter{version}", what, given, attributes)


def _depthwise(
    image: Sizes,
    window: Window,
    multiplier: int,
    *,
    dtype: str = "float32",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
) -> Iterator[Case]:
    attributes = _attributes(window, data_format, dilations=dilations)
    what = f"{image}-{window}-{multiplier}-{dtype}-{data_format}-{dilations}".replace(" ", "").replace("'", "")
    counts = _windows_of(image, window, attributes)
    rng = rng_of("depthwise", what)
    x = normal(rng, _image((2, *image, 3), data_format), dtype)
    y = normal(rng, _image((2, *counts, 3 * multiplier), data_format), dtype)
    weights = normal(rng, (*window[0], 3, multiplier), dtype)
    given: Operands = {"input_sizes": np.array(x.shape, np.int32), "filter": weights, "out_backprop": y}
    yield Case("DepthwiseConv2dNativeBackpropInput", what, given, attributes)
    given = {"input": x, "filter_sizes": np.array(weights.shape, np.int32), "out_backprop": y}
    yield Case("DepthwiseConv2dNativeBackpropFilter", what, given, attributes)


def _largest(x: Array, window: Window, attributes: dict[str, Any], *, batch: bool = False) -> tuple[Array, Array]:
    """The largest number in each window, and where the first of them stands: its number in the image, or in all."""
    (kernel, strides, padding), rank = window, len(window[0])
    channel = attributes.get("data_format", FORMATS_OF[rank][0]).index("C")
    image = np.moveaxis(x, channel, -1)
    numbers = np.arange(x.size).reshape(image.shape) % (x.size if batch else image[0].size)
    pads = [(0, 0)] * rank
    if padding == "SAME":
        axes = zip(image.shape[1:-1], strides, kernel, strict=True)
        missing = [max((-(-n // step) - 1) * step + size - n, 0) for n, step, size in axes]
        pads = [(count // 2, count - count // 2) for count in missing]
    elif padding == "EXPLICIT":
        pads = [(EXPLICIT[2 * axis], EXPLICIT[2 * axis + 1]) for axis in range(1, 1 + rank)]
    parts = []
    for values, fill in ((image, -np.inf), (numbers, 0)):
        padded = np.pad(values, [(0, 0), *pads, (0, 0)], constant_values=fill)
        views = np.lib.stride_tricks.sliding_window_view(padded, kernel, tuple(range(1, 1 + rank)))
        taken = views[(slice(None), *(slice(None, None, step) for step in strides))]
        parts.append(taken.reshape(*taken.shape[: image.ndim], -1))
    first = parts[0].argmax(-1)[..., None]
    largest, places = (np.take_along_axis(part, first, -1)[..., 0] for part in parts)
    return np.moveaxis(largest, -1, channel), places


def _poolings(
    image: Sizes, window: Window, *, dtype: str = "float32", data_format: str = "NHWC", tied: bool = False
) -> Iterator[Case]:
    attributes = _attributes(window, data_format) | {"ksize": _vector(window[0], data_format)}
    what = f"{image}-{window}-{dtype}-{data_format}{'-tied' * tied}".replace(" ", "").replace("'", "")
    counts = _windows_of(image, window, attributes)
    rng = rng_of("pooling", what)
    x = normal(rng, _image((2, *image, 3), data_format), dtype)
    if tied:
        x = np.round(x)
    y = normal(rng, _image((2, *counts, 3), data_format), dtype)
    kind = "3D" * (len(image) == 3)
    exact, _ = _largest(x, window, attributes)
    # The kernel for images finds the largest elements itself; what it is told they are does not matter.
    given: Operands = {"orig_input": x, "orig_output": exact if kind else np.zeros_like(y), "grad": y}
    yield Case(f"MaxPool{kind}Grad", what, given, attributes)
    if window[2] != "EXPLICIT":
        second = {"orig_input": x, "orig_output": exact, "grad": normal(rng, x.shape, dtype)}
        yield Case(f"MaxPool{kind}GradGrad", what, {**second}, attributes)
        if not kind:
            sizes: Operands = {name: np.array(attributes[name], np.int32) for name in ("ksize", "strides")}
            rest = {name: value for name, value in attributes.items() if name not in sizes}
            yield Case("MaxPoolGradV2", what, given | sizes, rest)
            yield Case("MaxPoolGradGradV2", what, second | sizes, rest)
    if not kind and data_format == "NHWC" and window[2] != "EXPLICIT":
        for batch in (False, True):
            more = {"include_batch_in_index": batch} | attributes
            _, places = _largest(x, window, attributes, batch=batch)
            yield Case("MaxPoolGradWithArgmax", f"{what}-{batch}", {"input": x, "grad": y, "argmax": places}, more)
    if not tied and window[2] != "EXPLICIT":
        shape = np.array(x.shape, np.int32)
        yield Case(f"AvgPool{kind}Grad", what, {"orig_input_shape": shape, "grad": y}, attributes)


def _fits_pooling(window: Window) -> bool:
    """A pooling's padding must be smaller than its window."""
    return window[2] != "EXPLICIT" or min(window[0]) > 2


def _normalizations() -> Iterator[Case]:
    formats = [("NHWC", (3, 2, 4, 5)), ("NCHW", (3, 5, 2, 4)), ("NDHWC", (2, 3, 1, 2, 5)), ("NCDHW", (2, 5, 3, 1, 2))]
    for (data_format, shape), training, dtype in [
        *product(formats, (True, False), ["float32"]),
        *product(formats[:1], (True, False), ["float16"]),
        (("NHWC", (1, 1, 1, 5)), True, "float32"),
    ]:
        for version in ("", "V2", "V3"):
            if (version == "" and dtype != "float32") or (version != "V3" and len(shape) == 5):
                continue
            what = f"{data_format}-{'x'.join(map(str, shape))}-{training}-{dtype}"
            attributes: dict[str, Any] = {"is_training": training, "epsilon": 1e-3, "data_format": data_format}
            rng = rng_of("normalization", what)
            image = (5 + 2 * normal(rng, shape)).astype(dtype)
            vectors = [normal(rng, (5,)) for _ in range(4)]
            scale, offset, mean, variance = (*vectors[:3], np.square(vectors[3]) + np.float32(0.1))
            empty = np.zeros(0, np.float32)
            running = {"mean": empty, "variance": empty} if training else {"mean": mean, "variance": variance}
            yield Case(
                f"FusedBatchNorm{version}", what, {"x": image, "scale": scale, "offset": offset, **running}, attributes
            )
            if training and data_format == "NHWC":
                averaged = {"x": image, "scale": scale, "offset": offset, "mean": mean, "variance": variance}
                options = attributes | {"exponential_avg_factor": 0.25}
                yield Case(f"FusedBatchNorm{version}", f"{what}-averaged", averaged, options)
            over = tuple(axis for axis, letter in enumerate(data_format) if letter != "C")
            if training:
                mean = image.astype(np.float32).mean(axis=over)
                variance = image.astype(np.float32).var(axis=over)
            gradient: Operands = {
                "y_backprop": normal(rng, shape, dtype),
                "x": image,
                "scale": scale,
                "reserve_space_1": mean,
                "reserve_space_2": variance,
            }
            if version == "V3":
                gradient["reserve_space_3"] = np.zeros((), np.float32)
            yield Case(f"FusedBatchNormGrad{version}", what, gradient, attributes)


@cache
def cases() -> list[Case]:
    """The whole grid."""
    found: list[Case] = []
    for image, window in WINDOWS:
        found += _convolution(image, window)
        found += _depthwise(image, window, 2)
        if _fits_pooling(window):
            found += _poolings(image, window)
    for image, window in WINDOWS[3:6]:
        for data_format in FORMATS:
            found += _convolution(image, window, dilations=(2, 3), data_format=data_format)
            found += _convolution(image, window, channels=6, groups=3, results=6, data_format=data_format)
            found += _depthwise(image, window, 1, data_format=data_format)
        found += _depthwise(image, window, 2, dilations=(2, 3))
        found += _poolings(image, window, tied=True)
        found += _poolings(image, window, data_format="NCHW")
    for image, window in VOLUMES:
        found += _convolution(image, window, data_format="NDHWC")
        found += _poolings(image, window, data_format="NDHWC")
    for data_format in VOLUME_FORMATS:
        found += _convolution(
            *VOLUMES[1], channels=6, groups=3, results=6, dilations=(1, 2, 2), data_format=data_format
        )
        found += _poolings(*VOLUMES[2], tied=data_format == "NDHWC", data_format=data_format)
    for dtype in DTYPES[:2]:
        found += _convolution(*WINDOWS[4], dtype=dtype, batch=1)
        found += _depthwise(*WINDOWS[4], 1, dtype=dtype)
        found += _poolings(*WINDOWS[4], dtype=dtype)
    found += [case for case in _poolings(*WINDOWS[3], dtype="float64") if case.op == "MaxPoolGrad"]
    found += _normalizations()
    return list({case.id: case for case in found}.values())


def on_cpu(case: Case) -> bool:
    """Whether TensorFlow's CPU kernel takes the call; the others it has for GPUs only."""
    if case.op.startswith("FusedBatchNorm"):
        return case.attributes["is_training"] or case.attributes["data_format"].endswith("C")
    depthwise = case.op.startswith("Depthwise")
    attributes = {"data_format": "NHWC", "dilations": [1], "strides": case.operands.get("strides")} | dict(
        case.attributes
    )
    strides = {attributes["strides"][at] for at in spatial_positions(attributes["data_format"])}
    groups = case.op.startswith("Conv") and "-6-3-" in case.what
    plain = attributes["data_format"].endswith("C") and max(attributes["dilations"]) == 1 and not groups
    return plain and (not depthwise or len(strides) == 1)


@cache
def recording() -> dict[str, dict[str, Array]]:
    """What TensorFlow returned, by case and output; of calls that its CPU kernels take."""
    found: dict[str, dict[str, Array]] = {}
    with np.load(RECORDING) as data:
        for key in data.files:
            if "/" in key:
                case, name = key.rsplit("/", 1)
                found.setdefault(case, {})[name] = data[key]
    return found


def has_contents(case: Case, output: str) -> bool:
    """Whether TensorFlow's CPU kernel fills an output; some reserve spaces it leaves as memory happens to be."""
    if output == "reserve_space_3" and case.op == "FusedBatchNormV3":
        return False
    forward = case.op.startswith("FusedBatchNorm") and "Grad" not in case.op
    return not (forward and output.startswith("reserve") and not case.attributes["is_training"])
