"""Definitions of TensorFlow's greyscale dilation of images and of its gradients.

Signatures: TensorFlow's raw ops of the same names. Symbols: N batch, H x W an image with C channels, R x S the filter,
P x Q the windows.
"""

from __future__ import annotations

from typing import Any

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import FLOATS, ORDERED, RawOp
from lstm_lower.spatial import SpatialAxis


class _Dilation(RawOp, abstract=True, input="N H W C", filter="R S C", out_backprop="N P Q C"):
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


class Dilation2D(_Dilation, T=ORDERED):
    """The largest sum of an image's element and that of the filter in each window; padding and NaN do not count."""


class Dilation2DBackpropInput(_Dilation, T=FLOATS):
    """Gradient of Dilation2D with respect to the image: it goes to the first of the largest sums."""

    forward = "Dilation2D"


class Dilation2DBackpropFilter(Dilation2DBackpropInput):
    """Gradient of Dilation2D with respect to the filter."""
