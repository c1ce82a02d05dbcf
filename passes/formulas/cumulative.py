"""What is accumulated along an axis, one element after another, in a Scan; ranks are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.sizes import up_to

INT64 = ir.DataType.INT64


def _along(x: Expr, axis: int) -> tuple[Expr, Callable[[Expr], Expr]]:
    """The operand with an axis in front, and what puts it back."""
    order = [axis, *(other for other in range(len(x.shape or ())) if other != axis)]
    return x.transpose(*order), lambda out: out.transpose(*[order.index(place) for place in range(len(order))])


def _sizes_behind(x: Expr) -> list[int | Expr]:
    return [x.size(place) for place in range(1, len(x.shape or ()))]


def running(
    body: Callable[[list[Expr], list[Expr]], tuple[list[Expr], list[Expr]]],
    starts: Sequence[float],
    operands: Sequence[Expr],
    axis: int,
    *,
    reverse: bool = False,
) -> list[Expr]:
    """What a Scan's body puts out along an axis of operands of one shape, of states that begin as numbers."""
    rows, back = zip(*(_along(x, axis) for x in operands), strict=True)
    first = rows[0]
    states = [first.builder.fill(start, _sizes_behind(first), first.dtype) for start in starts]
    _, results = first.builder.scan(body, states=states, inputs=rows, reverse=reverse)
    return [back[0](result) for result in results]


def product(x: Expr, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Expr:
    """Products of all elements up to each one along an axis; an exclusive one is without it, and starts at 1."""

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        total = states[0] * inputs[0]
        return [total], [states[0] if exclusive else total]

    (products,) = running(body, [1], [x], axis, reverse=reverse)
    return products


def log_sum_exp(x: Expr, axis: int) -> Expr:
    """The logarithm of the sum of the exponentials of all elements up to each one, in shares of the largest of them."""
    b = x.builder

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        most, total = carried
        (x,) = inputs
        new = detached(most.maximum(x))
        total = total * (most - new).exp() + (x - new).exp()
        none = total.equals(0)
        logarithm = b.where(none, 1, total).log()
        return [new, total], [b.where(none, -math.inf, new + logarithm)]

    (sums,) = running(body, [float(x.dtype.min), 0], [x], axis)
    return sums


def extreme_place(x: Expr, axis: int, *, largest: bool) -> Expr:
    """Where the largest or smallest element up to each one is: the last of equal ones, and of those that are NaN."""
    along, back = _along(x, axis)
    b = x.builder

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (best, place), (x, number) = carried, inputs
        # Neither is less where one is NaN.
        behind = x < best if largest else x > best
        new = ~behind
        if x.dtype.is_floating_point():
            new = new & (b.op(std.IsNaN, x) | ~b.op(std.IsNaN, best))
        found = b.where(new, number, place)
        return [b.where(new, x, best), found], [found]

    first = along.slice(0, 1, axis=0).squeeze(0)
    numbers = up_to(b, along.size(0))
    _, (places,) = b.scan(body, states=[first, b.fill(0, _sizes_behind(along), INT64)], inputs=[along, numbers])
    return back(places)
