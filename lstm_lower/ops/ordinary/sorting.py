"""Definitions of TensorFlow's ops that find, count and order elements.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType
from lstm_lower.ops.arrays import UniqueV2
from lstm_lower.ops.raw import ORDERED, RawOp, number


class Where(RawOp):
    """The indices of all nonzero elements, one element per row."""


class Unique(RawOp, x="N", T=ORDERED):
    """The different elements of a vector, in the order of their first occurrence, and which one each element is."""


class UniqueWithCounts(RawOp, x="N", T=ORDERED):
    """Unique, and how often each element occurs."""


class UniqueWithCountsV2(UniqueV2):
    """UniqueV2, and how often each slice occurs."""


class ListDiff(RawOp, x="N", y="M"):
    """The elements of x that are not in y, in their order, and their indices in x."""


class _Largest(RawOp, abstract=True, input="*S N", T=ORDERED):
    """The largest elements along the last axis, and their indices; of equal elements the first."""

    @classmethod
    def taken(cls, call: Call) -> int | None:
        """How many, where that is known."""
        return call.attributes["k"] if "k" in call.attributes else number(call, "k")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Not more than there are."""
        size, count = call.sizes.get("N"), cls.taken(call)
        if count is not None and (count < 0 or (isinstance(size, int) and count > size)):
            raise call.error("k", f"0 to {'all' if size is None else size}", f"{count}")

    @classmethod
    def index(cls, call: Call) -> DType:
        """The dtype of the places."""
        return DType.INT32


class TopK(_Largest):
    """The k largest elements along the last axis, and their indices; of equal elements the first."""


class TopKV2(_Largest, k=""):
    """TopK with k as an operand."""

    @classmethod
    def index(cls, call: Call) -> DType:
        """The dtype that the attribute says."""
        found: DType = call.attributes["index_type"]
        return found


class NthElement(RawOp, input="*S N", n="", T=ORDERED):
    """The n-th smallest element along the last axis, or the n-th largest; the first has number 0."""
