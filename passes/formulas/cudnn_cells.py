"""The cells of the cuDNN ops, each formula once: for single steps `[B, .]` and for whole sequences `[T, B, .]` alike.

A cell turns the gates' input side `gx = x W' + b` and recurrent side `gh = h R'` (plus its own bias where the two sides
do not simply add up) into activations, the activations and the previous states into new states, and the gradients of
the new states into those of the gates. `closed` replaces activations at padded steps so that the same formulas keep
the states and yield zero gradients there.

Formulas: cuDNN's `cudnnRNNMode_t`; the GRU resets after the product. Derivatives of a gate's tanh are `(1-y)*(1+y)`,
which do not cancel near saturation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat, sigmoid, tanh
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.sizes import divided, up_to


def running_steps(lengths: Expr, steps: int | Expr) -> Expr:
    """`[T, B, 1]`: t < length.

    At run time, lengths beyond T count as T and negative ones as 0.

    Args:
        lengths: `[B]` int32.
        steps: T.
    """
    b = lengths.builder
    if isinstance(steps, int):
        times = b.constant(list(range(steps)), ir.DataType.INT32)
    else:
        times = up_to(b, steps.cast(ir.DataType.INT32))
    return times.unsqueeze(1, 2) < lengths.unsqueeze(0, 2)


def all_full(lengths: ir.Value | None, steps: Dim | None, facts: Facts) -> bool:
    """Whether lengths are a constant of T, or filled with one, as Keras does for sequences without a mask."""
    if lengths is None or steps is None:
        return False
    constant = facts.constant(lengths)
    return bool((constant == steps).all()) if constant is not None else filled_with(lengths, facts) == steps


def filled_with(value: ir.Value | None, facts: Facts) -> Dim | None:
    """The one entry that an integer tensor is filled with, a number or a size; `None` when unknown."""
    while value is not None:
        number, entries = facts.uniform(value), facts.entries(value)
        if number is not None:
            return int(number)
        if entries and all(entry == entries[0] for entry in entries):
            return entries[0]
        view = facts.maker(value)
        value = view.operand(0) if isinstance(view, std.Moving | std.Identity | std.Cast) else None
    return None


X = TypeVar("X")


class CellState(NamedTuple):
    """States, or their gradients: h `[., N]` (on the inner side of a projection), and c `[., N]` of an LSTM."""

    h: Expr
    c: Expr | None


class CellStep(NamedTuple):
    """Values of the forward step for its gradient: activations and states; `None` where the cell reads none."""

    acts: Sequence[Expr]
    h_prev: Expr | None
    c_prev: Expr | None
    c: Expr | None


class CellStepGrad(NamedTuple):
    """Gradients of a step.

    Attributes:
        gates: of the recurrent side of the gates, and of the input side but for `last`.
        last: of the last gate's input side, where it differs from the recurrent side's; else `None`.
        h: of the previous h, past the gates; `None` for zero.
        c: of the previous c.
    """

    gates: Expr
    last: Expr | None
    h: Expr | None
    c: Expr | None


class CudnnCell(Protocol):
    """The computation of a mode.

    Attributes:
        has_cell: whether there is a state c besides h.
        one_bias: whether the two sides of the gates only ever appear as their sum.
        keeps_h: whether closed activations keep h too (else the caller does).
        reads_h: whether the gradient reads the previous h.
    """

    has_cell: bool
    one_bias: bool
    keeps_h: bool
    reads_h: bool

    def activations(self, gx: Expr, gh: Expr) -> list[Expr]:
        """The gates' activations."""

    def advance(self, acts: Sequence[Expr], state: CellState) -> CellState:
        """The new states."""

    def closed(self, acts: Sequence[Expr], run: Expr) -> list[Expr]:
        """Activations that keep the state where `run` is false."""

    def gradient(self, step: CellStep, grad: CellState) -> CellStepGrad:
        """Derivative of a step from the gradients of its new states."""


def given(value: X | None) -> X:
    """A state that this cell is always given."""
    assert value is not None
    return value


def _where(run: Expr, value: Expr, other: float) -> Expr:
    return value.builder.where(run, value, other)


class LSTM:
    """Gates i, f, g (new memory), o: `c' = f c + i g`, `h' = o tanh(c')`."""

    has_cell, one_bias, keeps_h, reads_h = True, True, False, False

    def activations(self, gx: Expr, gh: Expr) -> list[Expr]:
        i, f, g, o = (gx + gh).split(4, axis=-1)
        return [sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)]

    def advance(self, acts: Sequence[Expr], state: CellState) -> CellState:
        i, f, g, o = acts
        c = f * given(state.c) + i * g
        return CellState(o * tanh(c), c)

    def closed(self, acts: Sequence[Expr], run: Expr) -> list[Expr]:
        """Nothing in, nothing forgotten, nothing out."""
        i, f, g, o = acts
        return [_where(run, i, 0), _where(run, f, 1), g, _where(run, o, 0)]

    def gradient(self, step: CellStep, grad: CellState) -> CellStepGrad:
        i, f, g, o = step.acts
        co, dh = tanh(given(step.c)), grad.h
        do = o * (1 - o) * co * dh
        dc = o * (1 - co) * (1 + co) * dh + given(grad.c)
        di = i * (1 - i) * g * dc
        df = f * (1 - f) * given(step.c_prev) * dc
        dg = i * (1 - g) * (1 + g) * dc
        gates = concat([di, df, dg, do], -1)
        return CellStepGrad(gates, None, None, f * dc)


class GRU:
    """Gates r, u, n: `n = tanh(gx_n + r gh_n)`, `h' = (1 - u) n + u h`. r and u stay side by side."""

    has_cell, one_bias, keeps_h, reads_h = False, False, True, True

    def activations(self, gx: Expr, gh: Expr) -> list[Expr]:
        """The gates, and the recurrent side of n, which its gradient needs apart."""
        (x_ru, x_n), (h_ru, h_n) = gates_and_last(gx, 3), gates_and_last(gh, 3)
        ru = sigmoid(x_ru + h_ru)
        r, _ = ru.split(2, axis=-1)
        return [ru, tanh(x_n + r * h_n), h_n]

    def advance(self, acts: Sequence[Expr], state: CellState) -> CellState:
        ru, n, _ = acts
        _, u = ru.split(2, axis=-1)
        return CellState(n + u * (state.h - n), None)

    def closed(self, acts: Sequence[Expr], run: Expr) -> list[Expr]:
        """With u = 1 h stays; of r nothing depends then."""
        ru, n, h_n = acts
        return [_where(run, ru, 1), n, h_n]

    def gradient(self, step: CellStep, grad: CellState) -> CellStepGrad:
        ru, n, h_n = step.acts
        r, u = ru.split(2, axis=-1)
        dh = grad.h
        dn = (1 - u) * (1 - n) * (1 + n) * dh
        du = (given(step.h_prev) - n) * u * (1 - u) * dh
        dr = h_n * r * (1 - r) * dn
        return CellStepGrad(concat([dr, du, r * dn], -1), dn, u * dh, None)


def gates_and_last(side: Expr, count: int, axis: int = -1) -> list[Expr]:
    """One side of `count` gates, or their weights, divided into all gates but the last, and the last."""
    size = side.size(axis)
    last = divided(size, count)
    return side.builder.ops(std.Split, side, side.builder.sizes([size - last, last]), outputs=2, axis=axis)


class Simple:
    """One gate, whose activation, tanh or relu, is h."""

    has_cell, one_bias, keeps_h, reads_h = False, True, False, False

    def __init__(self, *, relu: bool) -> None:
        self.relu = relu

    def activations(self, gx: Expr, gh: Expr) -> list[Expr]:
        """The activation, and beside tanh its derivative, `4 e / (1 + e)^2` with `e = exp(-2 |x|)`.

        `(1-y)*(1+y)` would magnify what y is off by where y is near 1: of onnxruntime's Tanh that is up to five units
        in the last place, and h has no other gate through which gradients could flow.
        """
        pre = gx + gh
        if self.relu:
            return [pre.builder.op(std.Relu, pre)]
        power = (pre.abs() * -2).exp()
        return [tanh(pre), 4 * power / ((1 + power) * (1 + power))]

    def advance(self, acts: Sequence[Expr], state: CellState) -> CellState:  # noqa: ARG002 (h is not carried over)
        return CellState(acts[0], None)

    def closed(self, acts: Sequence[Expr], run: Expr) -> list[Expr]:
        """Where the derivative is 0."""
        return [*acts[:-1], _where(run, acts[-1], 0)]

    def gradient(self, step: CellStep, grad: CellState) -> CellStepGrad:
        last = step.acts[-1]
        slope = (last > 0).cast(last.dtype) if self.relu else last
        return CellStepGrad(slope * grad.h, None, None, None)


def cell_of(mode: str) -> CudnnCell:
    """The cell of an rnn_mode."""
    if mode == "lstm":
        return LSTM()
    return GRU() if mode == "gru" else Simple(relu=mode == "rnn_relu")
