"""Where the windows of convolutions and poolings lie on images whose sizes may only show at run time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.passes.rules.registry import Node
from lstm_lower.passes.rules.sizes import Size, at_least
from lstm_lower.spatial import SpatialAxis


@dataclasses.dataclass(frozen=True)
class Margins:
    """What must be added to an axis so that it just holds all windows.

    Attributes:
        before: the padding before it.
        after: the padding after it; where no window meets the last elements, minus the number of these.
    """

    before: Size
    after: Size

    @property
    def padding(self) -> tuple[int, int] | None:
        """Both as padding proper, if they are known and not negative."""
        known = isinstance(self.before, int) and isinstance(self.after, int) and self.after >= 0
        return (self.before, self.after) if known else None  # type: ignore[return-value]


def margins(axis: SpatialAxis, size: Size, windows: Size) -> Margins:
    """The margins of an axis with that many elements and windows; with a stride of 1 they do not depend on them."""
    before, after = axis.explicit
    if axis.stride == 1:
        if axis.padding == "SAME":
            before = (axis.extent - 1) // 2
            after = axis.extent - 1 - before
        return Margins(before, after)
    missing = (windows - 1) * axis.stride + axis.extent - size
    start: Size = before
    if axis.padding == "SAME":
        total = at_least(missing, 0)
        start = total // 2 if isinstance(total, int) else total / 2
    return Margins(start, missing - start)


def padded(image: Expr, amounts: Sequence[tuple[Size, Size]], fill: float = 0) -> Expr:
    """Zeros, or another number, around an image [.., .., H, W] or a volume; negative amounts cut off."""
    if all(isinstance(side, int) and side == 0 for pair in amounts for side in pair):
        return image
    before, after = zip(*amounts, strict=True)
    pads = image.builder.sizes([0, 0, *before, 0, 0, *after])
    return image.builder.op(std.Pad, image, pads, *([image.like(fill)] if fill else []))


def arranged(image: Expr, data_format: str, order: str) -> Expr:
    """An image with its axes in another order, for example `CNHW`."""
    axes = [data_format.index(letter) for letter in order]
    return image if axes == sorted(axes) else image.transpose(*axes)


def check_float32(n: Node, operand: str, op: type[std.Standard]) -> None:
    """Refuses float64, for which onnxruntime has none of the sliding operators.

    Raises:
        UnsupportedOpError: the operand is in float64.
    """
    if getattr(n, operand).dtype == ir.DataType.DOUBLE:
        raise n.unsupported(operand, f"dtype float32 or a half (onnxruntime has no {op.op_type} in float64)", "float64")
