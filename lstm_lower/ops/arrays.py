"""Definitions of TensorFlow's ops on whole arrays that tf2onnx lacks or gets wrong.

Symbols: R rank of a result, B batch, C classes.
"""

from __future__ import annotations

from lstm_lower.dims import agree, starts
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, INDEX, RawOp


class ScatterNd(
    RawOp, shape="R", T=(*COMPUTED, *COMPLEX, "bool"), Tindices=INDEX, bad_indices_policy=("", "DEFAULT", "ERROR")
):
    """Zeros of a shape, with updates added at the indices in the last axis of `indices`."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The updates' shape starts with that of the indices, less its last axis."""
        indices, updates = call.operands["indices"].shape, call.operands["updates"].shape
        if indices is not None and not indices:
            raise call.error("indices", "rank 1 or more", "rank 0")
        if indices is None or updates is None:
            return
        if not starts(updates, indices[:-1]):
            what = f"a shape that starts with {list(indices[:-1])} (as indices)"
            raise call.error("updates", what, list(updates))


class EuclideanNorm(RawOp, T=FLOATS):
    """Square root of the sum of squares over axes."""

    static_operands = ("axis",)


class LinSpace(RawOp, start="", stop="", num=""):
    """Numbers at equal distances from start to stop, both included."""


class Rank(RawOp):
    """The number of axes."""


class Reverse(RawOp, dims="R"):
    """Reverses the axes for which `dims` is true."""

    static_operands = ("dims",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """One entry of dims for each axis."""
        shape, count = call.operands["tensor"].shape, call.sizes.get("R")
        if shape is not None and isinstance(count, int) and len(shape) != count:
            raise call.error("dims", f"an entry for each of tensor's {len(shape)} axes", f"{count}")


class Diag(RawOp, T=COMPUTED):
    """Zeros of shape S + S with the operand, of shape S, on the diagonal."""


class DiagPart(RawOp, T=COMPUTED):
    """The diagonal of an operand of shape S + S, of shape S."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The shape is one shape twice."""
        shape = call.operands["input"].shape
        if shape is None:
            return
        half = len(shape) // 2
        if not shape or not agree(shape[:half], shape[half:]):
            raise call.error("input", "a shape of two equal halves", list(shape))


class InTopK(RawOp, predictions="B C", targets="B"):
    """Whether fewer than k classes have a larger prediction than the target; false where that cannot be said."""


class InTopKV2(RawOp, predictions="B C", targets="B", k=""):
    """InTopK with k as an operand."""


class UniqueV2(RawOp, axis="A", T=COMPUTED):
    """The different slices along an axis, in the order of their first occurrence, and which one each slice is."""

    static_operands = ("axis",)

    @classmethod
    def verify(cls, call: Call) -> None:
        """A vector needs no axis."""
        shape, count = call.operands["x"].shape, call.sizes.get("A")
        if isinstance(count, int) and count > 1:
            raise call.error("axis", "one entry at most", f"{count}")
        if shape is not None and count == 0 and len(shape) != 1:
            raise call.error("axis", f"an entry for x of rank {len(shape)}", "none")
        if shape is not None and (axis := call.operands["axis"].value) is not None:
            for entry in axis.ravel().tolist():
                if not -len(shape) <= entry < len(shape):
                    raise call.error("axis", f"an axis of x of rank {len(shape)}", f"{entry}")


class CumulativeLogsumexp(RawOp, axis=""):
    """log of the running sum of exp(x) along an axis, without overflow."""

    static_operands = ("axis",)
