"""Lowering of the ops that look elements up by their places, or change them there."""

from __future__ import annotations

import numpy as np

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.ops.ordinary.gathering import (
    Gather,
    GatherNd,
    GatherV2,
    InvertPermutation,
    OneHot,
    TensorScatterAdd,
    TensorScatterMax,
    TensorScatterMin,
    TensorScatterSub,
    TensorScatterUpdate,
)
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64, add_rows, flatten_rows, reshape_to
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.rules.arrays import numbered_rows
from lstm_lower.passes.rules.indexing import rank_of
from lstm_lower.passes.rules.ordinary.filling import expanded
from lstm_lower.passes.rules.ordinary.moving import permuted
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.segments import extreme_rows


def _indices(n: Node) -> Expr:
    """Indices of a dtype that ONNX has; TensorFlow's kernels for processors refuse negative ones."""
    x: Expr = n.indices
    return from_front(x if x.dtype == INT64 or x.dtype.name == "INT32" else x.cast(INT64))


def _places(n: Node) -> Expr:
    return from_front(wide(n.indices))


@lowers(Gather, repeatable=True)
def gather(n: Node) -> dict[str, Expr]:
    """A Gather of rows."""
    return {"output": n.moved("params").take(_indices(n))}


@lowers(GatherV2, repeatable=True)
def gather_v2(n: Node) -> dict[str, Expr]:
    """A Gather; axes that belong together are a GatherND's, for which the axis comes right behind them."""
    b, x = n.builder, n.moved("params")
    along = int(n.fixed("axis").reshape(-1)[0])
    if not n.batch_dims:
        return {"output": x.take(_indices(n), axis=along)}
    rank, ranks = rank_of(n, "params", x), rank_of(n, "indices", n.indices)
    axis, batch = n.op.places(n.call)
    order = [*range(batch), axis, *(other for other in range(batch, rank) if other != axis)]
    places = _places(n).unsqueeze(ranks)
    found = b.op(std.GatherND, permuted(x, order), places, batch_dims=batch)
    # [batch, indices, before the axis, behind it] -> [batch, before the axis, indices, behind it].
    new, before = ranks - batch, axis - batch
    back = [*range(batch), *range(ranks, ranks + before), *range(batch, ranks), *range(ranks + before, rank + new - 1)]
    return {"output": permuted(found, back)}


@lowers(GatherNd, repeatable=True)
def gather_nd(n: Node) -> dict[str, Expr]:
    """A GatherND; places that name nothing mean all of the array."""
    b, x, indices = n.builder, n.moved("params"), _places(n)
    if n.call.sizes.get("D") != 0:
        return {"output": b.op(std.GatherND, x, indices)}
    leading = indices.sizes().slice(0, -1, axis=0)
    return {"output": expanded(x, concat([leading, x.sizes()], 0))}


@lowers(OneHot, repeatable=True)
def one_hot(n: Node) -> dict[str, Expr]:
    """Each index compared with all places."""
    b, indices = n.builder, wide(n.indices)
    places = up_to(b, wide(n.depth))
    if n.axis != -1:
        behind = rank_of(n, "indices", indices) - n.op.place(n.call)
        places = places.unsqueeze(*range(1, behind + 1)) if behind else places
    hot = indices.unsqueeze(int(n.axis)).equals(places)
    return {"output": b.where(hot, computed(n.moved("on_value")), computed(n.moved("off_value")))}


@lowers(InvertPermutation, repeatable=True)
def invert_permutation(n: Node) -> dict[str, Expr]:
    """Known now where the permutation is, since an order of axes must be; else numbers written at their places."""
    b, known = n.builder, n.constant("x")
    if known is not None and known.size <= _SMALL:
        return {"y": b.constant(np.argsort(known), n.x.dtype)}
    x = wide(n.x)
    numbers = up_to(b, x.size(0))
    return {"y": b.op(std.ScatterND, x, from_front(x).unsqueeze(1), numbers)}


_SMALL = 64


@lowers(TensorScatterUpdate, repeatable=True)
def tensor_scatter_update(n: Node) -> dict[str, Expr]:
    """A ScatterND."""
    return {"output": n.builder.op(std.ScatterND, n.moved("tensor"), _places(n), n.moved("updates"))}


@lowers(TensorScatterAdd, TensorScatterSub, repeatable=True)
def tensor_scatter_add(n: Node) -> dict[str, Expr]:
    """A ScatterND that adds."""
    updates = computed(n.moved("updates"))
    updates = -updates if n.op is TensorScatterSub else updates
    return {"output": added(n, "indices", computed(n.moved("tensor")), updates)}


def added(n: Node, indices: str, tensor: Expr, updates: Expr) -> Expr:
    """A tensor with updates added at the places that an operand names; before opset 16 as rows."""
    b = n.builder
    if b.opset >= 16:
        return b.op(std.ScatterND, tensor, from_front(wide(getattr(n, indices))), updates, reduction="add")
    shape = tensor.sizes()
    values, places, rows = numbered_rows(n, indices, updates, shape, before=16)
    return tensor + reshape_to(add_rows(values, places, rows), shape)


@lowers(TensorScatterMax, TensorScatterMin, repeatable=True)
def tensor_scatter_extreme(n: Node) -> dict[str, Expr]:
    """A ScatterND that keeps the larger or smaller; before opset 18 as rows."""
    b, largest = n.builder, n.op is TensorScatterMax
    tensor, updates = computed(n.moved("tensor")), computed(n.moved("updates"))
    name = "max" if largest else "min"
    if b.opset >= 18:
        return {"output": b.op(std.ScatterND, tensor, _places(n), updates, reduction=name)}
    shape = tensor.sizes()
    values, places, segments = numbered_rows(n, "indices", updates, shape, before=18)
    depth = n.call.sizes["D"]
    assert isinstance(depth, int)
    extreme = extreme_rows(n, "updates", values, places, segments, std.ReduceMax if largest else std.ReduceMin)
    rows = flatten_rows(tensor, depth)
    changed = rows.maximum(extreme) if largest else rows.minimum(extreme)
    return {"output": reshape_to(changed, shape)}
