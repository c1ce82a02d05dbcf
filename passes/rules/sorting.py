"""Lowering of the ops that find and order elements."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call, DType
from lstm_lower.ops.raw import ORDERED, RawOp, number
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import wide
from lstm_lower.passes.rules.arrays import UniqueV2, unique_slices
from lstm_lower.passes.rules.filling import full
from lstm_lower.passes.rules.registry import Node, lowers


class Where(RawOp):
    """The indices of all nonzero elements, one element per row."""


@lowers(Where, repeatable=True)
def where(n: Node, b: Builder) -> Expr:
    """NonZero's result has a column for each place; a scalar has a place without numbers."""
    x = n.moved("condition")
    if x.dtype.name != "BOOL":
        x = computed(x)
        x = ~x.equals(0)
    if x.shape == ():
        count = x.cast(INT64).reshape(1)
        return full(b.sizes([count, 0]), 0, INT64)
    return b.op(std.NonZero, x).transpose(1, 0)


class Unique(RawOp, x="N", T=ORDERED):
    """The different elements of a vector, in the order of their first occurrence, and which one each element is."""


class UniqueWithCounts(RawOp, x="N", T=ORDERED):
    """Unique, and how often each element occurs."""


class UniqueWithCountsV2(UniqueV2):
    """UniqueV2, and how often each slice occurs."""


@lowers(Unique, UniqueWithCounts, UniqueWithCountsV2, repeatable=True)
def unique(n: Node, _: Builder) -> list[Expr]:
    """ONNX's Unique."""
    axis = n.fixed("axis") if n.op is UniqueWithCountsV2 else None
    return unique_slices(n.x, 0 if axis is None or not axis.size else int(axis.reshape(-1)[0]))


class ListDiff(RawOp, x="N", y="M"):
    """The elements of x that are not in y, in their order, and their indices in x."""


@lowers(ListDiff, repeatable=True)
def list_diff(n: Node, b: Builder) -> list[Expr]:
    """The elements that equal none of y."""
    x, y = n.x, n.y
    known, others = n.constant("x"), n.constant("y")
    if known is not None and others is not None:
        # The order of axes in the gradient of a product along some of them; a Transpose has it as an attribute.
        kept = np.flatnonzero(~np.isin(known, others))
        return [b.constant(known[kept], x.dtype), b.constant(kept, INT64)]
    equal = x.unsqueeze(1).equals(y.unsqueeze(0)).cast(INT64).sum(1)
    places = b.op(std.NonZero, equal < 1).reshape(-1)
    return [x.take(places), places]


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


@lowers(TopK, TopKV2, repeatable=True)
def top_k(n: Node, b: Builder) -> list[Expr]:
    """ONNX's TopK, which takes the first of equal ones too."""
    count = b.ints(n.k) if isinstance(n.k, int) else wide(n.k).reshape(1)
    values, indices = b.ops(std.TopK, computed(n.moved("input")), count, outputs=2, axis=-1, sorted=int(n.sorted))
    return [values, indices]


class NthElement(RawOp, input="*S N", n="", T=ORDERED):
    """The n-th smallest element along the last axis, or the n-th largest; the first has number 0."""


@lowers(NthElement, repeatable=True)
def nth_element(n: Node, b: Builder) -> Expr:
    """The last of the n + 1 smallest or largest."""
    number = wide(n.n)
    values, _ = b.ops(std.TopK, computed(n.moved("input")), number.reshape(1) + 1, outputs=2, largest=int(n.reverse))
    return values.take(number, axis=-1)
