"""Definitions of TensorFlow's ops on sparse arrays, which are lists of places and values.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import ALL, INDEX, ORDERED, REAL, numbers, result, said, shape_of


class SparseToDense(OpDef):
    """An array of one value but for some elements."""

    class Types:
        T = ALL
        Tindices = INDEX

    class Inputs:
        sparse_indices = operand(None, "Tindices")
        output_shape = operand("R", "Tindices")
        sparse_values = operand(None)
        default_value = operand("")

    class Outputs:
        dense = operand(None)

    class Attrs:
        validate_indices = attr(bool, True)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Indices are a number, a vector of them or a matrix; values a scalar or a vector."""
        for name, most in (("sparse_indices", 2), ("sparse_values", 1)):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > most:
                raise call.error(name, f"rank {most} at most", f"rank {len(shape)}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `output_shape` says."""
        return result(call, said(call, "output_shape"))


class SparseTensorDenseAdd(OpDef):
    """A sparse array and a dense one, added."""

    class Types:
        T = REAL
        Tindices = INDEX

    class Inputs:
        a_indices = operand("N R", "Tindices")
        a_values = operand("N")
        a_shape = operand("R", "Tindices")
        b = operand("*S")

    class Outputs:
        output = operand("*S")


class SparseTensorDenseMatMul(OpDef):
    """The product of a sparse matrix and a dense one."""

    class Types:
        T = ("bfloat16", "float16", "float32", "float64", "int32", "int64")
        Tindices = INDEX

    class Inputs:
        a_indices = operand("N 2", "Tindices")
        a_values = operand("N")
        a_shape = operand("2", "int64")
        b = operand("K M")

    class Outputs:
        product = operand(None)

    class Attrs:
        adjoint_a = attr(bool, False)
        adjoint_b = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Inner sizes agree."""
        sizes, dense = numbers(call, "a_shape"), shape_of(call, "b")
        if sizes is None or dense is None:
            return
        inner, own = sizes[not call.attributes["adjoint_a"]], dense[bool(call.attributes["adjoint_b"])]
        if not agree((own,), (inner,)):
            raise call.error("b", f"{inner} rows (as a_shape)", f"{own}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Rows of the one, columns of the other."""
        sizes, dense = numbers(call, "a_shape"), shape_of(call, "b")
        rows = None if sizes is None else sizes[bool(call.attributes["adjoint_a"])]
        return result(call, (rows, None if dense is None else dense[not call.attributes["adjoint_b"]]))


class SparseReshape(OpDef):
    """The places of elements in an array of another shape, whose elements stand in the same order."""

    class Inputs:
        input_indices = operand("N R", "int64")
        input_shape = operand("R", "int64")
        new_shape = operand("S", "int64")

    class Outputs:
        output_indices = operand("N S", "int64")
        output_shape = operand("S", "int64")


class SparseReorder(OpDef):
    """A sparse array's elements in the order of their places, row by row."""

    class Types:
        T = ALL

    class Inputs:
        input_indices = operand("N R", "int64")
        input_values = operand("N")
        input_shape = operand("R", "int64")

    class Outputs:
        output_indices = operand("N R", "int64")
        output_values = operand("N")


class _Picked(OpDef, abstract=True):
    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many elements there are is known at run time only."""
        rank = call.sizes.get("R")
        places, values = TensorInfo(DType.INT64, (None, rank)), TensorInfo(call.types.get("T"), (None,))
        return [places, values, TensorInfo(DType.INT64, (rank,))]


class SparseSlice(_Picked):
    """The elements of a sparse array within a box, which becomes an array of its own."""

    class Types:
        T = ALL

    class Inputs:
        indices = operand("N R", "int64")
        values = operand("N")
        shape = operand("R", "int64")
        start = operand("R", "int64")
        size = operand("R", "int64")

    class Outputs:
        output_indices = operand(None, "int64")
        output_values = operand(None)
        output_shape = operand("R", "int64")


class SparseSliceGrad(OpDef):
    """Gradient of SparseSlice with respect to values: zero for elements outside of the box."""

    forward = "SparseSlice"

    class Types:
        T = REAL

    class Inputs:
        backprop_val_grad = operand("M")
        input_indices = operand("N R", "int64")
        input_start = operand("R", "int64")
        output_indices = operand("M R", "int64")

    class Outputs:
        val_grad = operand("N")


class SparseConcat(OpDef):
    """Sparse arrays side by side along an axis, row by row."""

    class Types:
        T = ALL

    class Inputs:
        indices = operand(None, "int64", variadic=True, count="N")
        values = operand(None, variadic=True, count="N")
        shapes = operand(None, "int64", variadic=True, count="N")

    class Outputs:
        output_indices = operand(None, "int64")
        output_values = operand(None)
        output_shape = operand(None, "int64")

    class Attrs:
        concat_dim = attr(int)
        N = attr(int)

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

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As many elements as all have."""
        rank = cls.rank(call)
        return [
            TensorInfo(DType.INT64, (None, rank)),
            TensorInfo(call.types.get("T"), (None,)),
            TensorInfo(DType.INT64, (rank,)),
        ]


class SparseAdd(_Picked):
    """Two sparse arrays added, row by row; sums of two elements of less than `thresh` in magnitude are left out."""

    class Types:
        T = ORDERED
        Treal = ORDERED

    class Inputs:
        a_indices = operand("N R", "int64")
        a_values = operand("N")
        a_shape = operand("R", "int64")
        b_indices = operand("M R", "int64")
        b_values = operand("M")
        b_shape = operand("R", "int64")
        thresh = operand("", "Treal")

    class Outputs:
        sum_indices = operand(None, "int64")
        sum_values = operand(None)
        sum_shape = operand("R", "int64")


class SparseAddGrad(OpDef):
    """Gradients of SparseAdd with respect to both arrays' values: zero for elements that were left out."""

    forward = "SparseAdd"

    class Types:
        T = REAL

    class Inputs:
        backprop_val_grad = operand("K")
        a_indices = operand("N R", "int64")
        b_indices = operand("M R", "int64")
        sum_indices = operand("K R", "int64")

    class Outputs:
        a_val_grad = operand("N")
        b_val_grad = operand("M")


class SparseFillEmptyRows(OpDef):
    """A sparse array with an element of `default_value` in each row that had none, row by row.

    `reverse_index_map` says where each of its elements went.
    """

    class Types:
        T = ALL

    class Inputs:
        indices = operand("N R", "int64")
        values = operand("N")
        dense_shape = operand("R", "int64")
        default_value = operand("")

    class Outputs:
        output_indices = operand(None, "int64")
        output_values = operand(None)
        empty_row_indicator = operand(None, "bool")
        reverse_index_map = operand("N", "int64")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many rows are empty is known at run time only."""
        shape, elements = numbers(call, "dense_shape"), call.sizes.get("N")
        return [
            TensorInfo(DType.INT64, (None, call.sizes.get("R"))),
            TensorInfo(call.types.get("T"), (None,)),
            TensorInfo(DType.BOOL, (shape[0] if shape else None,)),
            TensorInfo(DType.INT64, (elements,)),
        ]


class SparseFillEmptyRowsGrad(OpDef):
    """Gradient of SparseFillEmptyRows with respect to values and default."""

    forward = "SparseFillEmptyRows"

    class Types:
        T = REAL

    class Inputs:
        reverse_index_map = operand("N", "int64")
        grad_values = operand("M")

    class Outputs:
        d_values = operand("N")
        d_default_value = operand("")


class _WithDense(OpDef, abstract=True):
    class Types:
        T = REAL

    class Inputs:
        sp_indices = operand("N R", "int64")
        sp_values = operand("N")
        sp_shape = operand("R", "int64")
        dense = operand(None)

    class Outputs:
        output = operand("N")


class SparseDenseCwiseAdd(_WithDense):
    """A sparse array's elements, and those of a dense one at their places, added; the dense one broadcasts."""


class SparseDenseCwiseMul(_WithDense):
    """A sparse array's elements, times those of a dense one at their places; the dense one broadcasts."""


class SparseDenseCwiseDiv(_WithDense):
    """A sparse array's elements, over those of a dense one at their places; the dense one broadcasts."""
