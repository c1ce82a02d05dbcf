"""Where the windows of convolutions and poolings lie on images whose sizes may only show at run time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.formulas.sizes import Size, at_least, divided
from lstm_lower.spatial import SpatialAxis

SAME = ("SAME", "SAME_LOWER")

# A window of more elements than these, and its gradient stays one convolution: each takes a slice and a product.
_MOST_PRODUCTS = 32
# Products of fewer rows than these leave parts of a processor's vectors empty.
_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Margins:
    """Padding of an axis so that it just holds all windows.

    Attributes:
        before: the padding before it.
        after: the padding after it; where no window meets the last elements, minus the number of these.
        stated: the padding where it is given in numbers; with it, fewer elements than a stride meet no window.
    """

    before: Size
    after: Size
    stated: tuple[int, int] | None = None

    @property
    def padding(self) -> tuple[int, int] | None:
        """Both as padding proper, if they are known and not negative."""
        known = isinstance(self.before, int) and isinstance(self.after, int) and self.after >= 0
        return (self.before, self.after) if known else None  # type: ignore[return-value]


def margins(axis: SpatialAxis, size: Size, windows: Size) -> Margins:
    """The margins of an axis with that many elements and windows; with a stride of 1 they do not depend on them."""
    before, after = axis.explicit
    odd = int(axis.padding == "SAME_LOWER")
    if axis.stride == 1 and axis.padding in SAME:
        some = divided(axis.extent - 1 + odd, 2)
        return Margins(some, axis.extent - 1 - some)
    if axis.stride == 1:
        return Margins(before, after, axis.explicit)
    missing = (windows - 1) * axis.stride + axis.extent - size
    if axis.padding not in SAME:
        return Margins(before, missing - before, axis.explicit)
    start = divided(at_least(missing, 0) + odd, 2)
    return Margins(start, missing - start)


def spread(dy: Expr, weights: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int) -> Expr:
    """The gradient of a convolution's image [N, C, ...]: the transposed convolution of dy, cut to the image's size.

    Args:
        dy: [N, K, ...].
        weights: [K, C / groups, ...].
        axes: how the windows slide.
        places: what the image lacks to hold them all.
        groups: the number of groups.
    """
    pads, rest = _padding_of(places)
    made = _ranked(dy.builder.op(std.ConvTranspose, dy, weights, group=groups, **_sliding(axes, pads)), dy)
    # What no window meets gets zeros; what lies on the padding is cut off where ConvTranspose could not yet do it.
    return padded(made, [(0 - before, 0 - after) for before, after in rest])


def slid(image: Expr, weights: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int) -> Expr:
    """The convolution of an image with these margins around it, positive or negative."""
    pads, rest = _padding_of(places)
    made = image.builder.op(std.Conv, padded(image, rest), weights, group=groups, **_sliding(axes, pads))
    return _ranked(made, image)


def _sliding(axes: Sequence[SpatialAxis], pads: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    """How windows slide, as attributes; sizes that are only known at run time the weights tell."""
    kernel = [axis.kernel for axis in axes]
    return {
        **({"kernel_shape": kernel} if all(isinstance(size, int) for size in kernel) else {}),
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.dilation for axis in axes],
        "pads": [before for before, _ in pads] + [after for _, after in pads],
    }


def _ranked(made: Expr, image: Expr) -> Expr:
    """States the rank, which inference does not tell without the windows' sizes."""
    if made.shape is not None or image.shape is None:
        return made
    return made.builder.set_shape(made, [None] * len(image.shape))


def gathered(
    image: Expr, dy: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int, order: Sequence[int]
) -> Expr:
    """The gradient of a convolution's weights: of the products of dy with the image, shifted by each element's place.

    Args:
        image: [C / groups, groups * N, ...].
        dy: [K, N, ...].
        axes: how the windows slide.
        places: what the image lacks to hold them all.
        groups: the number of groups, which share out the axis that is summed over.
        order: the axes of the result, counted in [C / groups, K, ...].
    """
    kernel = [axis.kernel for axis in axes if isinstance(axis.kernel, int)]
    if groups == 1 and len(kernel) == len(axes) and math.prod(kernel) <= _MOST_PRODUCTS:
        made = _shifted_products(image, dy, axes, places)  # [K, ..., C]
        return made.transpose(*((axis - 1) % (2 + len(axes)) for axis in order))
    return _slid_by(image, dy, axes, places, groups).transpose(*order)


def _shifted_products(image: Expr, dy: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins]) -> Expr:
    """[K, ..., C] as a product of matrices for each element of a window, or for some with few channels.

    onnxruntime takes up to twice as long for the same as a convolution, whose windows are as large as dy.
    """
    b, channels = image.builder, image.size(0)
    whole = padded(image, [_needed(axis, place) for axis, place in zip(axes, places, strict=True)])
    shifts = [
        _strided(whole, axes, [step * axis.dilation for step, axis in zip(element, axes, strict=True)])
        for element in itertools.product(*(range(axis.kernel) for axis in axes))
    ]
    at_once = max(_ROWS // max(channels, 1), 1) if isinstance(channels, int) else 1
    rows = dy.reshape(0, -1)
    products = [
        b.op(std.Gemm, rows, b.concat(shifts[start : start + at_once], 0).reshape(0, -1), transB=1)
        for start in range(0, len(shifts), at_once)
    ]
    made = b.concat(products, 1)
    return made.reshape(0, *(axis.kernel for axis in axes), channels if isinstance(channels, int) else -1)


def _needed(axis: SpatialAxis, place: Margins) -> tuple[Size, Size]:
    """The padding that windows need; elements that none meets may stay where they are fewer than a stride."""
    if place.stated is not None:
        return place.stated
    few = isinstance(place.after, int) and -axis.stride < place.after < 0
    return place.before, 0 if few else place.after


def _strided(image: Expr, axes: Sequence[SpatialAxis], starts: Sequence[int]) -> Expr:
    """Elements that one element of the windows meets, an element of the image for each window."""
    b = image.builder
    ends = [start - axis.extent + 1 or END for start, axis in zip(starts, axes, strict=True)]
    steps = [axis.stride for axis in axes]
    if not any(starts) and all(end == END for end in ends) and all(step == 1 for step in steps):
        return image
    return b.op(std.Slice, image, b.ints(*starts), b.ints(*ends), b.ints(*range(2, 2 + len(axes))), b.ints(*steps))


def _slid_by(image: Expr, dy: Expr, axes: Sequence[SpatialAxis], places: Sequence[Margins], groups: int) -> Expr:
    """[C / groups, K, ...] as a convolution: dy slides over the image in steps of the dilation."""
    windows = [dataclasses.replace(axis, kernel=None, stride=axis.dilation, dilation=axis.stride) for axis in axes]
    made = slid(image, dy, windows, places, groups)
    shape = made.shape or (None, None)
    kernel = [axis.kernel if isinstance(axis.kernel, int) else None for axis in axes]
    return made.builder.set_shape(made, [shape[0], shape[1], *kernel])


def _padding_of(places: Sequence[Margins]) -> tuple[list[tuple[int, int]], list[tuple[Size, Size]]]:
    """Margins as padding proper where they are, and as what else must be added around the image, or cut off."""
    known = [place.padding for place in places]
    rest: list[tuple[Size, Size]] = [
        (0, 0) if pair is not None else (place.before, place.after) for place, pair in zip(places, known, strict=True)
    ]
    return [pair or (0, 0) for pair in known], rest


def padded(image: Expr, amounts: Sequence[tuple[Size, Size]], fill: float = 0) -> Expr:
    """Zeros, or another number, around an image [.., .., H, W] or a volume; negative amounts cut off."""
    left: list[tuple[Size, Size]] = []
    for axis, (before, after) in enumerate(amounts, start=2):
        if isinstance(before, int) and isinstance(after, int) and min(before, after) < 0:
            image = image.slice(max(-before, 0), after if after < 0 else END, axis=axis)
            left.append((max(before, 0), max(after, 0)))
        else:
            left.append((before, after))
    if all(isinstance(side, int) and side == 0 for pair in left for side in pair):
        return image
    pads = image.builder.sizes([0, 0, *(pair[0] for pair in left), 0, 0, *(pair[1] for pair in left)])
    return image.builder.op(std.Pad, image, pads, *([image.like(fill)] if fill else []))


def channels_first(data_format: str) -> str:
    """A format's axes in the order that ONNX has them."""
    return "NC" + "".join(letter for letter in data_format if letter not in "NC")


def arranged(image: Expr, data_format: str, order: str) -> Expr:
    """An image with its axes in another order, for example `CNHW`."""
    axes = [data_format.index(letter) for letter in order]
    return image if axes == sorted(axes) else image.transpose(*axes)
