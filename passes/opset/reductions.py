"""Reductions: since 18 their axes are an input, before they are an attribute (ReduceSum changed in 13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.opset.registry import Site, before

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
        site.set("axes", [int(axis) for axis in axes.reshape(-1)])
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
    raise site.refusal("axes", f"a constant below opset 18 (the model is moved to {site.target})", "a computed value")


def _of_numbers(operator: type[std.Standard], x: Expr) -> Expr:
    """An operator for floats alone; of integers the result's whole part, which onnxruntime's reductions give."""
    dtype = x.builder.facts.dtype(x.value)
    if dtype is None or not dtype.is_integer():
        return x.builder.op(operator, x)
    return x.builder.op(operator, x.cast(ir.DataType.DOUBLE)).cast(dtype)
