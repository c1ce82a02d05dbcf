"""Operators that sample images, and transforms of signals."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard, all_counted, counted, text


class Resize(Standard):
    """Samples anew along some axes."""

    data = Operand(0)
    roi = Optional(1)

    @property
    def scales(self) -> ir.Value | None:
        """What sizes are multiplied by, for each of the axes; an empty list stands for none."""
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
        """What becomes of the sizes: `stretch`, `not_larger` or `not_smaller`, which keep the aspect ratio."""
        return text(self.attribute("keep_aspect_ratio_policy", "stretch"))


class Upsample(Standard):
    """What Resize was before opset 10."""


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
