"""What needs a loop over an axis, or a formula that stands elsewhere already, as ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas import elimination, special_functions
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.formulas.special_functions import digamma, expm1_of, lgamma, log1p_of, polygamma
from lstm_lower.passes.training.losses import CTC
from lstm_lower.torch import front_indices
from lstm_lower.torch.matrices import MATRICES
from lstm_lower.torch.nodes import Formula, Traced

INT64 = ir.DataType.INT64


def _along(n: Traced) -> tuple[Expr, Callable[[Expr], Expr]]:
    """The operand with the axis in front, and what puts it back."""
    x, axis = n.operand(0), n.attribute("axis")
    order = [axis, *(other for other in range(len(x.shape or ())) if other != axis)]
    return x.transpose(*order), lambda out: out.transpose(*[order.index(place) for place in range(len(order))])


def _sizes_behind(x: Expr) -> list[int | Expr]:
    return [x.size(place) for place in range(1, len(x.shape or ()))]


def rolling_product(n: Traced) -> list[Expr | None]:
    """Products of all elements up to each one along an axis, in a Scan."""
    along, back = _along(n)
    _, (out,) = n.b.scan(
        lambda carried, inputs: ([carried[0] * inputs[0]], [carried[0] * inputs[0]]),
        states=[n.b.fill(1, _sizes_behind(along), along.dtype)],
        inputs=[along],
    )
    return [back(out)]


def running_place(n: Traced) -> list[Expr | None]:
    """Where the largest element up to each one along an axis is: the last of equal ones, and of those that are NaN."""
    along, back = _along(n)
    b, largest = n.b, bool(n.attribute("largest"))

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
    _, (out,) = b.scan(body, states=[first, b.fill(0, _sizes_behind(along), INT64)], inputs=[along, numbers])
    return [back(out)]


def running_log_sum_exp(n: Traced) -> list[Expr | None]:
    """The logarithm of the sum of the exponentials of all elements up to each one, in shares of the largest of them."""
    along, back = _along(n)
    b = n.b
    least = float(ir.DataType(along.dtype).min)

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        most, total = carried
        (x,) = inputs
        new = detached(most.maximum(x))
        total = total * (most - new).exp() + (x - new).exp()
        none = total.equals(0)
        logarithm = b.where(none, 1, total).log()
        return [new, total], [b.where(none, -math.inf, new + logarithm)]

    sizes = _sizes_behind(along)
    states = [b.fill(least, sizes, along.dtype), b.fill(0, sizes, along.dtype)]
    _, (out,) = b.scan(body, states=states, inputs=[along])
    return [back(out)]


def eliminate(n: Traced) -> list[Expr | None]:
    """Pivots [n, ...], and x of a x = b."""
    right = n.operand(1) if len(n.operands) > 1 else None
    pivots, solved = elimination.eliminate(n.operand(0), right, pivoting=bool(n.attribute("pivoting")))
    return [pivots] if right is None else [pivots, solved]


def cholesky(n: Traced) -> list[Expr | None]:
    """The columns [n, ..., n] of a lower triangle."""
    return [elimination.cholesky(n.operand(0))]


def ctc(n: Traced) -> list[Expr | None]:
    """The loss of `ll.from_torch`'s table."""
    options = {name: n.attribute(name) for name in ("blank", "reduction")}
    loss = CTC(zero_infinity=bool(n.attribute("zero_infinity")), **options)
    return [loss.value(*(n.operand(index) for index in range(4)))]


def _polygamma(n: Traced) -> list[Expr | None]:
    x = n.operand(0)
    return [polygamma(x, n.attribute("order")).cast(x.dtype)]


def _elementwise(function: Callable[[Expr], Expr]) -> Formula:
    def formula(n: Traced) -> list[Expr | None]:
        x = n.operand(0)
        return [function(x).cast(x.dtype)]

    return formula


FORMULAS: dict[str, Formula] = {
    "CTC": ctc,
    "Cholesky": cholesky,
    "Digamma": _elementwise(digamma),
    "Eliminate": eliminate,
    "Erfc": _elementwise(special_functions.erfc),
    "Erfcx": _elementwise(special_functions.erfcx),
    "Erfinv": _elementwise(special_functions.erfinv),
    "ErrorFunction": _elementwise(special_functions.erf),
    "Expm1": _elementwise(expm1_of),
    "GaussianGate": _elementwise(special_functions.gelu),
    "Lgamma": _elementwise(lgamma),
    "Log1p": _elementwise(log1p_of),
    "LogNdtr": _elementwise(special_functions.log_ndtr),
    "Ndtr": _elementwise(special_functions.ndtr),
    "Ndtri": _elementwise(special_functions.ndtri),
    "Polygamma": _polygamma,
    "RollingProduct": rolling_product,
    "RunningLogSumExp": running_log_sum_exp,
    "RunningPlace": running_place,
    **MATRICES,
    **front_indices.FORMULAS,
}
