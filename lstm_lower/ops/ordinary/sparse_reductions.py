"""Definitions of TensorFlow's reductions of sparse arrays, which are lists of places and values.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import MAX_RANK
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, ORDERED, PAIRED, RawOp, length_of, numbers


class _Reduction(RawOp, abstract=True, input_indices="N R", input_shape="R", input_values="N"):
    static_operands = ("reduction_axes",)

    @classmethod
    def kept(cls, call: Call) -> list[int] | None:
        """The axes that are left, where that is known."""
        axes, rank = numbers(call, "reduction_axes"), length_of(call, "input_shape")
        if axes is None or rank is None or rank > MAX_RANK:
            return None
        reduced = {axis % rank for axis in axes} if rank else set()
        return [axis for axis in range(rank) if axis not in reduced]


class SparseReduceSum(_Reduction, T=NUMBERS):
    """Sums of a sparse array's elements along some axes."""


class SparseReduceMax(_Reduction, T=ORDERED):
    """The largest of a sparse array's elements along some axes, of those that are there; 0 where there are none."""


class SparseSoftmax(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=PAIRED):
    """The softmax over each row's elements, as if there were no others; rows are along the last axis."""
