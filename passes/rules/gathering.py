"""Lowering of the ops that look elements up by their places, or change them there."""

from __future__ import annotations

import numpy as np

from lstm_lower.dims import agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, ORDERED, RawOp, count_axis, number, shape_of
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import up_to, wide
from lstm_lower.passes.rules.filling import expanded
from lstm_lower.passes.rules.moving import permuted
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


def _indices(n: Node) -> Expr:
    """Indices of a dtype that ONNX has; TensorFlow's kernels for processors refuse negative ones."""
    x: Expr = n.indices
    return from_front(x if x.dtype == INT64 or x.dtype.name == "INT32" else x.cast(INT64))


def _places(n: Node) -> Expr:
    return from_front(wide(n.indices))


class Gather(RawOp):
    """Rows of `params`, by number."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if shape_of(call, "params") == ():
            raise call.error("params", "rank 1 or more", "rank 0")


@lowers(Gather, repeatable=True)
def gather(n: Node, _: Builder) -> Expr:
    """A Gather of rows."""
    return n.moved("params").take(_indices(n))


class GatherV2(RawOp):
    """Slices of `params` along an axis, by number; `batch_dims` leading axes of both belong together."""

    static_operands = ("axis",)

    @classmethod
    def places(cls, call: Call) -> tuple[int, int] | None:
        """The axis and the number of leading axes that belong together; `None` where they are not known."""
        shape, indices, axis = shape_of(call, "params"), shape_of(call, "indices"), number(call, "axis")
        if shape is None or indices is None or axis is None:
            return None
        axis = count_axis(call, "axis", axis, len(shape))
        batch, rank = call.attributes["batch_dims"], len(indices)
        if not -rank <= batch <= rank:
            raise call.error("attribute batch_dims", f"-{rank} to {rank}, the rank of indices", f"{batch}")
        batch += rank if batch < 0 else 0
        if batch > axis:
            raise call.error("attribute batch_dims", f"{axis} at most, the axis", f"{batch}")
        if not agree(shape[:batch], indices[:batch]):
            raise call.error("indices", f"a shape that starts with {list(shape[:batch])} (as params)", list(indices))
        return axis, batch

    @classmethod
    def verify(cls, call: Call) -> None:
        """An axis that params has."""
        cls.places(call)


@lowers(GatherV2, repeatable=True)
def gather_v2(n: Node, b: Builder) -> Expr:
    """A Gather; axes that belong together are a GatherND's, for which the axis comes right behind them."""
    x = n.moved("params")
    along = int(n.fixed("axis").reshape(-1)[0])
    if not n.batch_dims:
        return x.take(_indices(n), axis=along)
    rank, ranks = rank_of(n, "params", x), rank_of(n, "indices", n.indices)
    axis, batch = n.op.places(n.call)
    order = [*range(batch), axis, *(other for other in range(batch, rank) if other != axis)]
    places = _places(n).unsqueeze(ranks)
    found = b.op(std.GatherND, permuted(x, order), places, batch_dims=batch)
    # [batch, indices, before the axis, behind it] -> [batch, before the axis, indices, behind it].
    new, before = ranks - batch, axis - batch
    back = [*range(batch), *range(ranks, ranks + before), *range(batch, ranks), *range(ranks + before, rank + new - 1)]
    return permuted(found, back)


class GatherNd(RawOp, indices="*S D", bad_indices_policy=("", "DEFAULT", "ERROR")):
    """Slices of `params` by the place that the last axis of `indices` names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A place has not more numbers than params has axes."""
        shape, depth = shape_of(call, "params"), call.sizes.get("D")
        if shape is not None and isinstance(depth, int) and depth > len(shape):
            raise call.error("indices", f"a last axis of size {len(shape)} at most (params' rank)", f"{depth}")


@lowers(GatherNd, repeatable=True)
def gather_nd(n: Node, b: Builder) -> Expr:
    """A GatherND; places that name nothing mean all of the array."""
    x, indices = n.moved("params"), _places(n)
    if n.call.sizes.get("D") != 0:
        return b.op(std.GatherND, x, indices)
    leading = indices.sizes().slice(0, -1, axis=0)
    return expanded(x, concat([leading, x.sizes()], 0))


class OneHot(RawOp, depth="", on_value="", off_value=""):
    """`on_value` at the place that an index names along a new axis, `off_value` elsewhere."""

    @classmethod
    def place(cls, call: Call) -> int | None:
        """The new axis."""
        shape = shape_of(call, "indices")
        if shape is None:
            return None
        return count_axis(call, "attribute axis", call.attributes["axis"], len(shape) + 1)

    @classmethod
    def verify(cls, call: Call) -> None:
        """An axis that the output has."""
        cls.place(call)


@lowers(OneHot, repeatable=True)
def one_hot(n: Node, b: Builder) -> Expr:
    """Each index compared with all places."""
    indices = wide(n.indices)
    places = up_to(b, wide(n.depth))
    if n.axis != -1:
        behind = rank_of(n, "indices", indices) - n.op.place(n.call)
        places = places.unsqueeze(*range(1, behind + 1))
    hot = indices.unsqueeze(int(n.axis)).equals(places)
    return b.where(hot, computed(n.moved("on_value")), computed(n.moved("off_value")))


class InvertPermutation(RawOp, x="N"):
    """y[x[i]] = i."""


@lowers(InvertPermutation, repeatable=True)
def invert_permutation(n: Node, b: Builder) -> Expr:
    """Known now where the permutation is, since an order of axes must be; else numbers written at their places."""
    known = n.constant("x")
    if known is not None and known.size <= _SMALL:
        return b.constant(np.argsort(known), n.x.dtype)
    x = wide(n.x)
    numbers = up_to(b, x.size(0))
    return b.op(std.ScatterND, x, from_front(x).unsqueeze(1), numbers)


_SMALL = 64


class _TensorScatter(RawOp, abstract=True, bad_indices_policy=("", "DEFAULT", "ERROR"), indices="*I D"):
    """A copy of `tensor`, changed at the places that the last axis of `indices` names."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """An update is as large as the slice that it changes."""
        tensor, indices, updates = (shape_of(call, name) for name in ("tensor", "indices", "updates"))
        depth = call.sizes.get("D")
        if tensor is None or indices is None or updates is None or not isinstance(depth, int):
            return
        if depth > len(tensor):
            raise call.error("indices", f"a last axis of size {len(tensor)} at most (tensor's rank)", f"{depth}")
        if not agree(updates, (*indices[:-1], *tensor[depth:])):
            raise call.error("updates", f"shape {[*indices[:-1], *tensor[depth:]]}", list(updates))


class TensorScatterUpdate(_TensorScatter):
    """The updates replace the elements at the indices."""


@lowers(TensorScatterUpdate, repeatable=True)
def tensor_scatter_update(n: Node, b: Builder) -> Expr:
    """A ScatterND."""
    return b.op(std.ScatterND, n.moved("tensor"), _places(n), n.moved("updates"))


class TensorScatterAdd(_TensorScatter, T=NUMBERS):
    """The updates are added to the elements at the indices."""


class TensorScatterSub(TensorScatterAdd):
    """The updates are subtracted from the elements at the indices."""


@lowers(TensorScatterAdd, TensorScatterSub, repeatable=True)
def tensor_scatter_add(n: Node, b: Builder) -> Expr:
    """A ScatterND that adds."""
    updates = computed(n.moved("updates"))
    updates = -updates if n.op is TensorScatterSub else updates
    return added(n, b, "indices", computed(n.moved("tensor")), updates)


def added(n: Node, b: Builder, indices: str, tensor: Expr, updates: Expr) -> Expr:
    """A tensor with updates added at the places that an operand names."""
    return b.op(std.ScatterND, tensor, from_front(wide(getattr(n, indices))), updates, reduction="add")


class TensorScatterMax(TensorScatterAdd, T=ORDERED):
    """The maximum of the elements at the indices and the updates."""


class TensorScatterMin(TensorScatterMax):
    """The minimum of the elements at the indices and the updates."""


@lowers(TensorScatterMax, TensorScatterMin, repeatable=True)
def tensor_scatter_extreme(n: Node, b: Builder) -> Expr:
    """A ScatterND that keeps the larger or smaller."""
    tensor, updates = computed(n.moved("tensor")), computed(n.moved("updates"))
    reduction = "max" if n.op is TensorScatterMax else "min"
    return b.op(std.ScatterND, tensor, _places(n), updates, reduction=reduction)
