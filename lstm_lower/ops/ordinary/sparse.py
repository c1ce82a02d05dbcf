"""Definitions of TensorFlow's ops on sparse arrays, which are lists of places and values.

Signatures: TensorFlow's raw ops of the same names.
"""

from __future__ import annotations

from lstm_lower.dims import agree
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    REAL,
    numbers,
    result,
    said,
    shape_of,
)


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
