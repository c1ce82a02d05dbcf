"""Lowering of the reductions of sparse arrays."""

from __future__ import annotations

import functools
import operator

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.ops.ordinary.sparse_reductions import SparseReduceMax, SparseReduceSum, SparseSoftmax
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, row_numbers
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.ordinary.sparse import columns_of, numbered, ranked
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.segments import extreme_rows


@lowers(SparseReduceSum, SparseReduceMax, repeatable=True)
def sparse_reduction(n: Node) -> dict[str, Expr]:
    """Elements joined at their places along the axes that are left."""
    b, places, kept = n.builder, ranked(n, "input_indices", "input_shape"), n.op.kept(n.call)
    n.fixed("reduction_axes")
    columns, values = columns_of(places), computed(n.moved("input_values"))
    sizes = [n.input_shape.slice(axis, axis + 1, axis=0) for axis in range(len(columns))]
    left = [columns[axis] for axis in kept]
    number = row_numbers(left, [sizes[axis] for axis in kept]) if left else columns[0] * 0
    rows = functools.reduce(operator.mul, [sizes[axis] for axis in kept], b.ints(1))
    shape = [sizes[axis] if axis in kept else b.ints(1) for axis in range(len(columns)) if axis in kept or n.keep_dims]
    made = (add_rows if n.op is SparseReduceSum else _largest)(values, number, rows)
    return {"output": reshape_to(made, concat(shape, 0)) if shape else made.reshape()}


def _largest(values: Expr, number: Expr, rows: Expr) -> Expr:
    """The largest value of each number up to `rows`; 0 where there is none."""
    b, least = values.builder, _least(values.dtype)
    if b.opset >= 18:
        places = number.unsqueeze(1)
        most = b.op(std.ScatterND, b.fill(least, rows, values.dtype), places, values, reduction="max")
        found = b.fill(False, rows, ir.DataType.BOOL)  # noqa: FBT003
        found = b.op(std.ScatterND, found, places, number.equals(number))
        return b.where(found, most, 0)
    # A column more, so that there is one where there are no elements.
    member = up_to(b, rows).unsqueeze(1).equals(concat([number, b.ints(-1)], 0))
    table = b.where(member, concat([values, b.fill(least, [1], values.dtype)], 0), least)
    most = table.reduce(std.ReduceMax, 1, keepdims=False)
    return b.where(member.cast(ir.DataType.INT64).sum(1) > 0, most, 0)


def _least(dtype: ir.DataType) -> float:
    return int(np.iinfo(dtype.numpy()).min) if dtype.is_integer() else -np.inf


@lowers(SparseSoftmax, repeatable=True)
def sparse_softmax(n: Node) -> dict[str, Expr]:
    """Exponential functions over their sums, row by row."""
    b, places, values = n.builder, ranked(n, "sp_indices", "sp_shape"), n.sp_values
    axes = len(columns_of(places)) - 1
    owner = numbered(places, n.sp_shape, axes)
    rows = b.op(std.ReduceProd, n.sp_shape.slice(0, axes, axis=0), keepdims=1)
    if b.opset >= 18:
        least = b.op(std.ConstantOfShape, rows, value=ir.tensor([-np.inf], dtype=values.dtype))
        most = b.op(std.ScatterND, least, owner.unsqueeze(1), values, reduction="max")
    else:
        most = extreme_rows(n, "sp_values", values, owner, rows, std.ReduceMax)
    powers = (values - b.op(std.Gather, most, owner, axis=0)).exp()
    return {"output": powers / b.op(std.Gather, add_rows(powers, owner, rows), owner, axis=0)}
