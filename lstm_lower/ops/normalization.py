"""Definitions of TensorFlow's fused batch normalisation and its gradient.

Symbols: C channels, which stand last (NHWC, NDHWC) or second (NCHW, NCDHW).
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp

_FORMATS = ("NHWC", "NCHW")
_FORMATS_V3 = (*_FORMATS, "NDHWC", "NCDHW")
_FLOATS = ("float16", "bfloat16", "float32")


class _BatchNormalization(RawOp, abstract=True, reserve_space_2="C", scale="C", reserve_space_1="C", offset="C"):
    """Shared by the op and its gradient.

    Attributes:
        image: the operands that hold an image.
    """

    image: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def verify(cls, call: Call) -> None:
        """Images have the format's rank, equal shapes, and C channels."""
        data_format = call.attributes["data_format"]
        seen: list[Dim] | None = None
        for name in cls.image:
            shape = call.operands[name].shape
            if shape is None:
                continue
            if len(shape) != len(data_format):
                raise call.error(name, f"rank {len(data_format)} ({data_format})", f"rank {len(shape)}")
            merged = list(seen or shape)
            for axis, (first, second) in enumerate(zip(merged, shape, strict=True)):
                if isinstance(first, int) and isinstance(second, int) and first != second:
                    raise call.error(name, f"shape {merged} (as {cls.image[0]})", list(shape))
                merged[axis] = first if isinstance(first, int) else second
            seen = merged
            channels, bound = shape[data_format.index("C")], call.sizes.get("C")
            if isinstance(channels, int) and isinstance(bound, int) and channels != bound:
                raise call.error(name, f"{bound} channels (as scale)", channels)
            if isinstance(channels, int) or bound is None:
                call.sizes["C"] = channels
        if seen is not None:
            call.unifier.rests["X"] = tuple(seen)


class _Forward(_BatchNormalization, abstract=True):
    image = ("x",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Mean and variance may only be left empty where they are not read."""
        super().verify(call)
        training, factor = call.attributes["is_training"], call.attributes["exponential_avg_factor"]
        for name in ("mean", "variance"):
            shape, channels = call.operands[name].shape, call.sizes.get("C")
            if shape is None:
                continue
            if len(shape) != 1:
                raise call.error(name, "rank 1 [C]", f"rank {len(shape)}")
            empty = shape[0] == 0 and training and factor == 1
            if not empty and isinstance(shape[0], int) and isinstance(channels, int) and shape[0] != channels:
                raise call.error(name, f"shape [{channels}] (C from x)", list(shape))


class FusedBatchNorm(_Forward):
    """Batch normalisation over all axes but the channels; the reserve spaces are for the gradient."""


class FusedBatchNormV2(_Forward):
    """Batch normalisation over all axes but the channels, of halves too."""


class FusedBatchNormV3(_Forward, U=("float32",)):
    """Batch normalisation over all axes but the channels, with one reserve space more."""


class _Gradient(_BatchNormalization, abstract=True):
    image = ("y_backprop", "x")


class FusedBatchNormGrad(_Gradient):
    """Gradient of FusedBatchNorm; the reserve spaces hold mean and variance, of the batch if it is training."""

    forward = "FusedBatchNorm"


class FusedBatchNormGradV2(_Gradient):
    """Gradient of FusedBatchNormV2; the reserve spaces hold mean and variance, of the batch if it is training."""

    forward = "FusedBatchNormV2"


class FusedBatchNormGradV3(_Gradient):
    """Gradient of FusedBatchNormV3; the reserve spaces hold mean and variance, of the batch if it is training."""

    forward = "FusedBatchNormV3"
