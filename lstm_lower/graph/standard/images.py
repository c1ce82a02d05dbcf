"""Convolutions, poolings, and operators that sample images; spectra."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.standard.view import Attribute, Operand, Optional, Standard, all_counted, counted, text

# Convolutions and poolings: windows that slide over an image [N, C, ...] of one to three dimensions or more.


class Spatial(Standard, abstract=True):
    """An operator on an image, whose first two axes are batch and channels."""

    data = Operand(0)

    @property
    def dimensions(self) -> int | None:
        """The number of axes besides batch and channels."""
        rank = self.rank()
        return None if rank is None else rank - 2


class Windowed(Spatial, abstract=True):
    """Slides windows over an image."""

    @property
    def kernel(self) -> tuple[int, ...] | None:
        """The window's sizes; `None` where they are not known."""
        sizes = self.attribute("kernel_shape", None)
        return None if sizes is None else tuple(sizes)

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The distances of neighbouring windows."""
        return self._each("strides", 1)

    @property
    def dilations(self) -> tuple[int, ...] | None:
        """The distances of neighbouring elements of a window."""
        return self._each("dilations", 1)

    @property
    def pads(self) -> tuple[tuple[int, int], ...] | None:
        """The elements before and after each axis, where `auto_pad` does not tell them."""
        stated, count = self.attribute("pads", None), self.dimensions
        if stated is None:
            return None if count is None else ((0, 0),) * count
        half = len(stated) // 2
        return tuple(zip(stated[:half], stated[half:], strict=True))

    @property
    def auto_pad(self) -> str:
        """`NOTSET`, `SAME_UPPER`, `SAME_LOWER` or `VALID`."""
        return text(self.attribute("auto_pad", "NOTSET"))

    @property
    def demanded_rank(self) -> int | None:
        """Two more than the window's."""
        return None if self.kernel is None else 2 + len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...] | None:
        """How far windows reach along each axis."""
        kernel, dilations = self.kernel, self.dilations
        if kernel is None or dilations is None:
            return None
        return tuple((size - 1) * distance + 1 for size, distance in zip(kernel, dilations, strict=True))

    @property
    def pads_alike(self) -> bool:
        """Whether the result is as large as the image, but for strides."""
        return self.auto_pad.startswith("SAME")

    def _each(self, name: str, default: int) -> tuple[int, ...] | None:
        stated, count = self.attribute(name, None), self.dimensions
        if stated is not None:
            return tuple(stated)
        return None if count is None else (default,) * count


class Filtering(Windowed, abstract=True):
    """Windows with weights."""

    weights = Operand(1)
    group = Attribute("group", 1)

    @property
    def dimensions(self) -> int | None:
        """The number of axes besides batch and channels, which the weights tell as well."""
        ranks = [rank for rank in (self.rank(0), self.rank(1)) if rank is not None]
        return ranks[0] - 2 if ranks else None

    @property
    def demanded_rank(self) -> int | None:
        """That of the weights."""
        return self.rank(1)

    @property
    def kernel(self) -> tuple[int, ...] | None:
        """The window's sizes, which the weights tell as well."""
        given, weights = super().kernel, self.shape(1)
        if given is not None or weights is None:
            return given
        sizes = tuple(size for size in weights[2:] if isinstance(size, int))
        return sizes if len(sizes) == len(weights) - 2 else None


class Conv(Filtering):
    linear = (0, 1)
    bias = Optional(2)


class ConvTranspose(Filtering):
    linear = (0, 1)
    bias = Optional(2)

    @property
    def output_padding(self) -> tuple[int, ...] | None:
        """Sizes that the result has besides, at the end of each axis."""
        return self._each("output_padding", 0)

    @property
    def sizes_are_given(self) -> bool:
        """Whether `output_shape` tells the padding."""
        return self.attribute("output_shape", None) is not None

    @property
    def disputed_axes(self) -> tuple[int, ...]:
        """Where the padding follows from the size, onnx's inference adds `output_padding` to that."""
        return tuple(2 + axis for axis, size in enumerate(self.output_padding or ()) if self.pads_alike and size)


class DeformConv(Windowed):
    """A convolution whose windows read the image at places that offsets move."""

    demanded_rank = 4

    weights = Operand(1)
    offsets = Operand(2)
    bias = Optional(3)
    mask = Optional(4)
    group = Attribute("group", 1)
    offset_groups = Attribute("offset_group", 1)


# The opset from which onnx's inference counts no window that begins behind the image.
_COUNTED_ALIKE_SINCE = 22


class Pool(Windowed, abstract=True):
    """Makes one element of each window, channel by channel."""

    ceil_mode = Attribute("ceil_mode", 0)

    @property
    def disputed_axes(self) -> tuple[int, ...]:
        """Padding that follows from the size omits dilations in onnxruntime.

        Where strides are larger than windows, onnx's inference rounds up what `ceil_mode` makes of it once more.
        Under `ceil_mode` a window that lacks a stride or more is none, nor is one that begins behind the image:
        onnx's inference counts the first, and before opset 22 the second.
        """
        shape, extents, pads, strides = self.shape(), self.extents, self.pads, self.strides
        if shape is None or extents is None or pads is None or strides is None:
            return ()
        if self.pads_alike:
            axes = zip(extents, strides, self.dilations or (), strict=True)
            return tuple(
                2 + axis
                for axis, (extent, stride, distance) in enumerate(axes)
                if distance != 1 or (self.ceil_mode and extent < stride)
            )
        windows = zip(range(2, len(shape)), shape[2:], extents, pads, strides, strict=True)
        return tuple(
            axis
            for axis, size, extent, pad, stride in windows
            if self.ceil_mode and isinstance(size, int) and self._is_miscounted(size, extent, pad, stride)
        )

    def _is_miscounted(self, size: int, extent: int, pads: tuple[int, int], stride: int) -> bool:
        left = size + sum(pads) - extent
        if stride < 1 or left <= -stride:
            return True
        return self.facts.opset < _COUNTED_ALIKE_SINCE and -(-left // stride) * stride >= size + pads[0]


class MaxPool(Pool):
    storage_order = Attribute("storage_order", 0)


class AveragePool(Pool):
    linear = (0,)
    count_include_pad = Attribute("count_include_pad", 0)


class LpPool(Pool):
    p = Attribute("p", 2)


class GlobalMaxPool(Spatial): ...


class GlobalAveragePool(Spatial):
    linear = (0,)


class GlobalLpPool(Spatial):
    p = Attribute("p", 2)


class MaxUnpool(Windowed):
    linear = (0,)
    indices = Operand(1)
    target = Optional(2)


class MaxRoiPool(Standard):
    """The largest elements of the bins of regions, whose corners are rounded to whole elements."""

    data = Operand(0)
    rois = Operand(1)
    demanded_rank = 4
    scale = Attribute("spatial_scale", 1.0)
    bins = Attribute("pooled_shape", (1, 1))


# Operators that sample images, and transforms of signals.


class Resize(Standard):
    """Samples anew along some axes."""

    data = Operand(0)
    roi = Optional(1)

    @property
    def scales(self) -> ir.Value | None:
        """Factors of the sizes, for each of the axes; an empty list stands for none."""
        return self._given(2)

    @property
    def sizes(self) -> ir.Value | None:
        """The sizes of the result, for each of the axes."""
        return self._given(3)

    def _given(self, index: int) -> ir.Value | None:
        value = self.operand(index)
        return None if self.facts.shape(value) == (0,) else value

    @property
    def demanded_rank(self) -> int | None:
        """As many axes as there are scales or sizes, where these are of all."""
        given = (length for index in (2, 3) if (length := self._length(index)))
        return None if self.attribute("axes", None) is not None else next(given, None)

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes that scales, sizes and the region of interest tell of, in their order."""
        given, rank = self.attribute("axes", None), self.rank()
        if given is None:
            return None if rank is None else tuple(range(rank))
        return all_counted(tuple(given), rank)

    @property
    def disputed_axes(self) -> tuple[int, ...]:
        """Sizes that float32, in which onnxruntime scales them, rounds to others; those of a cropped region."""
        shape, axes, scales = self.shape(), self.axes, self.facts.constant(self.scales)
        if shape is None or axes is None or scales is None:
            return ()
        cropped = self.coordinates == "tf_crop_and_resize"
        factors = zip(axes, scales.astype(np.float32).reshape(-1), strict=True)
        pairs = [(axis, size, factor) for axis, factor in factors if isinstance(size := shape[axis], int)]
        return tuple(
            axis
            for axis, size, factor in pairs
            if cropped or math.floor(size * float(factor)) != math.floor(np.float32(size) * factor)
        )

    @property
    def mode(self) -> str:
        """`nearest`, `linear` or `cubic`."""
        return text(self.attribute("mode", "nearest"))

    @property
    def coordinates(self) -> str:
        """How places of the result become places of the operand."""
        return text(self.attribute("coordinate_transformation_mode", "half_pixel"))

    @property
    def policy(self) -> str:
        """The rule for the sizes: `stretch`, `not_larger` or `not_smaller`, which keep the aspect ratio."""
        return text(self.attribute("keep_aspect_ratio_policy", "stretch"))


class Upsample(Standard):
    """Resize as it was before opset 10."""


class NonMaxSuppression(Standard): ...


class RoiAlign(Standard):
    data = Operand(0)
    rois = Operand(1)
    batches = Operand(2)
    demanded_rank = 4
    height = Attribute("output_height", 1)
    width = Attribute("output_width", 1)
    samples = Attribute("sampling_ratio", 0)
    scale = Attribute("spatial_scale", 1.0)

    @property
    def mode(self) -> str:
        """`avg` or `max`."""
        return text(self.attribute("mode", "avg"))

    @property
    def coordinates(self) -> str:
        """`half_pixel`, or `output_half_pixel`, the only one before opset 16."""
        default = "half_pixel" if self.facts.opset >= 16 else "output_half_pixel"
        return text(self.attribute("coordinate_transformation_mode", default))


class GridSample(Standard):
    data = Operand(0)
    grid = Operand(1)

    @property
    def demanded_rank(self) -> int | None:
        """That of the grid."""
        return self.rank(1)

    align_corners = Attribute("align_corners", 0)

    @property
    def mode(self) -> str:
        """`linear`, `nearest` or `cubic`, which had other names before opset 20."""
        mode = text(self.attribute("mode", "linear"))
        return {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)

    @property
    def padding(self) -> str:
        """`zeros`, `border` or `reflection`."""
        return text(self.attribute("padding_mode", "zeros"))


class AffineGrid(Standard):
    theta = Operand(0)
    size = Operand(1)
    align_corners = Attribute("align_corners", 0)


class Col2Im(Standard):
    data = Operand(0)
    image = Operand(1)
    block = Operand(2)


# A DFT that bears this in its `metadata_props` is of a length that is a power of two, whatever is known of it.
LENGTH, POWER_OF_TWO = "lstm_lower.length", "a power of two"


class DFT(Standard):
    """The discrete Fourier transform; the last axis is of the real and the imaginary part."""

    data = Operand(0)
    length = Optional(1)
    inverse = Attribute("inverse", 0)
    onesided = Attribute("onesided", 0)

    @property
    def axis(self) -> int | None:
        """The axis of the signal, an attribute before opset 20."""
        given = self.constant(2)
        axis = (
            self.attribute("axis", 1 if self.facts.opset < 20 else -2) if given is None else int(given.reshape(-1)[0])
        )
        return None if given is None and self.operand(2) is not None else counted(axis, self.rank())


class MelWeightMatrix(Standard): ...


class STFT(Standard):
    signal = Operand(0)
    step = Operand(1)
    window = Optional(2, "a window")
    length = Optional(3)
    onesided = Attribute("onesided", 1)


class Det(Standard):
    data = Operand(0)
