"""Convolutions and poolings: windows that slide over an image [N, C, ...] of one to three dimensions or more."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard, text


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
        found = self.attribute("kernel_shape", None)
        return None if found is None else tuple(found)

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
        found, count = self.attribute("pads", None), self.dimensions
        if found is None:
            return None if count is None else ((0, 0),) * count
        half = len(found) // 2
        return tuple(zip(found[:half], found[half:], strict=True))

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
        found, count = self.attribute(name, None), self.dimensions
        if found is not None:
            return tuple(found)
        return None if count is None else (default,) * count


class Filtering(Windowed, abstract=True):
    """Windows with weights."""

    linear = (0, 1)
    weights = Operand(1)
    bias = Optional(2)
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
        found = tuple(size for size in weights[2:] if isinstance(size, int))
        return found if len(found) == len(weights) - 2 else None


class Conv(Filtering): ...


class ConvTranspose(Filtering):
    @property
    def output_padding(self) -> tuple[int, ...] | None:
        """What the result has besides at the end of each axis."""
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
        Under `ceil_mode` a window that does not fit is none, nor is one that begins behind the image, of which onnx's
        inference counts the first, and before opset 22 the second.
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
        if left < 0 or stride < 1:
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
