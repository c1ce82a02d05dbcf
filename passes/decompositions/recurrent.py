"""ONNX's own recurrent layers as Scans over their cells.

Formulas: ONNX's operator documentation. Sequences shorter than T are walked along to the end of the longest one, and
what follows from steps beyond their own end is left out behind the loop: the loop holds nothing but the cell, and so
does the loop of its gradient. Where states could grow without bound meanwhile, they are held in the loop instead.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat, sigmoid, tanh
from lstm_lower.graph.standard.networks import Activation
from lstm_lower.passes.formulas.cudnn_cells import all_full, gates_and_last, running_steps
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.formulas.lstm_step import Peephole, clip
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rewriting import decomposes

_FUNCTIONS: dict[str, Callable[[Expr, Activation], Expr]] = {
    "affine": lambda x, f: x * f.alpha + f.beta,
    "elu": lambda x, f: x.builder.op(std.Elu, x, alpha=f.alpha),
    "hardsigmoid": lambda x, f: x.builder.op(std.HardSigmoid, x, alpha=f.alpha, beta=f.beta),
    "leakyrelu": lambda x, f: x.builder.op(std.LeakyRelu, x, alpha=f.alpha),
    "relu": lambda x, _: x.builder.op(std.Relu, x),
    "scaledtanh": lambda x, f: tanh(x * f.beta) * f.alpha,
    "sigmoid": lambda x, _: sigmoid(x),
    "softplus": lambda x, _: x.builder.op(std.Softplus, x),
    "softsign": lambda x, _: x.builder.op(std.Softsign, x),
    "tanh": lambda x, _: tanh(x),
    # The operator ThresholdedRelu is 0 at alpha itself, where this is alpha.
    "thresholdedrelu": lambda x, f: x.builder.where(x < f.alpha, 0, x),
}


# How Y and the final states are turned where the batch stands first.
_BATCH_FIRST = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))


@dataclasses.dataclass(frozen=True)
class Direction:
    """The weights of one direction, and its functions.

    Attributes:
        W: `[G*H, I]`.
        R: `[G*H, H]`.
        biases: of the input side and of the recurrent side, `[G*H]` each, or `None`.
        peephole: `[H]` each, or `None`.
        functions: the activations, in the operator's order.
        clip: the bound of what they are applied to.
    """

    W: Expr
    R: Expr
    biases: Sequence[Expr] | None
    peephole: Peephole | None
    functions: Sequence[Activation]
    clip: float | None

    def biased(self, product: Expr, *sides: int) -> Expr:
        """A product with the biases of sides: the input side (0), the recurrent side (1)."""
        if self.biases is None:
            return product
        first, *others = [self.biases[side] for side in sides]
        return product + sum(others, first)

    def activation(self, index: int, x: Expr) -> Expr:
        """One of the activations, of what is clipped."""
        function = self.functions[index]
        return _FUNCTIONS[function.name](x if self.clip is None else clip(x, self.clip), function)


class RecurrentCell(abc.ABC):
    """One step of one direction.

    Attributes:
        d: the direction's weights and functions.
    """

    def __init__(self, direction: Direction) -> None:
        self.d = direction

    def input_side(self, x: Expr) -> Expr:
        """Input side of the gates, x W' with all that does not depend on h; for all steps at once."""
        return self.d.biased(x @ self.d.W.mT, 0, 1)

    @abc.abstractmethod
    def step(self, gx: Expr, states: Sequence[Expr]) -> list[Expr]:
        """New states from the input side of the gates and the previous states, h first."""


class LSTM(RecurrentCell):
    """Gates i, o, f, c."""

    def __init__(self, direction: Direction, *, input_forget: bool) -> None:
        super().__init__(direction)
        self.input_forget = input_forget

    def step(self, gx: Expr, states: Sequence[Expr]) -> list[Expr]:
        """`c' = f c + i g`, `h' = o h(c')`."""
        (h, c), d, peephole = states, self.d, self.d.peephole
        i, o, f, g = (gx + h @ d.R.mT).split(4, axis=-1)
        i = d.activation(0, i + c * peephole.i if peephole else i)
        f = 1 - i if self.input_forget else d.activation(0, f + c * peephole.f if peephole else f)
        c = f * c + i * d.activation(1, g)
        o = d.activation(0, o + c * peephole.o if peephole else o)
        return [o * d.activation(2, c), c]


class GRU(RecurrentCell):
    """Gates z, r, h; z and r stay side by side."""

    def step(self, gx: Expr, states: Sequence[Expr]) -> list[Expr]:
        """`n = g(gx_n + (r h) R_n')`, `h' = (1 - z) n + z h`."""
        (h,), (x_zr, x_n) = states, gates_and_last(gx, 3)
        r_zr, r_n = gates_and_last(self.d.R, 3, axis=0)
        z, r = self.d.activation(0, x_zr + h @ r_zr.mT).split(2, axis=-1)
        return _mixed(z, self.d.activation(1, x_n + (r * h) @ r_n.mT), h)


class LinearBeforeResetGRU(RecurrentCell):
    """The GRU that resets after the product."""

    def input_side(self, x: Expr) -> Expr:
        """Only its own bias: that of the recurrent side is reset too."""
        return self.d.biased(x @ self.d.W.mT, 0)

    def step(self, gx: Expr, states: Sequence[Expr]) -> list[Expr]:
        """`n = g(gx_n + r gh_n)`, `h' = (1 - z) n + z h`."""
        (h,) = states
        gh = self.d.biased(h @ self.d.R.mT, 1)
        (x_zr, x_n), (h_zr, h_n) = gates_and_last(gx, 3), gates_and_last(gh, 3)
        z, r = self.d.activation(0, x_zr + h_zr).split(2, axis=-1)
        return _mixed(z, self.d.activation(1, x_n + r * h_n), h)


class RNN(RecurrentCell):
    """One gate, whose activation is h."""

    def step(self, gx: Expr, states: Sequence[Expr]) -> list[Expr]:
        """`h' = f(gx + h R')`."""
        return [self.d.activation(0, gx + states[0] @ self.d.R.mT)]


@decomposes(std.LSTM)
def lstm(view: std.LSTM, b: Builder) -> list[Expr]:
    """Y, Y_h, Y_c."""
    return _layer(view, b, lambda d: LSTM(d, input_forget=bool(view.input_forget)), view.peepholes, view.initial_c)


@decomposes(std.GRU)
def gru(view: std.GRU, b: Builder) -> list[Expr]:
    """Y, Y_h."""
    return _layer(view, b, LinearBeforeResetGRU if view.linear_before_reset else GRU)


@decomposes(std.RNN)
def rnn(view: std.RNN, b: Builder) -> list[Expr]:
    """Y, Y_h."""
    return _layer(view, b, RNN)


def _layer(
    view: std.Recurrent,
    b: Builder,
    cell_of: Callable[[Direction], RecurrentCell],
    peepholes: ir.Value | None = None,
    initial_c: ir.Value | None = None,
) -> list[Expr]:
    """All directions: Y `[T, D, B, H]` and the final states `[D, B, H]`."""
    backwards, dtype = view.backwards, b.wrap(view.x).dtype

    def wide(value: ir.Value) -> Expr:
        """An operand; halves are computed in float32."""
        return widened(b.wrap(value))

    def rows(stacked: Expr) -> list[Expr]:
        """Weights and states of each direction."""
        return [row.squeeze(0) for row in (stacked.split(2, axis=0, size=1) if len(backwards) == 2 else [stacked])]

    def time_first(value: ir.Value) -> Expr:
        expr = wide(value)
        # Where a branch makes it, its rank may be known to nobody but the operator.
        expr = b.set_shape(expr, [None] * 3) if expr.shape is None else expr
        return expr.transpose(1, 0, 2) if view.layout else expr

    x = time_first(view.x)
    weights, recurrences = rows(wide(view.w)), rows(wide(view.r))
    nothing: list[list[Expr] | None] = [None] * len(backwards)
    biases = nothing if view.bias is None else [row.split(2, axis=0) for row in rows(wide(view.bias))]
    peephole = nothing if peepholes is None else [row.split(3, axis=0) for row in rows(wide(peepholes))]
    zeros = b.fill(0, [x.size(1), recurrences[0].size(1)], x.dtype)
    initial = [
        [zeros] * len(backwards) if state is None else rows(time_first(state))
        for state in ([view.initial_h, initial_c] if isinstance(view, std.LSTM) else [view.initial_h])
    ]
    sequences = _Sequences.of(view, b, x)
    results = []
    for index, functions in enumerate(view.activations):
        weight = peephole[index]
        direction = Direction(
            weights[index],
            recurrences[index],
            biases[index],
            # They come as i, o, f.
            Peephole(weight[0], weight[2], weight[1]) if weight else None,
            functions,
            view.clip,
        )
        states = [state[index] for state in initial]
        results.append(sequences.run(cell_of(direction), states, backwards=backwards[index]))
    y, *finals = zip(*results, strict=True)
    joined = [stacked(y, 1), *(stacked(final, 0) for final in finals)]
    if view.layout:
        joined = [each.transpose(*order) for each, order in zip(joined, _BATCH_FIRST, strict=False)]
    return [result.cast(dtype) for result in joined]


def with_time_first(view: std.Recurrent, b: Builder) -> list[Expr | None]:
    """The same layer on sequences whose first axis is time, axes exchanged around it; of what is read alone."""
    node = view.node
    operands = [None if value is None else b.wrap(value) for value in node.inputs]
    # X, initial_h and initial_c.
    for index in (0, 5, 6):
        if index < len(operands) and (batch_first := operands[index]) is not None:
            operands[index] = batch_first.transpose(1, 0, 2)
    attributes = {name: attribute.value for name, attribute in node.attributes.items() if name != "layout"}
    outputs = b.ops(type(view), *operands, outputs=len(node.outputs), **attributes)
    return [
        output.transpose(*order) if value.uses() or value.is_graph_output() else None
        for output, order, value in zip(outputs, _BATCH_FIRST, node.outputs, strict=False)
    ]


@dataclasses.dataclass(frozen=True)
class _Sequences:
    """The sequences that cells are run over.

    Attributes:
        x: `[T, B, I]`; zero beyond the end of each sequence, where it may hold anything.
        lengths: `[B]` int64, or `None` when all sequences are full.
        running: `[T, B, 1]`: t < length; or `None`.
    """

    x: Expr
    lengths: Expr | None
    running: Expr | None

    @classmethod
    def of(cls, view: std.Recurrent, b: Builder, x: Expr) -> _Sequences:
        """The sequences of a node."""
        shape = x.shape
        if view.lengths is None or (shape is not None and all_full(view.lengths, shape[0], b.facts)):
            return cls(x, None, None)
        lengths = b.wrap(view.lengths)
        running = running_steps(lengths, x.size(0))
        return cls(b.where(running, x, 0), lengths.cast(ir.DataType.INT64), running)

    def run(self, cell: RecurrentCell, initial: list[Expr], *, backwards: bool) -> list[Expr]:
        """One direction: y `[T, B, H]` and the final states `[B, H]`."""
        b, lengths, running = self.x.builder, self.lengths, self.running
        # A sequence that ends early is turned round by itself.
        turned = backwards and lengths is not None
        held = [] if running is None or all(f.is_bounded for f in cell.d.functions) else [running]

        def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
            gx, *runs = inputs
            new = cell.step(gx, states)
            for run in runs:
                new = [b.where(run, state, old) for state, old in zip(new, states, strict=True)]
            return new, new

        gates = cell.input_side(self._turned(self.x) if turned else self.x)
        final, (y, *others) = b.scan(body, states=initial, inputs=[gates, *held], reverse=backwards and not turned)
        if lengths is None or running is None:
            return [y, *final]
        if not held:
            final = [self._last(sequence) for sequence in (y, *others)]
        # ONNX does not say how a sequence of no steps ends; in onnxruntime with zeros.
        some = (lengths > 0).unsqueeze(1)
        y = b.where(running, y, 0)
        return [self._turned(y) if turned else y, *(b.where(some, state, 0) for state in final)]

    def _turned(self, sequence: Expr) -> Expr:
        """Each sequence from its own end to its start, what lies beyond left there."""
        return sequence.builder.op(std.ReverseSequence, sequence, self.lengths, time_axis=0, batch_axis=1)

    def _last(self, sequence: Expr) -> Expr:
        """The last step `[B, H]` of each sequence; any for one of no steps."""
        b, lengths = sequence.builder, self.lengths
        assert lengths is not None
        places = concat([(lengths - 1).unsqueeze(1), up_to(b, lengths.size(0)).unsqueeze(1)], 1)
        return b.op(std.GatherND, sequence, places)


def stacked(parts: Sequence[Expr], axis: int) -> Expr:
    """Joins expressions along a new axis."""
    return concat([part.unsqueeze(axis) for part in parts], axis)


def _mixed(z: Expr, n: Expr, h: Expr) -> list[Expr]:
    return [n + z * (h - n)]
