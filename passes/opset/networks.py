"""Layers: normalization, recurrent layers, pooling, sampling, quantization, spectra, optional values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.decompositions.recurrent import with_time_first
from lstm_lower.passes.opset.registry import Site, before, since
from lstm_lower.passes.rewriting import values_of

_D = ir.DataType


@before(15, std.BatchNormalization)
def batch_normalization_types(site: Site) -> None:
    """Since 15 the scale may have a type of its own."""
    if site.dtype(1) != site.dtype(0):
        raise site.refusal("scale", f"the type of X in opset {site.target}", site.dtype(1).name.lower())


@before(14, std.BatchNormalization)
def batch_normalization(site: Site) -> Sequence[Expr | None] | None:
    """With the statistics of the batch, by the operator's formulas; the old training form computes others."""
    if site.dtype(3) != site.dtype(0):
        raise site.refusal("input_mean", f"the type of X in opset {site.target}", site.dtype(3).name.lower())
    if not site.attribute("training_mode", 0):
        return None
    return _formula(site)


@since(14, std.BatchNormalization)
def batch_normalization_mode(site: Site) -> Sequence[Expr | None] | None:
    """More outputs than Y were what asked for training; those of the batch alone the newer form does not have."""
    if len(site.node.outputs) == 1:
        return None
    if any(value.uses() or value.is_graph_output() for value in site.node.outputs[3:]):
        return _formula(site)
    inputs = [site.input(index) for index in range(5)]
    trains = any(value.name for value in site.node.outputs[1:])
    attributes = {**site.attributes(), "training_mode": int(trains)}
    results = site.builder.ops(std.BatchNormalization, *inputs, outputs=3 if trains else 1, **attributes)
    return [*results, *[None] * (len(site.node.outputs) - len(results))]


@before(17, std.LayerNormalization)
def layer_normalization(site: Site) -> Sequence[Expr | None] | None:
    """In its formula scale and bias broadcast; onnx's function of older operators asks for all elements."""
    return None if site.input(0).shape is None else _formula(site)


def _formula(site: Site) -> Sequence[Expr | None] | None:
    """What the node's decomposition makes."""
    view = site.operator.of(site.node, site.builder.facts)
    rule = decomposes.of(site.operator)
    made = None if view is None or rule is None else rule(view, site.builder)
    values = [] if made is None else values_of(made)[: len(site.node.outputs)]
    return [None if value is None else site.builder.wrap(value) for value in values] or None


@before(18, std.GroupNormalization)
@since(21, std.GroupNormalization)
def group_normalization(site: Site) -> Sequence[Expr]:
    """The form of 18, with scale and bias per group: an InstanceNormalization over the groups."""
    x, b = site.input(0), site.builder
    grouped = x.reshape(0, site.attribute("num_groups"), -1)
    epsilon = site.attribute("epsilon", 1e-5)
    normal = b.op(std.InstanceNormalization, grouped, site.input(1), site.input(2), epsilon=epsilon)
    return [b.op(std.Reshape, normal, x.sizes())]


@before(14, std.GRU, std.LSTM, std.RNN)
def recurrent_layout(site: Site) -> Sequence[Expr | None] | None:
    """Batch before time: axes are exchanged around the layer."""
    view = site.operator.of(site.node, site.builder.facts)
    if isinstance(view, std.Recurrent) and view.layout != 0:
        return with_time_first(view, site.builder)
    site.drop("layout")
    return None


@before(18, std.LpPool)
@before(19, std.AveragePool)
def pooling_dilations(site: Site) -> None:
    """Windows without gaps are the only ones of older forms."""
    dilations = site.attribute("dilations", None)
    if dilations is not None and all(dilation == 1 for dilation in dilations):
        site.drop("dilations")


@before(20, std.GridSample)
def grid_sample_modes(site: Site) -> None:
    """The older names of the modes; images only."""
    if site.rank() != 4:
        raise site.refusal("X", f"rank 4 in opset {site.target}", f"rank {site.rank()}")
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = site.attribute("mode", "linear")
    site.set("mode", names.get(mode, mode))


@since(20, std.GridSample)
def grid_sample_new_modes(site: Site) -> None:
    """The newer names of the modes."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = site.attribute("mode", "bilinear")
    site.set("mode", names.get(mode, mode))


@before(20, std.AffineGrid)
def affine_grid(site: Site) -> None:
    """The function body of onnx squeezes the batch away where it is 1, and then fails."""
    shape = site.input(0).shape
    if shape is None or shape[0] == 1 or not isinstance(shape[0], int):
        batch = "an unknown one" if shape is None else shape[0]
        raise site.refusal("theta", f"a known batch other than 1 to be written in opset {site.target}", batch)


@before(16, std.RoiAlign)
def roi_align_pixels(site: Site) -> None:
    """The older form never shifted by half a pixel."""
    mode = site.attribute("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise site.too_new(f"coordinate_transformation_mode {mode}", 16)
    site.drop("coordinate_transformation_mode")


@since(16, std.RoiAlign)
def roi_align_old_pixels(site: Site) -> None:
    """What the older form did has to be said now."""
    site.set("coordinate_transformation_mode", "output_half_pixel")


@before(20, std.DFT)
def dft_axis(site: Site) -> None:
    """The axis as an attribute."""
    axis = site.constant(2)
    if site.has(2) and axis is None:
        raise site.refusal(
            "axis", f"a constant below opset 20 (the model is moved to {site.target})", "a computed value"
        )
    site.set("axis", -2 if axis is None else int(axis.reshape(-1)[0]))
    site.set_inputs(site.input(0), site.input(1) if site.has(1) else None)


@since(20, std.DFT)
def dft_axis_input(site: Site) -> None:
    """The axis as an input."""
    axis = site.builder.constant(site.attribute("axis", 1), _D.INT64)
    site.drop("axis")
    site.set_inputs(site.input(0), site.input(1) if site.has(1) else None, axis)


@before(19, std.QuantizeLinear)
def quantize_saturation(site: Site) -> None:
    """Saturation speaks of 8-bit floats only."""
    if not site.has(2) or not site.dtype(2).name.startswith("FLOAT8"):
        site.drop("saturate")


@before(21, std.QuantizeLinear)
def quantize_type(site: Site) -> None:
    """The result's type follows from the zero point."""
    dtype = _D(site.attribute("output_dtype", 0))
    if dtype == _D.UNDEFINED:
        return
    site.drop("output_dtype")
    if not site.has(2) and dtype != _D.UINT8:
        zeros = site.builder.fill(0, site.input(1).sizes(), dtype)
        site.set_inputs(site.input(0), site.input(1), zeros)


@before(23, std.QuantizeLinear)
def quantize_precision(site: Site) -> None:
    """The precision of the division is that of the scale, when both operands share it."""
    if _D(site.attribute("precision", 0)) == site.dtype(1) == site.dtype(0):
        site.drop("precision")


@before(23, std.DequantizeLinear)
def dequantize_type(site: Site) -> None:
    """The result's type is the scale's."""
    if _D(site.attribute("output_dtype", 0)) == site.dtype(1):
        site.drop("output_dtype")


@before(18, std.OptionalHasElement)
def has_element(site: Site) -> Sequence[Expr] | None:
    """Nothing holds no element, and what is not optional does."""
    if site.has(0) and _is_optional(site):
        return None
    return [site.builder.constant(site.has(0), _D.BOOL)]


@before(18, std.OptionalGetElement)
def get_element(site: Site) -> Sequence[Expr] | None:
    """The element of what is not optional is itself."""
    return None if _is_optional(site) else [site.input(0)]


def _is_optional(site: Site) -> bool:
    value = site.node.inputs[0]
    if value is None or value.type is None:
        raise site.refusal("input", "a known type", "none")
    return isinstance(value.type, ir.OptionalType)
