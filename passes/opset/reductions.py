"""Reductions: since 18 their axes are an input, before they are an attribute (ReduceSum changed in 13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph.emit import Expr
from lstm_lower.passes.opset.registry import Site, before

# What a reduction over no axes at all leaves of the operator: it is applied to each element.
_ELEMENTWISE: dict[str, Callable[[Expr], Expr]] = {
    "ReduceL1": lambda x: x.builder.op("Abs", x),
    "ReduceL2": lambda x: x.builder.op("Abs", x),
    "ReduceLogSum": lambda x: x.builder.op("Log", x),
    "ReduceLogSumExp": lambda x: x.builder.op("Identity", x),
    "ReduceMax": lambda x: x.builder.op("Identity", x),
    "ReduceMean": lambda x: x.builder.op("Identity", x),
    "ReduceMin": lambda x: x.builder.op("Identity", x),
    "ReduceProd": lambda x: x.builder.op("Identity", x),
    "ReduceSumSquare": lambda x: x * x,
}


@before(20, "ReduceMax", "ReduceMin")
def reduce_bool(site: Site) -> Sequence[Expr] | None:
    """The largest bool is the largest of 0 and 1."""
    if site.known_dtype() != ir.DataType.BOOL:
        return None
    numbers = site.input(0).cast(ir.DataType.UINT8)
    axes = site.input(1) if site.has(1) else None
    return [site.builder.op(site.node.op_type, numbers, axes, **site.attributes()).cast(ir.DataType.BOOL)]


@before(18, *_ELEMENTWISE)
def reduce_axes(site: Site) -> Sequence[Expr] | None:
    """Constant axes become an attribute; computed ones stay an input of a ReduceSum where it says the same."""
    noop = bool(site.attribute("noop_with_empty_axes", 0))
    axes = site.constant(1)
    if site.has(1) and axes is None:
        return _over_computed_axes(site)
    if axes is None or axes.size == 0:
        if noop:
            return [_ELEMENTWISE[site.node.op_type](site.input(0))]
    else:
        site.set("axes", [int(axis) for axis in axes.reshape(-1)])
    site.drop("noop_with_empty_axes")
    site.set_inputs(site.input(0))
    return None


def _over_computed_axes(site: Site) -> Sequence[Expr]:
    op, x, axes = site.builder.op, site.input(0), site.input(1)
    attributes = site.attributes()

    def total(values: Expr) -> Expr:
        return op("ReduceSum", values, axes, **attributes)

    match site.node.op_type:
        case "ReduceL1":
            return [total(op("Abs", x))]
        case "ReduceL2":
            return [op("Sqrt", total(x * x))]
        case "ReduceSumSquare":
            return [total(x * x)]
        case "ReduceLogSum":
            return [op("Log", total(x))]
        case "ReduceMean":
            ones = op("ConstantOfShape", op("Shape", x), value=_one(site.dtype()))
            return [total(x) / total(ones)]
    raise site.refusal("axes", f"a constant below opset 18 (the model is moved to {site.target})", "a computed value")


def _one(dtype: ir.DataType) -> ir.TensorProtocol:
    return ir.tensor([1], dtype=dtype)
