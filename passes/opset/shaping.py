"""Operators that cut, pad, fill and resize."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.opset.registry import Site, before

_INT64 = ir.DataType.INT64


@before(15, std.Shape)
def shape_bounds(site: Site) -> Sequence[Expr] | None:
    """Some sizes: a slice of all sizes."""
    start, end = site.attribute("start", 0), site.attribute("end", None)
    site.drop("start")
    site.drop("end")
    if start == 0 and end is None:
        return None
    return [site.input(0).sizes().slice(start, END if end is None else end, axis=0)]


@before(14, std.Reshape)
def reshape_allow_zero(site: Site) -> Sequence[Expr] | None:
    """A size 0 means 0 instead of "as before": the result has no elements, so it can be made from its shape."""
    allow_zero = site.attribute("allowzero", 0)
    site.drop("allowzero")
    sizes = site.constant(1)
    if not allow_zero or (sizes is not None and 0 not in sizes):
        return None
    data, target, b = site.input(0), site.input(1), site.builder
    if sizes is not None:
        return [b.fill(0, target, site.dtype())]
    no_zero = b.op(std.Size, b.op(std.NonZero, target)).equals(b.op(std.Size, target))
    return b.branch(
        no_zero,
        lambda then: [then.op(std.Reshape, data, target)],
        lambda otherwise: [otherwise.fill(0, target, site.dtype())],
    )


@before(18, std.Split)
def split_count(site: Site) -> Sequence[Expr] | None:
    """Parts of which only the last may be smaller, their sizes written out where they are not equal."""
    count = site.attribute("num_outputs", None)
    site.drop("num_outputs")
    if count is None or site.has(1):
        return None
    x = site.input(0)
    axis = site.attribute("axis", 0)
    shape = x.shape
    size = None if shape is None else shape[axis]
    if isinstance(size, int):
        if size % count == 0:
            return None
        part = -(-size // count)
        last = size - part * (count - 1)
        if last < 0:
            raise site.refusal("num_outputs", f"a count that divides size {size} into parts", count)
        sizes = site.builder.ints(*[part] * (count - 1), last)
    else:
        total = length(x, axis)
        parts = (total + (count - 1)) / count
        repeated = site.builder.op(std.Expand, parts, site.builder.ints(count - 1)) if count > 1 else None
        rest = total - parts * (count - 1)
        sizes = rest if repeated is None else site.builder.concat([repeated, rest], axis=0)
    site.set_inputs(x, sizes)
    return None


def length(x: Expr, axis: int) -> Expr:
    """The size along an axis that may be counted from the end, as an int64 tensor of shape [1]."""
    return x.sizes().take(x.builder.ints(axis))


@before(18, std.Pad)
def pad_axes(site: Site) -> None:
    """Pads of some axes: those of the other axes are 0."""
    if not site.has(3):
        return
    x, pads, b = site.input(0), site.input(1), site.builder
    known_axes, known_pads = site.constant(3), site.constant(1)
    if known_axes is not None and known_pads is not None and x.shape is not None:
        full = np.zeros((2, len(x.shape)), np.int64)
        full[:, known_axes.reshape(-1)] = known_pads.reshape(2, -1)
        everywhere = b.ints(*full.reshape(-1).tolist())
    else:
        axes = site.input(3).cast(_INT64)
        rank = x.sizes().sizes() if x.shape is None else b.ints(len(x.shape))
        axes = b.where(axes < 0, axes + rank, axes)
        zeros = b.fill(0, rank + rank, _INT64)
        everywhere = b.op(std.ScatterElements, zeros, b.concat([axes, axes + rank], axis=0), pads, axis=0)
    site.set_inputs(x, everywhere, site.input(2) if site.has(2) else None)


@before(19, std.Pad)
def pad_wrapped(site: Site) -> Sequence[Expr] | None:
    """Mode "wrap": along each axis, what negative pads leave is repeated, as onnxruntime has it."""
    if site.attribute("mode", "constant") != "wrap":
        return None
    result, pads, b = site.input(0), site.input(1), site.builder
    known = site.constant(3) if site.has(3) else np.arange(site.rank())
    if known is None:
        raise site.refusal(
            "axes", f"a constant for mode wrap below opset 19 (the model is moved to {site.target})", "no constant"
        )
    for position, axis in enumerate(int(axis) for axis in known.reshape(-1)):
        begin, end = (pads.take(index) for index in (position, position + known.size))
        size = result.sizes().take(axis)
        first = (-begin).maximum(0)
        left = size - (-end).maximum(0) - first
        places = b.op(std.Range, -begin.maximum(0), left + end.maximum(0), b.constant(1, _INT64))
        result = result.take(places % left + first, axis=axis)
    return [result]


@before(18, std.Resize)
def resize_axes(site: Site) -> None:
    """Scales, sizes and regions of some axes: the other axes keep their size."""
    if site.attribute("axes", None) is None:
        return
    x, b, rank = site.input(0), site.builder, site.rank()
    axes = [axis % rank for axis in site.attribute("axes")]
    region, scales, sizes = (site.input(index) if site.has(index) else None for index in (1, 2, 3))
    if site.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize" and region is not None:
        everything = b.constant([0] * rank + [1] * rank, site.dtype(1))
        both = b.ints(*axes, *[axis + rank for axis in axes])
        region = b.op(std.ScatterElements, everything, both, region, axis=0)
    else:
        region = None
    if scales is not None and scales.shape != (0,):
        ones = b.constant([1] * rank, ir.DataType.FLOAT)
        scales = b.op(std.ScatterElements, ones, b.ints(*axes), scales, axis=0)
    if sizes is not None:
        sizes = b.op(std.ScatterElements, x.sizes(), b.ints(*axes), sizes, axis=0)
    site.drop("axes")
    site.set_inputs(x, region, scales, sizes)


@before(19, std.Resize)
def resize_symmetric(site: Site) -> None:
    """A coordinate mode of 19."""
    if site.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric":
        raise site.too_new("coordinate_transformation_mode half_pixel_symmetric", 19)


@before(14, std.Identity)
@before(16, std.Identity)
def identity(site: Site) -> Sequence[Expr] | None:
    """A sequence or an optional: the readers of the copy read the original."""
    wrapped = isinstance(site.node.inputs[0] and site.node.inputs[0].type, ir.SequenceType | ir.OptionalType)
    return [site.input(0)] if wrapped and not site.node.outputs[0].is_graph_output() else None


@before(14, std.Trilu)
def triangle(site: Site) -> Sequence[Expr]:
    """Row `r` of the upper triangle holds the columns from `r + k`, of the lower one those up to it."""
    x, b = site.input(0), site.builder
    shape = x.sizes()
    rows, columns = (up_to(b, shape.take(axis)) for axis in (-2, -1))
    diagonal = rows.unsqueeze(1)
    if site.has(1):
        # Any tensor of one element will do for k.
        diagonal = diagonal + site.input(1).reshape(1)
    columns = columns.unsqueeze(0)
    outside = columns < diagonal if site.attribute("upper", 1) else columns > diagonal
    if site.dtype() == ir.DataType.BOOL:
        # onnxruntime has learned to choose between bools only lately.
        return [~outside & x]
    return [b.op(std.Where, outside, b.constant(0, site.dtype()), x)]
