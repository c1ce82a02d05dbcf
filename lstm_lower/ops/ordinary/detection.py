"""Definitions of the ops of TensorFlow's detectors of objects: boxes that are chosen, and pictures cut out by boxes.

Signatures: TensorFlow's raw ops of the same names. Symbols: N boxes, each two corners (y, x, y, x); B images of
H x W pixels and C channels; P x Q the pixels of what is cut out.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.bases import number, numbers

_HALVES = ("float16", "float32")


class _Chosen(OpDef, abstract=True):
    """Places of boxes by falling score, without those that overlap a chosen one by more than `iou_threshold`.

    The overlap of two boxes is the area of their intersection divided by that of their union.
    """

    class Types:
        T = _HALVES
        T_threshold = _HALVES

    class Outputs:
        selected_indices = operand(None, "int32")

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many there are is known at run time only, unless their list is filled up."""
        infos = {
            "selected_indices": TensorInfo(DType.INT32, (cls.chosen(call),)),
            "selected_scores": TensorInfo(call.types.get("T"), (cls.chosen(call),)),
            "valid_outputs": TensorInfo(DType.INT32, ()),
        }
        return [infos[output.name] for output in cls.outputs]


class NonMaxSuppression(_Chosen):
    """Places of boxes by falling score, without those that overlap a chosen one by more than `iou_threshold`."""

    class Inputs:
        boxes = operand("N 4", "float32")
        scores = operand("N", "float32")
        max_output_size = operand("", "int32")

    class Attrs:
        iou_threshold = attr(float, 0.5)


class NonMaxSuppressionV2(_Chosen):
    """NonMaxSuppression with `iou_threshold` as an operand."""

    class Inputs:
        boxes = operand("N 4")
        scores = operand("N")
        max_output_size = operand("", "int32")
        iou_threshold = operand("", "T_threshold")


class NonMaxSuppressionV3(_Chosen):
    """NonMaxSuppressionV2 of boxes whose score is above `score_threshold`."""

    class Inputs(NonMaxSuppressionV2.Inputs):
        score_threshold = operand("", "T_threshold")


class NonMaxSuppressionV4(NonMaxSuppressionV3):
    """NonMaxSuppressionV3, filled up with zeros to `max_output_size` if so asked, and how many boxes were chosen."""

    class Outputs(_Chosen.Outputs):
        valid_outputs = operand("", "int32")

    class Attrs:
        pad_to_max_output_size = attr(bool, False)


class NonMaxSuppressionV5(_Chosen):
    """NonMaxSuppressionV4, and the scores of the chosen boxes. `soft_nms_sigma` must be 0, so that scores stay."""

    static_operands = ("soft_nms_sigma",)

    class Inputs:
        boxes = operand("N 4")
        scores = operand("N")
        max_output_size = operand("", "int32")
        iou_threshold = operand("")
        score_threshold = operand("")
        soft_nms_sigma = operand("")

    class Outputs(_Chosen.Outputs):
        selected_scores = operand(None)
        valid_outputs = operand("", "int32")

    class Attrs:
        pad_to_max_output_size = attr(bool, False)


class CropAndResize(OpDef):
    """What lies in boxes of images, whose corners are the first and the last pixel, resized to P x Q pixels.

    A box's places count from 0, the first pixel, to 1, the last one; beyond these is `extrapolation_value`.
    """

    class Types:
        T = (*FLOATS[:1], *FLOATS[2:], "int8", "uint8", "int16", "uint16", "int32", "int64")

    class Inputs:
        image = operand("B H W C")
        boxes = operand("N 4", "float32")
        box_ind = operand("N", "int32")
        crop_size = operand("2", "int32")

    class Outputs:
        crops = operand(None, "float32")

    class Attrs:
        method = attr(str, "bilinear", choices=("bilinear", "nearest"))
        extrapolation_value = attr(float, 0.0)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A picture for each box."""
        rows = numbers(call, "crop_size") or (None, None)
        return [TensorInfo(DType.FLOAT, (call.sizes.get("N"), *rows, call.sizes.get("C")))]


class CropAndResizeGradImage(OpDef):
    """Gradient of CropAndResize with respect to the images, whose shape is `image_size`."""

    forward = "CropAndResize"

    class Types:
        T = _HALVES

    class Inputs:
        grads = operand("N P Q C", "float32")
        boxes = operand("N 4", "float32")
        box_ind = operand("N", "int32")
        image_size = operand("4", "int32")

    class Outputs:
        output = operand(None)

    class Attrs:
        T = attr(DType)
        method = attr(str, "bilinear", choices=("bilinear", "nearest"))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `image_size` says."""
        return [TensorInfo(call.attributes["T"], tuple(numbers(call, "image_size") or (None,) * 4))]


class CropAndResizeGradBoxes(OpDef):
    """Gradient of CropAndResize with respect to the boxes."""

    forward = "CropAndResize"

    class Types:
        T = CropAndResize.Types.T

    class Inputs:
        grads = operand("N P Q C", "float32")
        image = operand("B H W C")
        boxes = operand("N 4", "float32")
        box_ind = operand("N", "int32")

    class Outputs:
        output = operand("N 4", "float32")

    class Attrs:
        method = attr(str, "bilinear", choices=("bilinear",))
