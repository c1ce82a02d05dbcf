"""Definitions of TensorFlow's greyscale dilation of images and of its gradients.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image with C channels, R x S the filter,
P x Q the windows.
"""

from __future__ import annotations

from typing import Any

from lstm_lower.opdef import Call, OpDef, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.bases import ORDERED
from lstm_lower.spatial import PADDINGS, SpatialAxis


class _Dilation(OpDef, abstract=True):
    class Types:
        T = FLOATS

    class Attrs:
        strides = attr(list[int])
        rates = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])

    @classmethod
    def axes(cls, attributes: Any, kernel: tuple[Any, Any]) -> list[SpatialAxis]:
        """How the windows slide along rows and columns."""
        strides, rates, padding = (attributes[name] for name in ("strides", "rates", "padding"))
        return [SpatialAxis(kernel[at], strides[at + 1], rates[at + 1], padding, (0, 0)) for at in (0, 1)]

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows slide over rows and columns alone; there is a gradient for each."""
        for name in ("strides", "rates"):
            given = call.attributes[name]
            if len(given) != 4 or given[0] != 1 or given[3] != 1 or min(given) < 1:
                raise call.error(f"attribute {name}", "four numbers above 0, the first and the last 1", given)
        kernel = call.sizes.get("R"), call.sizes.get("S")
        for axis, image, windows in zip(cls.axes(call.attributes, kernel), "HW", "PQ", strict=True):
            size, found = call.sizes.get(image), call.sizes.get(windows)
            if not isinstance(size, int) or not (isinstance(axis.kernel, int) or axis.padding == "SAME"):
                continue
            count = max(axis.output_size(size), 0)
            if isinstance(found, int) and found != count:
                raise call.error("out_backprop", f"{windows} = {count} (for {image} = {size})", found)
            call.sizes[windows] = count


class Dilation2D(_Dilation):
    """The largest sum of an image's element and that of the filter in each window; padding and NaN do not count."""

    class Types:
        T = ORDERED

    class Inputs:
        input = operand("N H W C")
        filter = operand("R S C")

    class Outputs:
        output = operand("N P Q C")


class Dilation2DBackpropInput(_Dilation):
    """Gradient of Dilation2D with respect to the image: it goes to the first of the largest sums."""

    forward = "Dilation2D"

    class Inputs:
        input = operand("N H W C")
        filter = operand("R S C")
        out_backprop = operand("N P Q C")

    class Outputs:
        in_backprop = operand("N H W C")


class Dilation2DBackpropFilter(Dilation2DBackpropInput):
    """Gradient of Dilation2D with respect to the filter."""

    class Outputs:
        filter_backprop = operand("R S C")
