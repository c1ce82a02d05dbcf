"""Lowering of the reductions of sparse arrays."""

from __future__ import annotations

import functools
import operator

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import MAX_RANK
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, ORDERED, PAIRED, RawOp, length_of, numbers
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, row_numbers
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.segments import extreme_rows
from lstm_lower.passes.rules.sparse import columns_of, numbered, ranked


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


@lowers(SparseReduceSum, SparseReduceMax, repeatable=True)
def sparse_reduction(n: Node, b: Builder) -> Expr:
    """Elements joined at their places along the axes that are left."""
    places, kept = ranked(n, b, "input_indices", "input_shape"), n.op.kept(n.call)
    n.fixed("reduction_axes")
    columns, values = columns_of(places), computed(n.moved("input_values"))
    sizes = [n.input_shape.slice(axis, axis + 1, axis=0) for axis in range(len(columns))]
    left = [columns[axis] for axis in kept]
    number = row_numbers(left, [sizes[axis] for axis in kept]) if left else columns[0] * 0
    rows = functools.reduce(operator.mul, [sizes[axis] for axis in kept], b.ints(1))
    shape = [sizes[axis] if axis in kept else b.ints(1) for axis in range(len(columns)) if axis in kept or n.keep_dims]
    made = (add_rows if n.op is SparseReduceSum else _largest)(values, number, rows)
    return reshape_to(made, concat(shape, 0)) if shape else made.reshape()


def _largest(values: Expr, number: Expr, rows: Expr) -> Expr:
    """The largest value of each number up to `rows`; 0 where there is none."""
    b, least = values.builder, _least(values.dtype)
    if b.opset >= 18:
        places = number.unsqueeze(1)
        most = b.op(std.ScatterND, b.fill(least, rows, values.dtype), places, values, reduction="max")
        found = b.fill(False, rows, ir.DataType.BOOL)
        found = b.op(std.ScatterND, found, places, number.equals(number))
        return b.where(found, most, 0)
    # A column more, so that there is one where there are no elements.
    member = up_to(b, rows).unsqueeze(1).equals(concat([number, b.ints(-1)], 0))
    table = b.where(member, concat([values, b.fill(least, [1], values.dtype)], 0), least)
    most = table.reduce(std.ReduceMax, 1, keepdims=False)
    return b.where(member.cast(ir.DataType.INT64).sum(1) > 0, most, 0)


def _least(dtype: ir.DataType) -> float:
    return int(np.iinfo(dtype.numpy()).min) if dtype.is_integer() else -np.inf


class SparseSoftmax(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=PAIRED):
    """The softmax over each row's elements, as if there were no others; rows are along the last axis."""


@lowers(SparseSoftmax, repeatable=True)
def sparse_softmax(n: Node, b: Builder) -> Expr:
    """Exponential functions over their sums, row by row."""
    places, values = ranked(n, b, "sp_indices", "sp_shape"), n.sp_values
    axes = len(columns_of(places)) - 1
    owner = numbered(places, n.sp_shape, axes)
    rows = b.op(std.ReduceProd, n.sp_shape.slice(0, axes, axis=0), keepdims=1)
    if b.opset >= 18:
        least = b.op(std.ConstantOfShape, rows, value=ir.tensor([-np.inf], dtype=values.dtype))
        most = b.op(std.ScatterND, least, owner.unsqueeze(1), values, reduction="max")
    else:
        most = extreme_rows(n, "sp_values", values, owner, rows, std.ReduceMax)
    powers = (values - b.op(std.Gather, most, owner, axis=0)).exp()
    return powers / b.op(std.Gather, add_rows(powers, owner, rows), owner, axis=0)
