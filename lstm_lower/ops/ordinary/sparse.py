"""Definitions of TensorFlow's ops on sparse arrays, which are lists of places and values.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, NUMBERS, ORDERED, RawOp, numbers, shape_of


class SparseToDense(RawOp, output_shape="R", default_value=""):
    """An array of one value but for some elements."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Indices are a number, a vector of them or a matrix; values a scalar or a vector."""
        for name, most in (("sparse_indices", 2), ("sparse_values", 1)):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > most:
                raise call.error(name, f"rank {most} at most", f"rank {len(shape)}")


class SparseTensorDenseAdd(RawOp, a_indices="N R", a_values="N", a_shape="R", T=NUMBERS):
    """A sparse array and a dense one, added."""


class SparseTensorDenseMatMul(RawOp, a_indices="N 2", a_values="N", a_shape="2", b="K M", T=COMPUTED):
    """The product of a sparse matrix and a dense one."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Inner sizes agree."""
        sizes, dense = numbers(call, "a_shape"), shape_of(call, "b")
        if sizes is None or dense is None:
            return
        inner, own = sizes[not call.attributes["adjoint_a"]], dense[bool(call.attributes["adjoint_b"])]
        if not agree((own,), (inner,)):
            raise call.error("b", f"{inner} rows (as a_shape)", f"{own}")


class SparseReshape(RawOp, input_indices="N R", input_shape="R", new_shape="S"):
    """The places of elements in an array of another shape, whose elements stand in the same order."""


class SparseReorder(RawOp, input_indices="N R", input_values="N", input_shape="R"):
    """A sparse array's elements in the order of their places, row by row."""


class SparseSlice(RawOp, indices="N R", values="N", shape="R", start="R", size="R"):
    """The elements of a sparse array within a box, which becomes an array of its own."""


class SparseSliceGrad(
    RawOp, backprop_val_grad="M", input_indices="N R", input_start="R", output_indices="M R", T=NUMBERS
):
    """Gradient of SparseSlice with respect to values: zero for elements outside of the box."""

    forward = "SparseSlice"


class SparseConcat(RawOp):
    """Sparse arrays side by side along an axis, row by row."""

    @classmethod
    def rank(cls, call: Call) -> int | None:
        """The number of axes, where one of the shapes tells it."""
        found = [info.shape[0] for info in call.lists["shapes"] if info.shape]
        return next((size for size in found if isinstance(size, int)), None)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The axis is one of the arrays'."""
        rank, axis = cls.rank(call), call.attributes["concat_dim"]
        if rank is not None and not -rank <= axis < rank:
            raise call.error("attribute concat_dim", f"an axis of {rank}", axis)


class SparseAdd(
    RawOp,
    a_indices="N R",
    a_values="N",
    a_shape="R",
    b_indices="M R",
    b_values="M",
    b_shape="R",
    thresh="",
    T=ORDERED,
    Treal=ORDERED,
):
    """Two sparse arrays added, row by row; sums of two elements of less than `thresh` in magnitude are left out."""


class SparseAddGrad(RawOp, backprop_val_grad="K", a_indices="N R", b_indices="M R", sum_indices="K R", T=NUMBERS):
    """Gradients of SparseAdd with respect to both arrays' values: zero for elements that were left out."""

    forward = "SparseAdd"


class SparseFillEmptyRows(RawOp, indices="N R", values="N", dense_shape="R", default_value=""):
    """A sparse array with an element of `default_value` in each row that had none, row by row.

    `reverse_index_map` says where each of its elements went.
    """


class SparseFillEmptyRowsGrad(RawOp, reverse_index_map="N", grad_values="M", T=NUMBERS):
    """Gradient of SparseFillEmptyRows with respect to values and default."""

    forward = "SparseFillEmptyRows"


class SparseDenseCwiseAdd(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, and those of a dense one at their places, added; the dense one broadcasts."""


class SparseDenseCwiseMul(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, times those of a dense one at their places; the dense one broadcasts."""


class SparseDenseCwiseDiv(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, over those of a dense one at their places; the dense one broadcasts."""
