"""The windows of a node: their margins, padding and maxima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.sizes import Size
from lstm_lower.passes.formulas.spatial import Margins, margins
from lstm_lower.passes.rules.registry import Node
from lstm_lower.spatial import SYMBOLS, SpatialAxis


def window_margins(n: Node, axes: Sequence[SpatialAxis]) -> list[Margins]:
    """The margins of each axis of a node's image, whose sizes and numbers of windows its operands have."""
    images, _, counts = SYMBOLS[len(axes) + 2]
    pairs = zip(axes, images, counts, strict=True)
    return [margins(axis, n.size(size), n.size(count)) for axis, size, count in pairs]


def window_margin(n: Node, axes: Sequence[SpatialAxis], at: int) -> tuple[Size, Size]:
    """The padding before and after the `at`-th of the axes of a node's image that windows slide along."""
    axis = axes[at]
    if axis.padding != "SAME":
        return axis.explicit
    size = n.size(SYMBOLS[len(axes) + 2][0][at])
    windows = axis.output_size(size) if isinstance(size, int) else (size + (axis.stride - 1)) / axis.stride
    place = margins(axis, size, windows)
    after = place.after
    # Elements that no window covers do not count as padding.
    return place.before, max(after, 0) if isinstance(after, int) else after


def window_padding(n: Node, axes: Sequence[SpatialAxis]) -> dict[str, Any] | None:
    """The padding as attributes; `None` where it depends on sizes that are not known."""
    if axes[0].padding == "VALID":
        return {}
    sizes = [n.call.sizes.get(symbol) for symbol in SYMBOLS[len(axes) + 2][0]]
    known = all(axis.stride == 1 or isinstance(size, int) for axis, size in zip(axes, sizes, strict=True))
    if axes[0].padding == "SAME" and not known:
        return None
    places = [window_margin(n, axes, at) for at in range(len(axes))]
    return {"pads": [place[side] for side in (0, 1) for place in places]}


def window_maxima(n: Node, b: Builder, axes: Sequence[SpatialAxis], image: Expr) -> list[Expr]:
    """The largest element of each window of an image with its channels first, and the places of these.

    Like TensorFlow's kernels, onnxruntime's takes the first of equal elements. A place is a number of an element in the
    order in which all of the image's lie.
    """
    padding = window_padding(n, axes)
    if padding is None:
        # onnxruntime places windows wrongly where that leaves out elements at both ends.
        if any(axis.kernel + 1 < axis.stride for axis in axes):
            what = "at most one element between windows (padding SAME, of an image whose sizes are not known)"
            raise n.unsupported("attribute strides", what, [axis.stride for axis in axes])
        padding = {"auto_pad": "SAME_UPPER"}
    kernel, strides = [axis.kernel for axis in axes], [axis.stride for axis in axes]
    return b.ops(std.MaxPool, image, outputs=2, kernel_shape=kernel, strides=strides, **padding)


def check_float32(n: Node, operand: str, op: type[std.Standard]) -> None:
    """Refuses float64, for which onnxruntime has none of the sliding operators.

    Raises:
        UnsupportedOpError: the operand is in float64.
    """
    if getattr(n, operand).dtype == ir.DataType.DOUBLE:
        raise n.unsupported(operand, f"dtype float32 or a half (onnxruntime has no {op.op_type} in float64)", "float64")
