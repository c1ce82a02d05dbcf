"""Definitions of the ops of TensorFlow's detectors of objects: boxes that are chosen, and pictures cut out by boxes.

Signatures: TensorFlow's raw ops of the same names. Symbols: N boxes, each two corners (y, x, y, x); B images of
H x W pixels and C channels; P x Q the pixels of what is cut out.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number

_HALVES = ("float16", "float32")


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


class CropAndResize(RawOp, image="B H W C", boxes="N 4", box_ind="N", crop_size="2"):
    """What lies in boxes of images, whose corners are the first and the last pixel, resized to P x Q pixels.

    A box's places count from 0, the first pixel, to 1, the last one; beyond these is `extrapolation_value`.
    """


class CropAndResizeGradImage(
    RawOp, T=("float16", "float32"), grads="N P Q C", boxes="N 4", box_ind="N", image_size="4"
):
    """Gradient of CropAndResize with respect to the images, whose shape is `image_size`."""

    forward = "CropAndResize"


class CropAndResizeGradBoxes(RawOp, grads="N P Q C", image="B H W C", boxes="N 4", box_ind="N"):
    """Gradient of CropAndResize with respect to the boxes."""

    forward = "CropAndResize"
