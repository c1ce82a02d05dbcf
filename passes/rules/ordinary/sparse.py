"""Lowering of the ops on sparse arrays."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.ops.ordinary.sparse import SparseTensorDenseAdd, SparseTensorDenseMatMul, SparseToDense
from lstm_lower.passes.formulas.kernels import computed, movable
from lstm_lower.passes.formulas.sizes import wide
from lstm_lower.passes.rules.indexing import rank_of
from lstm_lower.passes.rules.ordinary.filling import expanded, full
from lstm_lower.passes.rules.ordinary.gathering import added
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(SparseToDense, repeatable=True)
def sparse_to_dense(n: Node) -> dict[str, Expr]:
    """The default everywhere, and the values written into it."""
    b, places, values = n.builder, wide(n.sparse_indices), movable(n.moved("sparse_values"))
    rank = rank_of(n, "sparse_indices", places)
    places = places.reshape(1, 1) if rank == 0 else places.unsqueeze(1) if rank == 1 else places
    if rank_of(n, "sparse_values", values) == 0:
        values = expanded(values, b.sizes([places.size(0)]))
    return {"dense": b.op(std.ScatterND, expanded(n.moved("default_value"), n.output_shape), places, values)}


@lowers(SparseTensorDenseAdd, repeatable=True)
def sparse_tensor_dense_add(n: Node) -> dict[str, Expr]:
    """The values added at their places."""
    return {"output": added(n, "a_indices", computed(n.moved("b")), computed(n.moved("a_values")))}


@lowers(SparseTensorDenseMatMul, repeatable=True)
def sparse_tensor_dense_matmul(n: Node) -> dict[str, Expr]:
    """The product of the matrix written out."""
    values = n.a_values
    sparse, dense = added(n, "a_indices", full(n.a_shape, 0, values.dtype), values), n.b
    return {"product": (sparse.mT if n.adjoint_a else sparse) @ (dense.mT if n.adjoint_b else dense)}
