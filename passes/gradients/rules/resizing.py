"""Gradients of operators that sample images anew: linear in the image, and the same along each axis by itself.

What an axis goes through is found by the operator itself, from axes that are known: combs tell the weights of the
places and which these are, the numbers of the places tell which ones are the nearest. So all its modes are right, as
the runtime has them.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.rows import add_rows, reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import Size, at_most, divided, up_to
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates, reshaped_like

# What says how an axis is sampled.
_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)


@differentiates(std.Resize)
def _resize(op: std.Resize, b: Builder, dys: Cotangents) -> Gradients:
    x = b.operand(op)
    if op.rank() is None:
        raise op.unsupported("input 0, for its gradient,", "a known rank", std.undeclared(op.data))
    axes = op.axes or ()
    if op.policy != "stretch" and op.coordinates == "tf_crop_and_resize":
        raise op.unsupported("keep_aspect_ratio_policy of a crop, for the gradient,", "stretch", op.policy)
    if dys.needs(1) or dys.needs(2):
        raise op.unsupported(
            "roi and scales, for the gradient,", "not to depend on what it is taken for", "that they do"
        )
    dx = widened(dys[0])
    for place, axis in enumerate(axes):
        if not _stays(op, b, place, axis):
            sample = _Sampling(op, b, place, axis)
            dx = sample.nearest(dx) if op.mode == "nearest" else sample.weighted(dx)
    return reshaped_like(dx.cast(dys[0].dtype), x)


def _stays(op: std.Resize, b: Builder, place: int, axis: int) -> bool:
    """Whether an axis is surely as it was."""
    if op.coordinates == "tf_crop_and_resize":
        return False
    if op.sizes is not None:
        # The shapes alone do not tell of a scale that several axes have together.
        return op.policy == "stretch" and (b.operand(op).shape or ())[axis] == (b.output(op).shape or ())[axis]
    scales = b.facts.constant(op.scales)
    return scales is not None and float(scales.reshape(-1)[place]) == 1


class _Sampling:
    """How one axis is sampled.

    Attributes:
        axis: the axis.
        size: how many places the operand has there.
    """

    def __init__(self, op: std.Resize, b: Builder, place: int, axis: int) -> None:
        self.op, self.b, self.place, self.axis = op, b, place, axis
        self.size = b.operand(op).size(axis)

    def of(self, rows: Expr) -> Expr:
        """Rows `[N, size]` sampled as the axis is."""
        b, op, at = self.b, self.op, self.place
        if op.policy != "stretch":
            return self._with_others(rows)
        kept = {name: op.node.attributes[name] for name in _ATTRIBUTES if name in op.node.attributes}
        roi = scales = sizes = None
        if op.roi is not None and op.coordinates == "tf_crop_and_resize":
            given, count = b.wrap(op.roi), len(op.axes or ())
            bounds = [given.slice(i, i + 1, axis=0) for i in (at, at + count)]
            whole = [b.constant([value], given.dtype) for value in (0, 1)]
            roi = b.concat([whole[0], bounds[0], whole[1], bounds[1]], 0)
        if op.sizes is not None:
            sizes = b.sizes([rows.size(0), b.wrap(op.sizes).slice(at, at + 1, axis=0)])
        else:
            assert op.scales is not None
            scales = b.concat([b.constant([1], ir.DataType.FLOAT), b.wrap(op.scales).slice(at, at + 1, axis=0)], 0)
        return b.op(std.Resize, rows, roi, *([scales] if sizes is None else [None, sizes]), **kept)

    def weighted(self, dy: Expr) -> Expr:
        """The gradient along the axis, by the few weights that each place of the result has.

        A comb, every so manieth place, meets at most one of the places that go into one of the result: sampled it is
        that one's weight, and sampled in proportion to the places' numbers it tells which place that is.
        """
        b, rank = self.b, len(dy.shape or ())
        apart = self._apart()
        numbers = up_to(b, self.size)
        first = up_to(b, apart).unsqueeze(1)
        step = b.sizes([apart])
        comb = (numbers % step).equals(first).cast(dy.dtype)
        found = self.of(concat([comb, comb * numbers.cast(dy.dtype)], 0))
        weights, products = (found.slice(*ends, axis=0) for ends in ((0, apart), (apart, 2**31 - 1)))
        weighs = ~weights.equals(0)
        about = products / b.where(weighs, weights, 1)
        # Far along, and where weights of one place nearly cancel, the quotient is not exact.
        lead, wide = first.cast(dy.dtype), step.cast(dy.dtype)
        places = (b.op(std.Round, (about - lead) / wide).cast(ir.DataType.INT64) * step + first).maximum(0)
        end = b.sizes([self.size])
        places = b.where(weighs, places.minimum(end - 1), end)
        rows = b.move_axis(dy, self.axis, 0, rank)
        parts = weights.unsqueeze(*range(2, rank + 1)) * rows if rank > 1 else weights * rows
        ids = places.reshape(-1)
        parts = reshape_to(parts, concat([ids.sizes(), tail_of(rows, 1)], 0))
        total = add_rows(parts, ids, self.size)
        return b.move_axis(total, 0, self.axis, rank)

    def _apart(self) -> Size:
        """How many places that follow one another hold all that go into one place of the result."""
        taps = 2 if self.op.mode == "linear" else 4
        if not self.op.attribute("antialias", 0):
            return taps
        if self.op.coordinates == "tf_crop_and_resize":
            return self.size
        # Weights reach further the fewer places are left.
        return at_most(self.size, (divided(self.size, self.b.output(self.op).size(self.axis)) + 1) * taps + 3)

    def nearest(self, dy: Expr) -> Expr:
        """The gradient along the axis, of the places that each place of the result was read from."""
        b, rank = self.b, len(dy.shape or ())
        # Counted from 1: what lies outside is 0.
        numbers = (up_to(b, self.size) + 1).cast(dy.dtype)
        places = self.of(numbers.unsqueeze(0)).cast(ir.DataType.INT64).reshape(-1)
        rows = b.move_axis(dy, self.axis, 0, rank)
        size = b.sizes([self.size])
        total = add_rows(rows, b.where(places > 0, places - 1, size), self.size)
        return b.move_axis(total, 0, self.axis, rank)

    def _with_others(self, rows: Expr) -> Expr:
        """Rows sampled with all other axes, where these tell the scale: along one that keeps its size."""
        b, x, axes = self.b, self.b.operand(self.op), self.op.axes or ()
        rank = self.op.known_rank()
        kept = next((axis for axis in range(rank) if axis not in axes), None)
        if kept is None and self.op.mode != "nearest":
            raise self.op.unsupported("axes of a kept aspect ratio, for the gradient,", "not all of them", "all")
        # Of nearest elements there is one row.
        order = [self.axis] if kept is None else sorted((kept, self.axis))
        turned = order[0] == self.axis
        others = [axis for axis in range(rank) if axis not in order]
        image = rows.squeeze(0) if kept is None else rows.transpose() if turned else rows
        image = image.unsqueeze(*others)
        sizes = [rows.size(0) if i == kept else x.size(i) if i in axes else 1 for i in range(rank)]
        image = b.op(std.Expand, image, b.sizes(sizes))
        made = b.wrap(b.again(self.op.node, [image.value, *self.op.node.inputs[1:]]).outputs[0])
        for axis in others:
            made = made.slice(0, 1, axis=axis)
        made = made.squeeze(*others)
        return made.unsqueeze(0) if kept is None else made.transpose() if turned else made
