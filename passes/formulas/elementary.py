"""Elementary functions and sums that lose no digits."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, tanh

# Constants of the scaled exponential linear unit (Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


def sum_of_squares(x: Expr) -> Expr:
    """The sum over all elements, a scalar, even where the rank is open.

    Rows first, and then what they come to: onnxruntime adds up all elements one after another, and loses 6e-5 of the
    squares of a matrix of two million.
    """
    squares = x * x
    rows = squares if x.shape is None or len(x.shape) < 2 else squares.sum(len(x.shape) - 1)
    return x.builder.op(std.ReduceSum, rows, keepdims=0)


def log1p_of(x: Expr) -> Expr:
    """log(1 + x).

    What rounding does to u = 1 + x is undone by the factor x / (u - 1), in which u - 1 is exact. Source: Higham,
    Accuracy and Stability of Numerical Algorithms, 1.14.1, for log(1 + x) / x.
    """
    b = x.builder
    u = 1 + x
    shift = u - 1
    lost = shift.equals(0)
    # Equal where 1 + x is exact, and for an infinite x, whose factor would be no number.
    factor = b.where(shift.equals(x), x.like(1), x / b.where(lost, 1, shift))
    return b.where(lost, x, u.log() * factor)


def log1p_of_fraction(x: Expr) -> Expr:
    """log(1 + x) of 0 to 1, where what rounding takes from u = 1 + x can be added instead: (x - (u - 1)) / u.

    It takes half of the nodes of `log1p_of`.
    """
    u = x + 1
    return u.log() + (x - (u - 1)) / u


def expm1_of(x: Expr) -> Expr:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), in which nothing cancels."""
    return tanh(x * 0.5) * (x.exp() + 1)
