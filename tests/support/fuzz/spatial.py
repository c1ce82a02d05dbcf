"""Ideas: windows, samples and statistics over spatial axes, and products of any number of axes."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


def _image(s: Scope, *ranks: int) -> Value:
    """A value with a batch, channels and spatial axes, none of them empty: onnxruntime divides by sizes."""
    try:
        value = s.pick(lambda v: v.is_float and v.rank in (ranks or (3, 4)) and v.sample.size > 0)
    except Refused:
        flat = s.pick(lambda v: v.is_float and 0 < v.rank < 3 and v.sample.size > 0)
        rank = s.random.choice(ranks or (3, 4))
        return s.one("Reshape", flat, s.ints([*[1] * (rank - flat.rank), *flat.shape]))
    return value if s.chance(0.7) else s.one("Add", value, s.like(value.dtype, value.shape))


def _window(s: Scope, spatial: int) -> dict[str, Any]:
    """Sizes, strides and pads of a window; each perhaps left out."""
    fields: dict[str, Any] = {"kernel_shape": [s.random.randint(1, 3) for _ in range(spatial)]}
    if s.chance(0.5):
        fields["strides"] = [s.random.randint(1, 3) for _ in range(spatial)]
    if s.chance(0.5):
        fields["pads"] = [s.random.randint(0, size - 1) for size in fields["kernel_shape"]] * 2
    elif s.chance(0.3):
        fields["auto_pad"] = s.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if s.chance(0.3):
        fields["dilations"] = [s.random.randint(1, 2) for _ in range(spatial)]
    return fields


@idea(1.5)
def pooled(s: Scope) -> Value:
    """A pooling of any form."""
    value = _image(s)
    op = s.random.choice(["MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
    if op.startswith("Global"):
        return s.one(op, value)
    fields = _window(s, value.rank - 2)
    # Before 22 onnx's inference, and so its checker, counts windows that begin behind the image.
    ceiling = s.chance(0.3) and (s.growth.opset >= 22 or (op != "LpPool" and s.chance(0.2)))
    if "auto_pad" not in fields and ceiling:
        fields["ceil_mode"] = 1
    if op == "AveragePool" and s.chance(0.5):
        fields["count_include_pad"] = 1
    if op == "LpPool" and s.chance(0.5):
        fields["p"] = s.random.choice([1, 2, 3])
    return s.emit(op, [value], s.random.choice([1, 2]) if op == "MaxPool" else 1, **fields)[0]


@idea(1.5)
def convolved(s: Scope) -> Value:
    """A convolution or a transposed one, in groups and with every attribute."""
    value = _image(s)
    channels = value.shape[1]
    fields = _window(s, value.rank - 2)
    group = s.random.choice([1, 1, channels])
    each = s.random.randint(1, 2)
    turned = s.chance(0.5)
    ways = (channels, each) if turned else (each * group, channels // group)
    weight = s.like(value.dtype, (*ways, *fields["kernel_shape"]))
    if turned and "strides" in fields and s.chance(0.5):
        fields["output_padding"] = [s.random.randint(0, stride - 1) for stride in fields["strides"]]
    bias = s.like(value.dtype, (each * group,)) if s.chance(0.5) else None
    return s.one("ConvTranspose" if turned else "Conv", value, weight, bias, group=group, **fields)


@idea(1)
def resized(s: Scope) -> Value:
    """A Resize of some axes, by sizes or scales."""
    value = _image(s, 3, 4)
    target = [s.random.randint(1, 5) for _ in value.shape[2:]]
    fields: dict[str, Any] = {
        "mode": s.random.choice(["nearest", "linear", "linear"] + ["cubic"] * (value.rank == 4)),
        "coordinate_transformation_mode": s.random.choice(
            ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
        ),
    }
    if fields["mode"] == "nearest":
        fields["nearest_mode"] = s.random.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if s.growth.opset >= 18 and fields["mode"] != "nearest" and s.chance(0.3):
        fields["antialias"] = 1
    if s.chance(0.5):
        return s.one("Resize", value, None, None, s.ints([*value.shape[:2], *target]), **fields)
    scales = [1.0, 1.0, *(size / before for size, before in zip(target, value.shape[2:], strict=True))]
    return s.one("Resize", value, None, s.constant(scales, np.float32), **fields)


@idea(1)
def statistics(s: Scope) -> Value:
    """Normalisations over channels, groups and axes."""
    value = _image(s)
    channels = value.shape[1]
    scale, bias = s.like(value.dtype, (channels,)), s.like(value.dtype, (channels,))
    match s.random.choice(["instance", "group", "lp", "lrn", "mean", "rms"]):
        case "instance":
            return s.one("InstanceNormalization", value, scale, bias, epsilon=0.125)
        case "group" if s.growth.opset >= 21:
            groups = s.random.choice([1, channels])
            return s.one("GroupNormalization", value, scale, bias, num_groups=groups, epsilon=0.125)
        case "lp":
            shifted = s.one("Add", value, s.constant(0.3, value.dtype))
            axis = s.random.randrange(-value.rank, value.rank)
            return s.one("LpNormalization", shifted, axis=axis, p=s.random.choice([1, 2]))
        case "lrn":
            return s.one("LRN", value, size=s.random.choice([1, 3]), alpha=0.5, bias=2.0)
        case "rms" if s.growth.opset >= 23:
            axis = s.random.randrange(-value.rank, value.rank)
            return s.one("RMSNormalization", value, s.like(value.dtype, value.shape[axis:]), axis=axis, epsilon=0.125)
    axes = s.random.choice([[0, 2], [2], [0, 1, 2]])
    if all(value.shape[axis] == 1 for axis in axes):
        raise Refused("onnxruntime divides zero by zero, and onnx by a small number")
    return s.one("MeanVarianceNormalization", value, axes=axes)


@idea(1)
def sampled(s: Scope) -> Value:
    """A GridSample at points within and beyond the borders, or columns added up to an image."""
    value = _image(s, 4)
    if s.growth.opset >= 18 and s.chance(0.3):
        rows = s.like(value.dtype, (1, 4 * s.random.randint(1, 2), 6))
        return s.one("Col2Im", rows, s.ints([3, 4]), s.ints([2, 2]))
    if s.growth.opset < 20:
        raise Refused("other names of modes")
    grid = s.like(value.dtype, (value.shape[0], s.random.randint(1, 3), s.random.randint(1, 3), 2))
    return s.one(
        "GridSample",
        value,
        grid,
        mode=s.random.choice(["linear", "nearest", "cubic"]),
        padding_mode=s.random.choice(["zeros", "border", "reflection"]),
        align_corners=s.random.randint(0, 1),
    )


@idea(1)
def contracted(s: Scope) -> Value:
    """An Einsum over any axes of up to three operands, diagonals and an ellipsis among them."""
    operands = [s.floats(least_rank=1) for _ in range(s.random.randint(1, 3))]
    if any(not value.sample.size for value in operands):
        raise Refused("onnxruntime would crash")
    sizes: dict[str, int] = {}
    terms = []
    for value in operands:
        term = ""
        for size in value.shape:
            alike = [label for label, known in sizes.items() if known == size and (label not in term or s.chance(0.1))]
            label = s.random.choice(alike) if alike and s.chance(0.6) else string.ascii_letters[len(sizes)]
            sizes[label] = size
            term += label
        terms.append(term)
    left = "".join(s.random.sample(sorted(sizes), s.random.randint(0, min(3, len(sizes)))))
    if s.chance(0.2):
        first, kept = terms[0][0], terms[0][1:]
        if all(first not in other for other in [kept, *terms[1:]]):
            terms[0], left = "..." + kept, "..." + left.replace(first, "")
    equation = ",".join(terms) + ("" if s.chance(0.1) and "..." not in left else "->" + left)
    return s.one("Einsum", *operands, equation=equation)
