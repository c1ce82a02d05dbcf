"""Image stacking: a transposed convolution with large weights reads a batch of small images as one high image.

onnxruntime multiplies the weights of a transposed convolution with one image after the other, and lays the weights out
anew for each: with images of a few places that takes up to eight times as long as all at once. Images one below the
other, with as many rows of zeros between them as keep what one image makes off the next, take one product. Gradients of
convolutions, which are transposed convolutions, have such images where networks end: 512 channels of 4x4 or 2x2.

Precondition: a ConvTranspose without groups, whose weights and images have known sizes, of which there may be more than
one, and whose images have 2 places or more but few for such weights, see `MANY`. Postcondition: there is none.

Runs after all other passes, which know a ConvTranspose by its own images.
"""

from __future__ import annotations

import dataclasses
import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.formulas.spatial import padded
from lstm_lower.passes.loops.views.base import SitesOnGraphs

# An image has few places, those of the zeros below it included, if so many times their number is at most the square
# root of the number of weights. Measured with 64 to 512 channels, windows of 3x3 and 4x4, and 8 or 64 images.
MANY = 25


@dataclasses.dataclass(frozen=True)
class _Axis:
    """An axis of the images, and how the windows lie on it."""

    size: int
    extent: int
    stride: int
    pads: tuple[int, int]
    more: int

    @property
    def full(self) -> int:
        """What the windows cover."""
        return (self.size - 1) * self.stride + self.extent

    @property
    def result(self) -> int:
        return self.full - sum(self.pads) + self.more

    @property
    def apart(self) -> int:
        """The distance of images at which their results do not meet."""
        return -(-max(self.full, self.pads[0] + self.result) // self.stride)


class ImageStacking(SitesOnGraphs[list[_Axis]]):
    """Stacks small images that meet large weights."""

    promise = "images one below the other"

    def site(self, node: ir.Node) -> list[_Axis] | None:
        """The axes of images that are to be stacked."""
        op = std.ConvTranspose.of(node, self.facts)
        if op is None:
            return None
        image, weights = op.shape(0) or (1,), op.shape(1) or (None,)
        sizes = [size for size in (*weights, *image[2:]) if isinstance(size, int)]
        known = len(sizes) == len(weights) + len(image[2:])
        if not known or image[0] in (0, 1) or op.group != 1 or op.auto_pad != "NOTSET" or op.sizes_are_given:
            return None
        parts_of = (op.extents, op.strides, op.pads, op.output_padding)
        each = zip(sizes[len(weights) :], *(parts or () for parts in parts_of), strict=True)
        axes = [_Axis(*parts) for parts in each]
        places = math.prod(axis.size for axis in axes)
        computed = axes[0].apart * math.prod(axis.size for axis in axes[1:])
        return axes if places > 1 and MANY * computed <= math.isqrt(math.prod(sizes[: len(weights)])) else None

    def write(self, node: ir.Node, axes: list[_Axis]) -> None:
        """Stacks them."""
        op = std.ConvTranspose(node, self.facts)
        b = Builder.before(node, self.context.space)
        image, weights = b.wrap(op.data), b.wrap(op.weights)
        bias = None if op.bias is None else b.wrap(op.bias)
        first, *others = axes
        turned = [1, 0, *range(2, 2 + len(axes))]
        apart = padded(image.transpose(*turned), [(0, first.apart - first.size), *((0, 0) for _ in others)])
        stacked = apart.reshape(0, -1, *(axis.size for axis in others)).unsqueeze(0)
        any_number = not isinstance((op.shape(0) or (None,))[0], int)
        if any_number:
            # onnxruntime makes no empty image, which that of an empty batch would be.
            stacked = padded(stacked, [(0, 1), *((0, 0) for _ in others)])
        beyond = first.extent - first.stride
        pads = [(0, max(beyond, 0)), *(axis.pads for axis in others)]
        made = b.op(
            std.ConvTranspose,
            stacked,
            weights,
            bias,
            kernel_shape=list(op.kernel or ()),
            strides=[axis.stride for axis in axes],
            dilations=list(op.dilations or ()),
            pads=[pair[0] for pair in pads] + [pair[1] for pair in pads],
            output_padding=[max(-beyond, 0), *(axis.more for axis in others)],
        )
        if any_number:
            made = made.slice(0, -first.stride, axis=2)
        each = made.squeeze(0).reshape(0, -1, first.apart * first.stride, *(axis.result for axis in others))
        start = first.pads[0]
        result = each.slice(start, start + first.result, axis=2).transpose(*turned)
        b.replace(op.output, result.value)
