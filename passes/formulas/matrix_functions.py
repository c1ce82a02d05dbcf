"""Functions of matrices of any size, the last two axes of an array of known rank."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.passes.formulas.sizes import up_to

# The series of exp to this power leaves nothing out in float64 where the norm is at most 1/2.
_POWERS, _BLOCK = 15, 4
# More squarings than these are for numbers whose exp is none.
_SQUARINGS = 64


def exponential(matrix: Expr) -> Expr:
    """The exponential of a matrix, by its series for a matrix that is halved until it is small, and squared as often.

    Source: Moler and Van Loan, Nineteen dubious ways to compute the exponential of a matrix, 2003, method 3.
    """
    b, rank = matrix.builder, len(matrix.shape or ())
    norm = detached(matrix.abs().sum(rank - 2, keepdims=True).reduce(std.ReduceMax, rank - 1))
    large = norm > 0.5
    doublings = b.op(std.Ceil, b.where(large, norm, 1).log() / math.log(2)) + 1
    count = b.where(large, doublings.minimum(_SQUARINGS), 0)
    small = matrix * 2**-count
    numbers = up_to(b, matrix.size(-1))
    unit = numbers.unsqueeze(1).equals(numbers).cast(matrix.dtype)
    powers = [unit, small]
    while len(powers) <= _BLOCK:
        powers.append(powers[-1] @ small)

    def block(start: int) -> Expr:
        terms = [powers[k] * (1 / math.factorial(start + k)) for k in range(_BLOCK)]
        return functools.reduce(lambda total, term: total + term, terms)

    starts = range(_POWERS + 1 - _BLOCK, -1, -_BLOCK)
    series = functools.reduce(lambda total, start: total @ powers[_BLOCK] + block(start), starts[1:], block(starts[0]))
    most = count.reshape(-1).reduce(std.ReduceMax, 0).maximum(1).cast(ir.DataType.INT64)

    def square(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (x,), (k,) = carried, inputs
        return [b.where(k.cast(count.dtype) < count, x @ x, x)], []

    (result,), _ = b.scan(square, states=[series], inputs=[up_to(b, most)])
    return result
