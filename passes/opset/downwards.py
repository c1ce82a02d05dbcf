"""Conversions to older versions of operators, each where a version gained or changed something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr
from lstm_lower.graph.values import stated
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.decompositions.recurrent import with_time_first
from lstm_lower.passes.formulas.indices import within
from lstm_lower.passes.formulas.rows import row_numbers, tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.opset.rewrites import Site, before, since
from lstm_lower.passes.rewriting import values_of

# Operators that got more element types or attributes of arithmetic: through a wider type, or by their formula.


_D = ir.DataType
_HALVES = (_D.FLOAT16, _D.BFLOAT16)


@before(14, std.Add, std.Sub, std.Mul, std.Div)
def small_integers(site: Site) -> Sequence[Expr] | None:
    """8 and 16 bits: int32 holds every result, and Cast keeps the low bits, as the small type would."""
    dtype = site.known_dtype()
    if dtype not in (_D.INT8, _D.INT16, _D.UINT8, _D.UINT16):
        return None
    # The product of two uint16 needs 32 bits of its own.
    wide = _D.INT64 if dtype == _D.UINT16 else _D.INT32
    result = site.builder.op(site.operator, site.input(0).cast(wide), site.input(1).cast(wide))
    return [result.cast(site.dtype())]


@before(14, std.Relu)
def relu_of_integers(site: Site) -> Sequence[Expr] | None:
    """The larger of the number and 0."""
    dtype = site.known_dtype()
    return [site.input(0).maximum(0)] if is_integer(dtype) else None


@before(14, std.CumSum)
def cumulative_sum(site: Site) -> Sequence[Expr] | None:
    """Half precision: summed in float32."""
    if site.known_dtype() not in _HALVES:
        return None
    total = site.builder.op(std.CumSum, site.input(0).cast(_D.FLOAT), site.input(1), **site.attributes())
    return [total.cast(site.dtype())]


@before(26, std.CumProd)
def cumulative_product(site: Site) -> Sequence[Expr]:
    """A loop that carries the product."""
    rank, b = site.rank(), site.builder
    place = site.numbers(1, "axis", 26)[0] % rank
    order = [place, *[other for other in range(rank) if other != place]]
    x = site.input(0).transpose(*order)
    start = b.fill(1, x.sizes().slice(1, rank, axis=0), site.dtype())
    exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))
    # One step more than there are elements: onnxruntime's Scan wants at least one.
    last = [start.unsqueeze(0)]
    x = b.concat([*last, x] if reverse else [x, *last], axis=0)

    def step(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        product = states[0] * inputs[0]
        return [product], [states[0] if exclusive else product]

    _, products = b.scan(step, states=[start], inputs=[x], reverse=reverse)
    kept = products[0].slice(1, END, axis=0) if reverse else products[0].slice(0, -1, axis=0)
    return [kept.transpose(*np.argsort(order).tolist())]


@before(20, std.IsInf)
def is_infinite(site: Site) -> Sequence[Expr] | None:
    """Half precision: float32 holds the same values."""
    if site.known_dtype() not in _HALVES:
        return None
    return [site.builder.op(std.IsInf, site.input(0).cast(_D.FLOAT), **site.attributes())]


@before(20, std.ConstantOfShape)
def bfloat16_constant(site: Site) -> Sequence[Expr] | None:
    """bfloat16: a float32 constant of the same value, cast."""
    value = site.attribute("value", None)
    if value is None or value.dtype != _D.BFLOAT16:
        return None
    number = ir.tensor(value.numpy().astype(np.float32))
    return [site.builder.op(std.ConstantOfShape, site.input(0), value=number).cast(_D.BFLOAT16)]


@before(18, std.BitwiseNot)
def bitwise_not(site: Site) -> Sequence[Expr]:
    """In two's complement -1 - x; without a sign, the largest number - x."""
    dtype = site.dtype()
    ones = -1 if dtype.is_signed() else int(np.iinfo(dtype.numpy()).max)
    return [ones - site.input(0)]


@before(28, std.Mod)
def mod_of_floats(site: Site) -> None:
    """Floor division of floating point numbers is of 28."""
    if site.attribute("fmod", 0) == 0 and site.dtype().is_floating_point():
        raise site.too_new("fmod 0 of floating point numbers", 28)


@before(19, std.Cast, std.CastLike)
@before(24, std.Cast, std.CastLike)
def cast_rounding(site: Site) -> None:
    """Saturation and rounding speak of 8-bit floats only."""
    like = site.operator is std.CastLike
    target = site.dtype(1) if like else _D(site.attribute("to"))
    if target != _D.FLOAT8E8M0:
        site.drop("round_mode")
    if not target.name.startswith("FLOAT8"):
        site.drop("saturate")


@before(15, std.CastLike)
def cast_like(site: Site) -> Sequence[Expr]:
    """A cast to the second input's type."""
    return [site.builder.op(std.Cast, site.input(0), to=int(site.dtype(1)))]


# Layers: normalization, recurrent layers, pooling, sampling, quantization, spectra, optional values.


@before(15, std.BatchNormalization)
def batch_normalization_types(site: Site) -> None:
    """Since 15 the scale may have a type of its own."""
    if site.dtype(1) != site.dtype(0):
        raise site.unsupported("scale", f"the type of X in opset {site.target}", site.dtype(1).name.lower())


@before(14, std.BatchNormalization)
def batch_normalization(site: Site) -> Sequence[Expr | None] | None:
    """With the statistics of the batch, by the operator's formulas; the old training form computes others."""
    if site.dtype(3) != site.dtype(0):
        raise site.unsupported("input_mean", f"the type of X in opset {site.target}", site.dtype(3).name.lower())
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
    """The results of the node's decomposition."""
    view = site.operator.of(site.node, site.builder.facts)
    rule = decomposes.of(site.operator)
    results = None if view is None or rule is None else rule(view, site.builder)
    values = [] if results is None else values_of(results)[: len(site.node.outputs)]
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


# The names that GridSample's modes had before 20, and those that they have since.
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@before(20, std.GridSample)
def grid_sample_modes(site: Site) -> None:
    """The older names of the modes; images only."""
    if site.rank() != 4:
        raise site.unsupported("X", f"rank 4 in opset {site.target}", f"rank {site.rank()}")
    _spell_mode(site, {new: old for old, new in _MODES.items()})


@since(20, std.GridSample)
def grid_sample_new_modes(site: Site) -> None:
    """The newer names of the modes."""
    _spell_mode(site, _MODES)


def _spell_mode(site: Site, names: Mapping[str, str]) -> None:
    mode = site.attribute("mode", None)
    if mode in names:
        site.set("mode", names[mode])


@before(20, std.AffineGrid)
def affine_grid(site: Site) -> Sequence[Expr | None] | None:
    """By its formula: the function body of onnx squeezes the batch away where it is 1, and then fails."""
    return _formula(site)


@before(20, std.DFT)
def dft_axis(site: Site) -> None:
    """The axis as an attribute."""
    site.set("axis", site.numbers(2, "axis", 20)[0] if site.has(2) else -2)
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
        raise site.unsupported("input", "a known type", "none")
    return isinstance(value.type, ir.OptionalType)


# Reductions: since 18 their axes are an input, before they are an attribute (ReduceSum changed in 13).


# What a reduction over no axes at all leaves of the operator: it is applied to each element.
_ELEMENTWISE: dict[type[std.Standard], Callable[[Expr], Expr]] = {
    std.ReduceL1: lambda x: x.abs(),
    std.ReduceL2: lambda x: x.abs(),
    std.ReduceLogSum: lambda x: _of_numbers(std.Log, x),
    std.ReduceLogSumExp: lambda x: x.builder.op(std.Identity, x),
    std.ReduceMax: lambda x: x.builder.op(std.Identity, x),
    std.ReduceMean: lambda x: x.builder.op(std.Identity, x),
    std.ReduceMin: lambda x: x.builder.op(std.Identity, x),
    std.ReduceProd: lambda x: x.builder.op(std.Identity, x),
    std.ReduceSumSquare: lambda x: x * x,
}


@before(20, std.ReduceMax, std.ReduceMin)
def reduce_bool(site: Site) -> Sequence[Expr] | None:
    """The largest bool is the largest of 0 and 1."""
    if site.known_dtype() != ir.DataType.BOOL:
        return None
    numbers = site.input(0).cast(ir.DataType.UINT8)
    axes = site.input(1) if site.has(1) else None
    return [site.builder.op(site.operator, numbers, axes, **site.attributes()).cast(ir.DataType.BOOL)]


@before(18, *_ELEMENTWISE)
def reduce_axes(site: Site) -> Sequence[Expr] | None:
    """Constant axes become an attribute; computed ones stay an input of a ReduceSum where it says the same."""
    noop = bool(site.attribute("noop_with_empty_axes", 0))
    axes = site.constant(1)
    if site.has(1) and axes is None:
        return _over_computed_axes(site)
    if axes is None or axes.size == 0:
        if noop:
            return [_ELEMENTWISE[site.operator](site.input(0))]
    else:
        site.set("axes", site.numbers(1, "axes"))
    site.drop("noop_with_empty_axes")
    site.set_inputs(site.input(0))
    return None


def _over_computed_axes(site: Site) -> Sequence[Expr]:
    op, x, axes = site.builder.op, site.input(0), site.input(1)
    attributes = site.attributes()

    def total(values: Expr) -> Expr:
        return op(std.ReduceSum, values, axes, **attributes)

    if site.operator is std.ReduceL1:
        return [total(op(std.Abs, x))]
    if site.operator is std.ReduceL2:
        return [_of_numbers(std.Sqrt, total(x * x))]
    if site.operator is std.ReduceSumSquare:
        return [total(x * x)]
    if site.operator is std.ReduceLogSum:
        return [_of_numbers(std.Log, total(x))]
    if site.operator is std.ReduceMean:
        ones = x.builder.fill(1, x.sizes(), site.dtype())
        # Of nothing onnxruntime gives 0; a division of integers by 0 ends the run.
        return [total(x) / total(ones).maximum(1)]
    raise site.computed("axes", 18)


def _of_numbers(operator: type[std.Standard], x: Expr) -> Expr:
    """An operator for floats alone; of integers the result's whole part, which onnxruntime's reductions give."""
    dtype = x.builder.facts.dtype(x.value)
    if not is_integer(dtype):
        return x.builder.op(operator, x)
    return x.builder.op(operator, x.cast(ir.DataType.DOUBLE)).cast(dtype)


# Scattering that reduces: updates of the same place accumulate, before the operators could say so (16, 18).


_INT64 = ir.DataType.INT64
_COMBINE: dict[str, type[std.Standard]] = {"add": std.Add, "mul": std.Mul, "max": std.Max, "min": std.Min}


@before(18, std.ScatterND, std.ScatterElements)
def scatter_extremes(site: Site) -> Sequence[Expr] | None:
    """Reductions max and min are of 18."""
    return _written_out(site) if site.attribute("reduction", "none") in ("max", "min") else None


@before(16, std.ScatterND, std.ScatterElements)
def scatter_sums(site: Site) -> Sequence[Expr] | None:
    """Reductions add and mul are of 16."""
    return _written_out(site) if site.attribute("reduction", "none") != "none" else None


def _written_out(site: Site) -> Sequence[Expr]:
    reduction = site.attribute("reduction")
    if reduction not in _COMBINE:
        raise site.unsupported("attribute reduction", f"one of none, {', '.join(_COMBINE)}", reduction)
    if site.dtype() in (ir.DataType.BOOL, ir.DataType.STRING):
        raise site.unsupported(
            "data", f"numbers for reduction {reduction} in opset {site.target}", site.dtype().name.lower()
        )
    data, indices, updates = (site.input(index) for index in range(3))
    if site.operator is std.ScatterND:
        shape = indices.shape
        depth = shape[-1] if shape else None
        if not isinstance(depth, int):
            raise site.unsupported("indices", f"a known last size to be written in opset {site.target}", depth)
        rank = len(shape) if shape is not None else 0
    else:
        indices = _coordinates(site, indices)
        depth, rank = site.rank(), site.rank() + 1
    if rank != 2:
        rest = tail_of(data, depth)
        updates = site.builder.op(std.Reshape, updates, site.builder.concat([site.builder.ints(-1), rest], axis=0))
        indices = indices.reshape(-1, depth)
    return [_scatter(site.builder, data, indices, updates, depth, _COMBINE[reduction])]


def _coordinates(site: Site, indices: Expr) -> Expr:
    """The full index [..., rank] in `data` of every element of ScatterElements' `indices`."""
    b, rank = site.builder, site.rank()
    axis = site.attribute("axis", 0) % rank
    sizes = indices.sizes()
    parts = []
    for place in range(rank):
        if place == axis:
            part = indices.cast(_INT64)
        else:
            size = sizes.take(place)
            steps = up_to(b, size)
            others = [other for other in range(rank) if other != place]
            part = b.op(std.Expand, steps.unsqueeze(*others), sizes)
        parts.append(part.unsqueeze(rank))
    return b.concat(parts, axis=rank)


def _scatter(b: Builder, data: Expr, indices: Expr, updates: Expr, depth: int, combine: type[std.Standard]) -> Expr:
    """Applies the updates in rounds: in round `r` the r-th update of every place, so that no place comes twice.

    The order of the updates of a place is kept, hence results are those of a sequential loop, bit for bit. Sorting
    finds the updates of a place; TopK puts the earlier of equal elements first. Only the places that are updated are
    carried through the rounds.

    Args:
        b: where nodes go.
        data: [d1, ..., dr].
        indices: [N, depth], int64, may be negative.
        updates: [N, *data.shape[depth:]].
        depth: leading axes of `data` that are indexed.
        combine: operator that combines the old value with an update.
    """
    sizes = [data.size(axis) for axis in range(depth)]
    # Places are numbered over all axes: one beyond the end of an axis would be another one, and is refused.
    columns = [within(indices.slice(axis, axis + 1, axis=1), size) for axis, size in enumerate(sizes)]
    indices, place = b.concat(columns, axis=1), row_numbers(columns, sizes).reshape(-1)
    count = place.sizes()

    by_place = _Groups(b, place, count)
    one_of_each = indices.take(by_place.order.take(by_place.starts))
    position = up_to(b, count)
    # Every sorted element's number of its group, and how many of the group stand before it.
    group = b.op(std.CumSum, by_place.is_start, b.constant(0, _INT64)) - 1
    round_ = position - by_place.starts.take(group)

    by_round = _Groups(b, round_, count)
    group = group.take(by_round.order)
    updates = updates.take(by_place.order.take(by_round.order))
    bounds = b.concat([by_round.starts, count], axis=0)
    rounds = by_round.starts.sizes().squeeze(0)
    values = b.op(std.GatherND, data, one_of_each)

    inner = b.inner("round")
    index = _parameter(inner, "index", _INT64, ())
    condition = _parameter(inner, "condition", ir.DataType.BOOL, ())
    carried = _parameter(inner, "values", data.dtype, None)
    first, last = (bounds.take(number).unsqueeze(0) for number in (index, index + 1))
    now = group.slice(first, last, axis=0)
    new = inner.op(combine, carried.take(now), updates.slice(first, last, axis=0))
    after = inner.op(std.ScatterND, carried, now.unsqueeze(1), new)
    body = inner.graph
    body.inputs.extend([index.value, condition.value, carried.value])
    body.outputs.extend([inner.op(std.Identity, condition).value, after.value])
    values = b.op(std.Loop, rounds, b.constant(value=True, dtype=ir.DataType.BOOL), values, body=body)
    return b.op(std.ScatterND, data, one_of_each, values)


class _Groups:
    """Equal elements of a vector of numbers from 0 on, brought together by a stable sort.

    Attributes:
        order: [N], where each sorted element came from.
        is_start: [N], 1 at the first sorted element of each group, else 0.
        starts: [groups], positions of these.
    """

    def __init__(self, b: Builder, values: Expr, count: Expr) -> None:
        ordered, self.order = b.ops(std.TopK, values, count, outputs=2, axis=0, largest=0, sorted=1)
        ordered.value.type = self.order.value.type = ir.TensorType(_INT64)
        # Without elements the last of the shifted ones is cut off by broadcasting.
        before_ = b.concat([b.ints(-1), ordered.slice(0, -1, axis=0)], axis=0)
        differs = ~ordered.equals(before_)
        self.is_start = differs.cast(_INT64)
        self.starts = b.op(std.NonZero, differs).squeeze(0)


def _parameter(builder: Builder, role: str, dtype: ir.DataType, shape: tuple[int, ...] | None) -> Expr:
    value = ir.Value(
        name=builder.names.fresh(f"{builder.scope}/{role}"),
        type=ir.TensorType(dtype),
        shape=None if shape is None else stated(shape),
    )
    return Expr(builder, value)


# Operators that cut, pad, fill and resize.


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
            raise site.unsupported("num_outputs", f"a count that divides size {size} into parts", count)
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
    axes = site.numbers(3, "axes of mode wrap", 19) if site.has(3) else list(range(site.rank()))
    for position, axis in enumerate(axes):
        begin, end = (pads.take(index) for index in (position, position + len(axes)))
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
    read = site.node.outputs[0].uses() and not site.node.outputs[0].is_graph_output()
    return [site.input(0)] if wrapped and read else None


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
