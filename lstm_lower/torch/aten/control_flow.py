"""Control flow: branches, loops, and regions with a mode of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, detached
from lstm_lower.torch.aten.registry import AtenCall, translates
from lstm_lower.torch.aten.tracing import traces

aten = torch.ops.aten
higher_order = torch.ops.higher_order
Graph = torch.fx.GraphModule

# Checks, which are taken to hold.
CHECKS = {
    aten._assert_async.msg,
    aten._assert_scalar.default,
    aten._assert_tensor_metadata.default,
    aten._assert_tensor_metadata.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
    torch._check,
}


@traces(torch._assert, torch._assert_async)
def _passed(*_args: Any, **_options: Any) -> None:
    """Such a check in the module's code."""


@translates(higher_order.cond)
def _cond(n: AtenCall, condition: Any, then: Graph, otherwise: Graph, operands: Sequence[Any] = ()) -> Sequence[Expr]:
    if isinstance(condition, bool):
        return n.translation.graph(then if condition else otherwise, operands, n.b)
    condition = condition.cast(ir.DataType.BOOL)
    condition = condition if condition.shape == () else condition.reshape()

    def branch(graph: Graph) -> Callable[[Builder], Sequence[Expr]]:
        return lambda b: _typed(n, b, n.translation.graph(graph, operands, b))

    return n.b.branch(condition, branch(then), branch(otherwise))


def _typed(n: AtenCall, b: Builder, results: Sequence[Any]) -> list[Expr]:
    """What a body returns, in the dtypes that the trace states, as values that belong to it."""
    return [
        b.wrap(x.cast(dtype).value) if isinstance(x, Expr) else b.constant(x, dtype)
        for x, dtype in zip(results, (each or ir.DataType.INT64 for each in n.dtypes), strict=True)
    ]


@translates(higher_order.scan)
def _scan(
    n: AtenCall, body: Graph, states: Sequence[Expr], xs: Sequence[Expr], additional: Sequence[Any] = ()
) -> Sequence[Expr]:
    def step(carried: list[Expr], parts: list[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        b = (carried or parts)[0].builder
        results = _typed(n, b, n.translation.graph(body, [*carried, *parts, *additional], b))
        return results[: len(carried)], results[len(carried) :]

    dtypes = n.dtypes
    first = [x.cast(dtype) for x, dtype in zip(states, dtypes, strict=False) if dtype is not None]
    last, stacked = n.b.scan(step, states=first, inputs=xs)
    return [*last, *stacked]


@translates(higher_order.while_loop)
def _while_loop(
    n: AtenCall, condition: Graph, body: Graph, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> Sequence[Expr]:
    b = n.b
    first = [
        x if isinstance(x, Expr) else n.scalar(x, dtype or ir.DataType.INT64)
        for x, dtype in zip(carried, n.dtypes, strict=True)
    ]

    def goes_on(values: Sequence[Expr], inside: Builder) -> Expr:
        (result,) = n.translation.graph(condition, [*values, *additional], inside)
        result = result if isinstance(result, Expr) else inside.constant(result, ir.DataType.BOOL)
        return result if result.shape == () else result.reshape()

    inner = b.inner("body")
    number = inner.parameter(b.constant(0), "number", ())
    before = inner.parameter(b.constant(value=True, dtype=ir.DataType.BOOL), "before", ())
    values = [inner.parameter(x, "carried", _kept(n, place)) for place, x in enumerate(first)]
    results = _typed(n, inner, n.translation.graph(body, [*values, *additional], inner))
    again = goes_on(results, inner)
    inner.graph.inputs.extend([x.value for x in (number, before, *values)])
    inner.graph.outputs.extend(inner.results([inner.wrap(again.value), *results]))
    return b.ops(std.Loop, None, goes_on(first, b), *first, outputs=len(first), body=inner.graph)


def _kept(n: AtenCall, place: int) -> list[Any]:
    """The shape that a loop carries on."""
    return [n.translation.sizes.dim(size) for size in getattr(n.results[place], "shape", ())]


@translates(higher_order.wrap_with_set_grad_enabled)
def _with_gradients(n: AtenCall, enabled: bool, graph: Graph, *operands: Any) -> Sequence[Any]:
    results = n.translation.graph(graph, operands, n.b)
    return results if enabled else [detached(x) if isinstance(x, Expr) else x for x in results]


@translates(higher_order.wrap_with_autocast)
def _with_autocast(
    n: AtenCall, device: Any, dtype: Any, enabled: Any, cached: Any, graph: Graph, *operands: Any
) -> Any:
    return n.translation.graph(graph, operands, n.b)


@translates(aten.detach.default, aten.lift_fresh_copy.default)
def _stopped(n: AtenCall, x: Expr) -> Expr:
    return detached(x)


@translates(aten._local_scalar_dense.default, aten.item.default)
def _item(n: AtenCall, x: Expr) -> Expr:
    """A number of a tensor's only element, which bears no gradient."""
    kind = (
        ir.DataType.BOOL
        if x.dtype == ir.DataType.BOOL
        else ir.DataType.INT64
        if x.dtype.is_integer()
        else ir.DataType.DOUBLE
    )
    return detached(x.cast(kind).reshape()) if kind == ir.DataType.DOUBLE else x.cast(kind).reshape()
