"""Loops in formulas, whose number of iterations may depend on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr

# From the iteration's number and the states as it finds them: what it leaves.
Body = Callable[[Builder, Expr, "list[Expr]"], Sequence[Expr]]


def repeat(builder: Builder, trips: Expr, states: Sequence[Expr], body: Body) -> list[Expr]:
    """A Loop of so many iterations; states keep their shapes.

    Args:
        builder: what emits it.
        trips: the number of iterations, an int64 scalar.
        states: initial states.
        body: one iteration.

    Returns:
        The states in the end.
    """

    def counted(inner: Builder, number: Expr, going: Expr, found: list[Expr]) -> Sequence[Expr]:
        return [inner.op(std.Identity, going), *body(inner, number, found)]

    return _loop(builder, trips, None, states, [state.shape for state in states], counted)


def repeat_while(builder: Builder, condition: Callable[[list[Expr]], Expr], vector: Expr, body: Body) -> Expr:
    """A Loop that goes on as long as a condition holds for a vector, which may grow.

    Args:
        builder: what emits it.
        condition: of the vector, a bool scalar.
        vector: the initial one.
        body: one iteration.
    """

    def checked(inner: Builder, number: Expr, going: Expr, found: list[Expr]) -> Sequence[Expr]:  # noqa: ARG001
        results = list(body(inner, number, found))
        return [condition(results), *results]

    (result,) = _loop(builder, None, condition([vector]), [vector], [[None]], checked)
    return builder.set_shape(result, [None])


def _loop(
    builder: Builder,
    trips: Expr | None,
    condition: Expr | None,
    states: Sequence[Expr],
    shapes: Sequence[Sequence[object] | None],
    body: Callable[[Builder, Expr, Expr, list[Expr]], Sequence[Expr]],
) -> list[Expr]:
    inner = builder.inner("body")
    number = inner.parameter(builder.constant(0, ir.DataType.INT64), "number", ())
    going = inner.parameter(builder.constant(True, ir.DataType.BOOL), "going", ())  # noqa: FBT003
    carried = [inner.parameter(state, "state", shape) for state, shape in zip(states, shapes, strict=True)]  # type: ignore[arg-type]
    results = inner.results(body(inner, number, going, carried))
    graph = inner.graph
    graph.inputs.extend([x.value for x in [number, going, *carried]])
    graph.outputs.extend(results)
    return builder.ops(std.Loop, trips, condition, *states, outputs=len(states), body=graph)
