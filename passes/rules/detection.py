"""Lowering of the ops of detectors: boxes that are chosen, and pictures cut out by boxes.

Symbols: N boxes, each two corners (y, x, y, x); B images of
H x W pixels and C channels; P x Q the pixels of what is cut out.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.passes.rules.images import result_sizes
from lstm_lower.passes.rules.registry import Node, lowers

_FLOAT = ir.DataType.FLOAT


class _Chosen(RawOp, abstract=True, scores="N", boxes="N 4", score_threshold="", max_output_size=""):
    """Places of boxes by falling score, without those that overlap a chosen one by more than `iou_threshold`.

    The overlap of two boxes is the area of their intersection divided by that of their union.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """The threshold is a share."""
        known = call.operands["iou_threshold"].value if "iou_threshold" in call.operands else None
        share = call.attributes.get("iou_threshold", known)
        if share is not None and not 0 <= float(share) <= 1:
            raise call.error("iou_threshold", "a number from 0 to 1", f"{float(share)}")

    @classmethod
    def chosen(cls, call: Call) -> Dim:
        """How many boxes come out, where that is known."""
        return number(call, "max_output_size") if call.attributes.get("pad_to_max_output_size") else None


class NonMaxSuppression(_Chosen):
    """Places of boxes by falling score, without those that overlap a chosen one by more than `iou_threshold`."""


class NonMaxSuppressionV2(_Chosen, iou_threshold=""):
    """NonMaxSuppression with `iou_threshold` as an operand."""


class NonMaxSuppressionV3(_Chosen, iou_threshold=""):
    """NonMaxSuppressionV2 of boxes whose score is above `score_threshold`."""


class NonMaxSuppressionV4(NonMaxSuppressionV3):
    """NonMaxSuppressionV3, filled up with zeros to `max_output_size` if so asked, and how many boxes were chosen."""


class NonMaxSuppressionV5(_Chosen, iou_threshold="", soft_nms_sigma=""):
    """NonMaxSuppressionV4, and the scores of the chosen boxes. `soft_nms_sigma` must be 0, so that scores stay."""

    static_operands = ("soft_nms_sigma",)


@lowers(
    NonMaxSuppression,
    NonMaxSuppressionV2,
    NonMaxSuppressionV3,
    NonMaxSuppressionV4,
    NonMaxSuppressionV5,
    repeatable=True,
)
def non_max_suppression(n: Node, b: Builder) -> list[Expr]:
    """ONNX's operator for one image and one class, of whose places the box is the last number."""
    scores = n.scores
    if n.op is NonMaxSuppressionV5 and n.fixed("soft_nms_sigma") != 0:
        raise n.unsupported("soft_nms_sigma", "0", f"{float(n.fixed('soft_nms_sigma'))}")
    most, least = wide(n.max_output_size).reshape(1), float(np.finfo(np.float32).min)
    thresholds = [scores.like(n.get(name, least)).reshape(1) for name in ("iou_threshold", "score_threshold")]
    places = b.op(std.NonMaxSuppression, n.boxes.unsqueeze(0), scores.unsqueeze(0, 1), most, *thresholds)
    chosen = places.slice(2, 3, axis=1).reshape(-1)
    count = chosen.sizes()
    selected = [chosen, scores.take(chosen)] if n.op is NonMaxSuppressionV5 else [chosen]
    if n.get("pad_to_max_output_size", False):
        behind = b.concat([b.ints(0), most - count], 0)
        selected = [b.op(std.Pad, x, behind) for x in selected]
    return [*selected, count.reshape()]


class _Axis:
    """The places on an axis of the images that the pixels of each box have, in float32 as the kernels compute them.

    Attributes:
        places: [N, made].
        inside: which of them lie between the first and the last pixel.
    """

    def __init__(self, image: Expr, boxes: Expr, made: Expr, axis: int) -> None:
        b = boxes.builder
        self.last = b.sizes([image.size(axis)]).reshape() - 1
        last, steps = self.last.cast(_FLOAT), (made - 1).maximum(1).cast(_FLOAT)
        first, end = (boxes.slice(corner, corner + 1, axis=1) for corner in (axis - 1, axis + 1))
        many = first * last + up_to(b, made).cast(_FLOAT) * ((end - first) * last / steps)
        # One pixel shows the middle.
        self.places = b.where(made > 1, many, (first + end) * 0.5 * last)
        within = [~x for x in (self.places < 0, self.places > last)]
        self.inside = b.op(std.And, *within)

    def pixels(self, places: Expr) -> Expr:
        """Whole places as numbers of pixels of the images; those beyond as any."""
        return places.cast(INT64).maximum(0).minimum(self.last)


def _cut(n: Node, b: Builder, image: Expr, rows: Expr, columns: Expr) -> Expr:
    """Pixels of the images, or means of the four around a place, by their distances."""
    y, x = _Axis(image, n.boxes, rows, 1), _Axis(image, n.boxes, columns, 2)
    width, channels = (b.sizes([image.size(axis)]) for axis in (2, 3))
    flat = b.op(std.Reshape, image, b.concat([b.ints(-1), channels], 0))
    first = wide(n.box_ind).unsqueeze(1) * (y.last + 1)

    def at(row: Expr, column: Expr) -> Expr:
        row_starts = (first + y.pixels(row)) * width
        return flat.take(row_starts.unsqueeze(2) + x.pixels(column).unsqueeze(1))

    def behind(share: Expr, axis: int) -> Expr:
        return share.unsqueeze(axis, 3)

    if n.method == "nearest":
        # Halves go up.
        row, column = (a.places.floor() + _half(a.places).cast(_FLOAT) for a in (y, x))
        made = at(row, column)
    else:
        (top, bottom), (left, right) = ((a.places.floor(), b.op(std.Ceil, a.places)) for a in (y, x))
        down, across = behind(y.places - top, 2), behind(x.places - left, 1)
        corners = ((at(row, left), at(row, right)) for row in (top, bottom))
        above, below = (first_one + (second - first_one) * across for first_one, second in corners)
        made = above + (below - above) * down
    inside = behind(y.inside, 2) & behind(x.inside, 1)
    return b.where(inside, made, n.get("extrapolation_value", 0.0))


def _half(places: Expr) -> Expr:
    """Which places lie in the second half of a pixel."""
    return ~(places - places.floor() < 0.5)


class CropAndResize(RawOp, image="B H W C", boxes="N 4", box_ind="N", crop_size="2"):
    """Cuts of boxes of images, whose corners are the first and the last pixel, resized to P x Q pixels.

    A box's places count from 0, the first pixel, to 1, the last one; beyond these is `extrapolation_value`.
    """


@lowers(CropAndResize, repeatable=True)
def crop_and_resize(n: Node, b: Builder) -> Expr:
    """Cut out in float32."""
    sizes = [wide(n.crop_size).take(at) for at in (0, 1)]
    return _cut(n, b, n.image.cast(_FLOAT), *sizes)


class CropAndResizeGradImage(
    RawOp, T=("float16", "float32"), grads="N P Q C", boxes="N 4", box_ind="N", image_size="4"
):
    """Gradient of CropAndResize with respect to the images, whose shape is `image_size`."""


@lowers(CropAndResizeGradImage, repeatable=True)
def crop_and_resize_grad_image(n: Node, b: Builder) -> Expr:
    """Each pixel's gradient, shared out among those that it was made from."""
    image = b.fill(0, wide(n.image_size), _FLOAT)
    channels = n.grads.shape
    image = b.set_shape(image, [None, None, None, None if channels is None else channels[3]])
    return pullback(b, [_cut(n, b, image, *result_sizes(n, b))], [image], [n.grads])[0].cast(n.T)


class CropAndResizeGradBoxes(RawOp, grads="N P Q C", image="B H W C", boxes="N 4", box_ind="N"):
    """Gradient of CropAndResize with respect to the boxes."""


@lowers(CropAndResizeGradBoxes, repeatable=True)
def crop_and_resize_grad_boxes(n: Node, b: Builder) -> Expr:
    """How what is cut out changes as its places move."""
    return pullback(b, [_cut(n, b, n.image.cast(_FLOAT), *result_sizes(n, b))], [n.boxes], [n.grads])[0]


_HALVES = ("float16", "float32")
