"""Definitions of TensorFlow's reductions of sparse arrays, which are lists of places and values.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import MAX_RANK
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.bases import ORDERED, REAL, length_of, numbers, result, said


class _Reduction(OpDef, abstract=True):
    static_operands = ("reduction_axes",)

    class Inputs:
        input_indices = operand("N R", "int64")
        input_values = operand("N")
        input_shape = operand("R", "int64")
        reduction_axes = operand(None, "int32")

    class Outputs:
        output = operand(None)

    class Attrs:
        keep_dims = attr(bool, False)

    @classmethod
    def kept(cls, call: Call) -> list[int] | None:
        """The axes that are left, where that is known."""
        axes, rank = numbers(call, "reduction_axes"), length_of(call, "input_shape")
        if axes is None or rank is None or rank > MAX_RANK:
            return None
        reduced = {axis % rank for axis in axes} if rank else set()
        return [axis for axis in range(rank) if axis not in reduced]

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The sizes of what is left."""
        kept, sizes, rank = cls.kept(call), said(call, "input_shape"), length_of(call, "input_shape")
        if kept is None or sizes is None or rank is None:
            return result(call, None)
        if call.attributes["keep_dims"]:
            return result(call, [sizes[axis] if axis in kept else 1 for axis in range(rank)])
        return result(call, [sizes[axis] for axis in kept])


class SparseReduceSum(_Reduction):
    """Sums of a sparse array's elements along some axes."""

    class Types:
        T = REAL


class SparseReduceMax(_Reduction):
    """The largest of a sparse array's elements along some axes, of those that are there; 0 where there are none."""

    class Types:
        T = ORDERED


class SparseSoftmax(OpDef):
    """The softmax over each row's elements, as if there were no others; rows are along the last axis."""

    class Types:
        T = FLOATS[2:]

    class Inputs:
        sp_indices = operand("N R", "int64")
        sp_values = operand("N")
        sp_shape = operand("R", "int64")

    class Outputs:
        output = operand("N")
