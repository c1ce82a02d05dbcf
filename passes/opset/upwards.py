"""Conversions to newer versions of operators, each where a version says something in another way.

Before 7 two operands were matched by attributes, before 13 much that is an operand now was an attribute. What these
versions emit is in the form of 13, which the rest of the way begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.opset.attribute_changes import type_of_data
from lstm_lower.passes.opset.downwards import length
from lstm_lower.passes.opset.rewrites import Site, since

_D = ir.DataType


@since(18, std.Split)
def split_into_equal_parts(site: Site) -> None:
    """The number of parts has to be said, or their sizes: onnxruntime refuses a number for an axis of size 0."""
    if site.has(1):
        return
    x, axis, parts = site.input(0), site.attribute("axis", 0), len(site.node.outputs)
    size = None if x.shape is None else x.shape[axis]
    if isinstance(size, int) and size > 0:
        site.set("num_outputs", parts)
    elif size == 0:
        site.set_inputs(x, site.builder.ints(*[0] * parts))
    else:
        site.set_inputs(x, site.builder.op(std.Expand, length(x, axis) / parts, site.builder.ints(parts)))


@since(13, std.Softmax, std.LogSoftmax, std.Hardmax)
def softmax_of_a_matrix(site: Site) -> Sequence[Expr] | None:
    """All axes from one on were taken as one."""
    x, axis = site.input(0), site.attribute("axis", 1)
    shape = x.shape
    if 0 in (shape or ()):
        # Of nothing: a Reshape would take the size of 0 for a copy of the matrix's, which has two.
        return [site.builder.op(std.Identity, x)]
    if axis == -1 or (shape is not None and axis % max(len(shape), 1) == len(shape) - 1):
        site.set("axis", -1)
        return None
    matrix = site.builder.op(std.Flatten, x, axis=axis)
    result = site.builder.op(site.operator, matrix, axis=-1)
    return [site.builder.op(std.Reshape, result, x.sizes())]


@since(12, std.Dropout)
def dropout_ratio(site: Site) -> Sequence[Expr | None] | None:
    """The ratio becomes an input."""
    return _dropout(site, _D.BOOL)


@since(10, std.Dropout)
def dropout_mask(site: Site) -> Sequence[Expr | None] | None:
    """The mask was of the data's type."""
    return _dropout(site, type_of_data(site)) if len(site.node.outputs) > 1 else None


def _dropout(site: Site, dtype: ir.DataType) -> list[Expr | None]:
    """In inference nothing is dropped; the old mask is 0 then, as onnxruntime has it."""
    x, b = site.input(0), site.builder
    y: Expr | None = b.op(std.Dropout, x, b.constant(site.attribute("ratio", 0.5), _D.FLOAT))
    masks = site.node.outputs[1:]
    read = any(mask.uses() or mask.is_graph_output() for mask in masks)
    return [y, *[b.fill(0, x.sizes(), dtype) if read else None for _ in masks]]


@since(11, std.PlainScatter)
def scattered_elements(site: Site) -> Sequence[Expr]:
    """The operator got another name."""
    return [site.builder.op(std.ScatterElements, *map(site.input, range(3)), **site.attributes())]


@since(11, std.Resize)
def resize_by_scales(site: Site) -> Sequence[Expr]:
    """How places are found has to be said: the next below where an axis grows, the next above where it shrinks."""
    x, scales, mode = site.input(0), site.input(1), site.attribute("mode", "nearest")
    if mode != "nearest":
        return [_resized(x, scales, mode, "floor")]
    known = site.constant(1)
    grows, shrinks = (True, True) if known is None else ((known > 1).any(), (known < 1).any())
    if not (grows and shrinks):
        return [_resized(x, scales, mode, "ceil" if shrinks else "floor")]
    larger = _resized(x, scales.maximum(1), mode, "floor")
    return [_resized(larger, scales.minimum(1), mode, "ceil")]


def _resized(x: Expr, scales: Expr, mode: str, nearest: str) -> Expr:
    """In the old forms the places of both ends were the same, scaled: the first is at 0."""
    places = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
    return x.builder.op(std.Resize, x, None, scales, mode=mode, **places)


@since(10, std.Upsample)
def upsample_as_resize(site: Site) -> Sequence[Expr]:
    """The operator got another name; it never made anything smaller."""
    return [_resized(site.input(0), site.input(1), site.attribute("mode", "nearest"), "floor")]


@since(9, std.BatchNormalization)
def batch_normalization_of_channels(site: Site) -> Sequence[Expr] | None:
    """Statistics of each element for itself, not of channels, by their formula."""
    spatial = site.attribute("spatial", 1)
    site.drop("spatial")
    if spatial:
        return None
    if any(value.name for value in site.node.outputs[1:]):
        raise site.unsupported("attribute spatial", "1 where statistics are those of the batch", spatial)
    x, scale, bias, mean, variance = map(site.input, range(5))
    return [(x - mean) / (variance + site.attribute("epsilon", 1e-5)).sqrt() * scale + bias]


_ELEMENTWISE = (std.Add, std.Sub, std.Mul, std.Div, std.Pow, std.And, std.Or, std.Xor, std.Equal, std.Greater, std.Less)


@since(7, *_ELEMENTWISE)
def broadcast_from_an_axis(site: Site) -> None:
    """The second operand's axes were those of the first one from `axis` on."""
    axis = site.attribute("axis", None) if site.attribute("broadcast", 0) else None
    site.drop("broadcast")
    site.drop("axis")
    if axis is None:
        return
    x, other = site.input(0), site.input(1)
    behind = site.rank(0) - axis % site.rank(0) - site.rank(1)
    if behind > 0:
        site.set_inputs(x, other.unsqueeze(*range(site.rank(1), site.rank(1) + behind)))


@since(7, std.Gemm)
def gemm_broadcast(site: Site) -> None:
    """The third operand may always be smaller."""
    site.drop("broadcast")


@since(7, std.PRelu)
def slopes_of_channels(site: Site) -> None:
    """A vector held the slopes of channels, axis 1."""
    x, slope = site.input(0), site.input(1)
    if slope.shape != (1,) and site.rank(1) == 1 and site.rank(0) > 2:
        site.set_inputs(x, slope.unsqueeze(*range(1, site.rank(0) - 1)))


@since(7, std.BatchNormalization, std.Dropout)
def inference_only(site: Site) -> None:
    """An attribute told inference from training, which has no equal.

    Raises:
        UnsupportedOpError: the node trains.
    """
    if not site.attribute("is_test", 0):
        raise site.unsupported("attribute is_test", "1 (the older form of training has no equal)", 0)
    site.drop("is_test")


@since(7, std.GRU, std.LSTM, std.RNN)
def recurrent_outputs(site: Site) -> None:
    """Which outputs there are, their names tell."""
    site.drop("output_sequence")


@since(7, std.Upsample)
def upsample_images(site: Site) -> None:
    """Scales of height and width become those of all axes."""
    scales = [1.0, 1.0, site.attribute("height_scale"), site.attribute("width_scale")]
    site.drop("height_scale")
    site.drop("width_scale")
    site.set("scales", scales)
    if site.attribute("mode", "nearest") == "bilinear":
        site.set("mode", "linear")


@since(6, std.Cast)
def cast_to_a_number(site: Site) -> None:
    """Types had names."""
    site.set("to", int(ir.DataType[str(site.attribute("to")).upper()]))


@since(6, std.Tile)
def tile_repeats(site: Site) -> None:
    """One axis was repeated."""
    x, rank, b = site.input(0), site.rank(), site.builder
    ones = [b.ints(1)] * rank
    ones[site.numbers(2, "axis")[0]] = site.input(1).cast(_D.INT64).reshape(1)
    site.set_inputs(x, b.concat(ones, axis=0))


@since(2, std.Pad)
def pad_names(site: Site) -> None:
    """An attribute got another name."""
    site.set("pads", site.attribute("paddings"))
    site.drop("paddings")


@since(2, std.Split)
def split_attribute(site: Site) -> None:
    """Sizes of parts became an attribute, which they were not only."""
    site.set("axis", site.attribute("axis", 0))
    if site.has(1):
        site.set("split", site.numbers(1, "split"))
        site.set_inputs(site.input(0))


@since(2, std.LpPool, std.GlobalLpPool)
def whole_exponent(site: Site) -> None:
    """The exponent became a whole number."""
    exponent: Any = site.attribute("p", 2)
    if exponent != int(exponent):
        raise site.unsupported("attribute p", "a whole number", exponent)
    site.set("p", int(exponent))
