"""Lowering of the ops on sparse arrays, reductions of these, too."""

from __future__ import annotations

import functools
import operator

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import MAX_RANK, agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, NUMBERS, ORDERED, PAIRED, RawOp, length_of, numbers, shape_of
from lstm_lower.passes.formulas.indices import below, from_front
from lstm_lower.passes.formulas.kernels import computed, movable
from lstm_lower.passes.formulas.rows import INT64, add_rows, reshape_to, row_numbers
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.rules.filling import expanded
from lstm_lower.passes.rules.gathering import added
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


class SparseToDense(RawOp, output_shape="R", default_value=""):
    """An array of one value but for some elements."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Indices are a number, a vector of them or a matrix; values a scalar or a vector."""
        for name, most in (("sparse_indices", 2), ("sparse_values", 1)):
            shape = shape_of(call, name)
            if shape is not None and len(shape) > most:
                raise call.error(name, f"rank {most} at most", f"rank {len(shape)}")


@lowers(SparseToDense, repeatable=True)
def sparse_to_dense(n: Node, b: Builder) -> Expr:
    """The default everywhere, and the values written into it."""
    places, values = from_front(wide(n.sparse_indices)), movable(n.moved("sparse_values"))
    rank = rank_of(n, "sparse_indices", places)
    places = places.reshape(1, 1) if rank == 0 else places.unsqueeze(1) if rank == 1 else places
    if rank_of(n, "sparse_values", values) == 0:
        values = expanded(values, b.sizes([places.size(0)]))
    return b.op(std.ScatterND, expanded(n.moved("default_value"), n.output_shape), places, values)


class SparseTensorDenseAdd(RawOp, a_indices="N R", a_values="N", a_shape="R", T=NUMBERS):
    """A sparse array and a dense one, added."""


@lowers(SparseTensorDenseAdd, repeatable=True)
def sparse_tensor_dense_add(n: Node, b: Builder) -> Expr:
    """The values added at their places."""
    return added(n, b, "a_indices", computed(n.moved("b")), computed(n.moved("a_values")))


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


@lowers(SparseTensorDenseMatMul, repeatable=True)
def sparse_tensor_dense_matmul(n: Node, b: Builder) -> Expr:
    """Rows of the dense matrix, each times an element and added to the row that the element stands in."""
    adjoint = bool(n.adjoint_a)
    dense = n.b.mT if n.adjoint_b else n.b
    indices = from_front(wide(n.a_indices))
    own, other = (indices.slice(axis, axis + 1, axis=1).reshape(-1) for axis in (adjoint, not adjoint))
    rows = n.a_shape.slice(int(adjoint), int(adjoint) + 1, axis=0)
    products = n.a_values.unsqueeze(1) * b.op(std.Gather, dense, other, axis=0)
    return add_rows(products, below(own, rows), rows)


def columns_of(indices: Expr) -> list[Expr]:
    """The places along each axis; the number of axes is known."""
    b, rank = indices.builder, indices.size(1)
    assert isinstance(rank, int)
    return [b.op(std.Gather, indices, b.constant(axis, INT64), axis=1) for axis in range(rank)]


def ranked(n: Node, b: Builder, indices: str, shape: str) -> Expr:
    """An operand of places, one in each row, of a known number of axes."""
    places, rank = n.operand(indices), n.call.sizes.get("R")
    if not isinstance(rank, int):
        raise n.unsupported(shape, "a known length", "an unknown one")
    return b.set_shape(b.op(std.Identity, places), [None, rank])


def numbered(places: Expr, shape: Expr, axes: int) -> Expr:
    """The number of each place among all along the first axes."""
    columns, sizes = columns_of(places)[:axes], [shape.slice(axis, axis + 1, axis=0) for axis in range(axes)]
    return row_numbers(columns, sizes) if columns else places.slice(0, 1, axis=1).reshape(-1) * 0


def _sorted(keys: Expr) -> Expr:
    """The order that sorts numbers; of equal ones the first comes first."""
    b = keys.builder
    count = b.op(std.Shape, keys)
    apart = keys * count.maximum(1) + up_to(b, count)
    return b.ops(std.TopK, apart, count, outputs=2, axis=0, largest=0, sorted=1)[1]


class SparseReshape(RawOp, input_indices="N R", input_shape="R", new_shape="S"):
    """The places of elements in an array of another shape, whose elements stand in the same order."""


@lowers(SparseReshape, repeatable=True)
def sparse_reshape(n: Node, b: Builder) -> list[Expr]:
    """Places numbered through, and numbers taken apart again."""
    places, made = ranked(n, b, "input_indices", "input_shape"), n.call.sizes.get("S")
    if not isinstance(made, int):
        raise n.unsupported("new_shape", "a known length", "an unknown one")
    rank = n.call.sizes["R"]
    assert isinstance(rank, int)
    total = b.op(std.ReduceProd, n.input_shape, keepdims=1)
    # One size of -1 makes the product negative.
    rest = b.op(std.ReduceProd, n.new_shape, keepdims=1).abs().maximum(1)
    shape = b.where(n.new_shape < 0, total / rest, n.new_shape)
    left, columns = numbered(places, n.input_shape, rank), list[Expr]()
    for axis in reversed(range(made)):
        size = shape.slice(axis, axis + 1, axis=0).maximum(1)
        columns.insert(0, (b.op(std.Mod, left, size) if axis else left).unsqueeze(1))
        left = left / size
    return [concat(columns, 1) if columns else places.slice(0, 0, axis=1), shape]


class SparseReorder(RawOp, input_indices="N R", input_values="N", input_shape="R"):
    """A sparse array's elements in the order of their places, row by row."""


@lowers(SparseReorder, repeatable=True)
def sparse_reorder(n: Node, b: Builder) -> list[Expr]:
    """By the number of each place."""
    places = ranked(n, b, "input_indices", "input_shape")
    order = _sorted(numbered(places, n.input_shape, len(columns_of(places))))
    return [
        b.op(std.Gather, places, order, axis=0),
        b.op(std.Gather, n.moved("input_values"), order, axis=0),
    ]


class SparseSlice(RawOp, indices="N R", values="N", shape="R", start="R", size="R"):
    """The elements of a sparse array within a box, which becomes an array of its own."""


@lowers(SparseSlice, repeatable=True)
def sparse_slice(n: Node, b: Builder) -> list[Expr]:
    """Elements whose place lies in the box along every axis, counted from its corner."""
    start, size = n.operand("start"), n.operand("size")
    places = ranked(n, b, "indices", "shape") - start
    outside = b.op(std.Or, places < 0, b.op(std.Not, places < size)).cast(INT64).sum(1)
    inside = b.op(std.NonZero, outside < 1).reshape(-1)
    return [
        b.op(std.Gather, places, inside, axis=0),
        b.op(std.Gather, n.moved("values"), inside, axis=0),
        size.minimum(n.operand("shape") - start).maximum(0),
    ]


class SparseSliceGrad(
    RawOp, backprop_val_grad="M", input_indices="N R", input_start="R", output_indices="M R", T=NUMBERS
):
    """Gradient of SparseSlice with respect to values: zero for elements outside of the box."""


@lowers(SparseSliceGrad, repeatable=True)
def sparse_slice_grad(n: Node, _: Builder) -> Expr:
    """Values at the same place of the box, if one has any."""
    places = n.input_indices - n.input_start
    return _standing(computed(n.moved("backprop_val_grad")), n.output_indices, places)


def _standing(values: Expr, where: Expr, places: Expr) -> Expr:
    """The values that stand at places, zero where none does."""
    b = places.builder
    differ = b.op(std.Not, b.op(std.Equal, places.unsqueeze(1), where.unsqueeze(0)))
    pairs = b.op(std.NonZero, differ.cast(INT64).sum(2) < 1)
    own, other = (b.op(std.Gather, pairs, b.constant(side, INT64), axis=0) for side in (0, 1))
    return add_rows(b.op(std.Gather, values, other, axis=0), own, b.op(std.Shape, places).slice(0, 1, axis=0))


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


@lowers(SparseAdd, repeatable=True)
def sparse_add(n: Node, b: Builder) -> list[Expr]:
    """Elements of both in order, those of equal places added, and small sums left out."""
    dtype = n.moved("a_values").dtype
    both = concat([ranked(n, b, side, "a_shape") for side in ("a_indices", "b_indices")], 0)
    number = numbered(both, n.a_shape, len(columns_of(both)))
    order = _sorted(number)
    number, places = (b.op(std.Gather, part, order, axis=0) for part in (number, both))
    values = b.op(std.Gather, concat([computed(n.moved(f"{side}_values")) for side in "ab"], 0), order, axis=0)
    # Before the first stands a number that no place has.
    before = concat([b.ints(-1), number], 0).slice(0, b.op(std.Shape, number), axis=0)
    begins = number > before
    owners, first = (
        b.op(std.CumSum, begins.cast(INT64), b.constant(0, INT64)) - 1,
        b.op(std.NonZero, begins).reshape(-1),
    )
    # Halves are added in float32 and small integers wrap.
    count = b.op(std.Shape, first)
    sums = add_rows(values, owners, count).cast(dtype)
    alone = add_rows(owners * 0 + 1, owners, count) < 2
    size = computed(sums).abs()
    small = size < computed(n.moved("thresh"))
    if size.dtype.is_floating_point():
        small = b.op(std.Or, small, b.op(std.IsNaN, size))
    kept = b.op(std.NonZero, b.op(std.Or, alone, b.op(std.Not, small))).reshape(-1)
    return [
        b.op(std.Gather, places, b.op(std.Gather, first, kept, axis=0), axis=0),
        b.op(std.Gather, sums, kept, axis=0),
        b.op(std.Identity, n.a_shape),
    ]


class SparseAddGrad(RawOp, backprop_val_grad="K", a_indices="N R", b_indices="M R", sum_indices="K R", T=NUMBERS):
    """Gradients of SparseAdd with respect to both arrays' values: zero for elements that were left out."""


@lowers(SparseAddGrad, repeatable=True)
def sparse_add_grad(n: Node, _: Builder) -> list[Expr]:
    """Values at the same place of the sum, if it has any."""
    dy = computed(n.moved("backprop_val_grad"))
    return [_standing(dy, n.sum_indices, indices) for indices in (n.a_indices, n.b_indices)]


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


@lowers(SparseConcat, repeatable=True)
def sparse_concat(n: Node, b: Builder) -> list[Expr]:
    """Places moved by the sizes of the arrays before, and then, unless they are in order, sorted."""
    rank = n.op.rank(n.call)
    if rank is None:
        raise n.unsupported("shapes", "a known length", "an unknown one")
    axis, shapes = n.concat_dim % rank, n.variadic("shapes")
    unit = b.ints(*(int(place == axis) for place in range(rank)))
    moved, before = list[Expr](), b.ints(0)
    for places, shape in zip(n.variadic("indices"), shapes, strict=True):
        moved.append(places + before * unit)
        before = before + shape.slice(axis, axis + 1, axis=0)
    sizes = b.where(b.op(std.Equal, unit, b.ints(1)), before, shapes[0])
    joined, values = b.set_shape(concat(moved, 0), [None, rank]), concat(n.all_moved("values"), 0)
    if axis:
        order = _sorted(numbered(joined, sizes, rank))
        joined, values = (b.op(std.Gather, part, order, axis=0) for part in (joined, values))
    return [joined, values, sizes]


class SparseFillEmptyRows(RawOp, indices="N R", values="N", dense_shape="R", default_value=""):
    """A sparse array with an element of `default_value` in each row that had none, row by row.

    `reverse_index_map` says where each of its elements went.
    """


@lowers(SparseFillEmptyRows, repeatable=True)
def sparse_fill_empty_rows(n: Node, b: Builder) -> list[Expr]:
    """Elements for empty rows behind all others, and then rows in order."""
    places, values = ranked(n, b, "indices", "dense_shape"), movable(n.moved("values"))
    rows = n.dense_shape.slice(0, 1, axis=0)
    owners, count = places.slice(0, 1, axis=1).reshape(-1), b.op(std.Shape, n.moved("values"))
    empty = add_rows(b.op(std.ConstantOfShape, count, value=ir.tensor([1], dtype=INT64)), owners, rows) < 1
    missing = b.op(std.NonZero, empty).reshape(-1)
    lacking = b.op(std.Shape, missing)
    new = concat([missing.unsqueeze(1), b.op(std.ConstantOfShape, _beside(lacking, n, b), value=_ZERO)], 1)
    order = _sorted(concat([owners, missing], 0))
    filled = expanded(movable(n.moved("default_value")), lacking)
    went = b.op(std.ScatterND, order, order.unsqueeze(1), up_to(b, b.op(std.Shape, order)))
    return [
        b.op(std.Gather, concat([places, new], 0), order, axis=0),
        b.op(std.Gather, concat([values, filled], 0), order, axis=0),
        empty,
        went.slice(0, count, axis=0),
    ]


_ZERO = ir.tensor([0], dtype=INT64)


def _beside(rows: Expr, n: Node, b: Builder) -> Expr:
    rank = n.call.sizes["R"]
    assert isinstance(rank, int)
    return concat([rows, b.ints(rank - 1)], 0)


class SparseFillEmptyRowsGrad(RawOp, reverse_index_map="N", grad_values="M", T=NUMBERS):
    """Gradient of SparseFillEmptyRows with respect to values and default."""


@lowers(SparseFillEmptyRowsGrad, repeatable=True)
def sparse_fill_empty_rows_grad(n: Node, b: Builder) -> list[Expr]:
    """Gradients of what went somewhere, and the sum of those of what came from nowhere."""
    dy = computed(n.moved("grad_values"))
    zeros = b.op(std.ConstantOfShape, b.op(std.Shape, n.reverse_index_map), value=ir.tensor([0], dtype=dy.dtype))
    rest = b.op(std.ScatterND, dy, n.reverse_index_map.unsqueeze(1), zeros)
    return [b.op(std.Gather, dy, n.reverse_index_map, axis=0), rest.sum(0)]


class SparseDenseCwiseAdd(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, and those of a dense one at their places, added; the dense one broadcasts."""


class SparseDenseCwiseMul(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, times those of a dense one at their places; the dense one broadcasts."""


class SparseDenseCwiseDiv(RawOp, sp_indices="N R", sp_values="N", sp_shape="R", T=NUMBERS):
    """A sparse array's elements, over those of a dense one at their places; the dense one broadcasts."""


@lowers(SparseDenseCwiseAdd, SparseDenseCwiseMul, SparseDenseCwiseDiv, repeatable=True)
def sparse_dense_cwise(n: Node, b: Builder) -> Expr:
    """With the elements that the dense array has there."""
    places = ranked(n, b, "sp_indices", "sp_shape")
    values, dense = computed(n.moved("sp_values")), computed(n.moved("dense"))
    there = b.op(std.GatherND, expanded(dense, n.sp_shape), places)
    if n.op is SparseDenseCwiseDiv:
        return values / there
    return values * there if n.op is SparseDenseCwiseMul else values + there


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
    places = number.unsqueeze(1)
    most = b.op(std.ScatterND, b.fill(least, rows, values.dtype), places, values, reduction="max")
    found = b.op(std.ScatterND, b.fill(False, rows, ir.DataType.BOOL), places, number.equals(number))
    return b.where(found, most, 0)


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
    least = b.op(std.ConstantOfShape, rows, value=ir.tensor([-np.inf], dtype=values.dtype))
    most = b.op(std.ScatterND, least, owner.unsqueeze(1), values, reduction="max")
    powers = (values - b.op(std.Gather, most, owner, axis=0)).exp()
    return powers / b.op(std.Gather, add_rows(powers, owner, rows), owner, axis=0)
