"""Lowering of onnxruntime-training's recurrent layers: a Scan over the cell's formula for each direction.

Formulas: ONNX's LSTM and GRU. The gradients read the saved gates and states. Unlike onnxruntime's kernel that of the
LSTM lets gradients flow through the peepholes into the cell states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat, sigmoid, tanh
from lstm_lower.ops.ort_recurrent import GRUGrad, GRUTraining, LSTMGrad, LSTMTraining
from lstm_lower.passes.decompositions.recurrent import stacked
from lstm_lower.passes.formulas.cudnn_cells import gates_and_last
from lstm_lower.passes.formulas.lstm_step import LSTMStep, Peephole, lstm_step, lstm_step_grad
from lstm_lower.passes.rules.registry import Node, lowers

_GATES = "iofc"


# The places of their peephole weights.
_PEEPHOLES = "iof"


_STATES = ("initial_h", "initial_c")


# From new states and the rows of sequences to new states and the rows of results.
Body = Callable[[Sequence[Expr], Sequence[Expr]], tuple[list[Expr], list[Expr]]]


@dataclasses.dataclass(frozen=True)
class _Direction:
    """One direction of a node.

    Attributes:
        n: the node.
        builder: where nodes go.
        index: which one.
    """

    n: Node
    builder: Builder
    index: int

    @property
    def backwards(self) -> bool:
        """Whether it walks from the last step to the first."""
        return bool(self.index) or self.n.direction == "reverse"

    def part(self, name: str) -> Expr | None:
        """The part for this direction of an operand that has directions in front; `None` where it is left out."""
        return None if self.n.value(name) is None else _entry(self.n.operand(name), self.index, 0)

    def given(self, name: str) -> Expr:
        """The same of an operand that is always there."""
        found = self.part(name)
        assert found is not None
        return found

    def sequence(self, name: str) -> Expr | None:
        """The same of a sequence `[T, D, B, .]`, whose directions stand second."""
        return None if self.n.value(name) is None else _entry(self.n.operand(name), self.index, 1)

    def saved(self, name: str) -> Expr:
        """The same of a sequence that is always there."""
        found = self.sequence(name)
        assert found is not None
        return found

    def state(self, name: str) -> Expr:
        """A state `[B, H]`: zeros where it is left out."""
        found = self.part(name)
        b, sizes = self.builder, [self.n.size("B"), self.n.size("H")]
        return b.fill(0, sizes, self.n.X.dtype) if found is None else found

    def biases(self, gates: int) -> list[Expr]:
        """The input side's and the recurrent side's, zeros where they are left out."""
        found = self.part("B")
        if found is None:
            found = self.builder.fill(0, [2 * gates * self.n.hidden_size], self.n.X.dtype)
        return found.split(2, axis=0)

    def before(self, first: Expr, sequence: Expr) -> Expr:
        """A sequence of states a step before, in the direction of the walk."""
        if self.backwards:
            return concat([sequence.slice(1, END, axis=0), first.unsqueeze(0)], 0)
        return concat([first.unsqueeze(0), sequence.slice(0, -1, axis=0)], 0)

    def incoming(self, name: str) -> Expr:
        """The gradient of a sequence of states, zeros where nothing flows."""
        found = self.sequence(name)
        return self.builder.zeros_like(self.saved("all_hidden")) if found is None else found

    def walk(self, body: Body, states: list[Expr], inputs: list[Expr], *, gradient: bool = False):  # type: ignore[no-untyped-def]
        """A Scan in the direction of the walk, or of its gradient."""
        return self.builder.scan(body, states=states, inputs=inputs, reverse=self.backwards != gradient)


def _entry(stacked: Expr, index: int, axis: int) -> Expr:
    return stacked.slice(index, index + 1, axis=axis).squeeze(axis)


def _directions(n: Node, b: Builder, *functions: type[std.Unary]) -> list[_Direction]:
    """The directions of a node.

    Raises:
        UnsupportedOpError: the node asks for what onnxruntime-training has no layers for.
    """
    count = 2 if n.direction == "bidirectional" else 1
    defaults = [function.op_type.lower() for function in functions] * count
    if n.activations and [name.lower() for name in n.activations] != defaults:
        raise n.unsupported("activations", ", ".join(function.op_type for function in functions), n.activations)
    for name, plain in (("clip", 0.0), ("layout", 0), ("input_forget", 0)):
        if n.get(name, plain) != plain:
            raise n.unsupported(f"attribute {name}", f"{plain} or no value", n.get(name, plain))
    if n.value("sequence_lens") is not None:
        raise n.unsupported("sequence_lens", "no lengths, as onnxruntime-training takes none", "lengths")
    return [_Direction(n, b, index) for index in range(count)]


@lowers(LSTMTraining)
def lstm_training(n: Node, b: Builder) -> list[Expr]:
    """ONNX's own operator where the saved values are not asked for."""
    directions = _directions(n, b, std.Sigmoid, std.Tanh, std.Tanh)
    if n.standard_rnn and not n.used("all_cell") and not n.used("iofc"):
        operands = [n.get(name, None) for name in ("X", "W", "R", "B", "sequence_lens", *_STATES, "P")]
        return b.ops(std.LSTM, *operands, outputs=3, hidden_size=n.hidden_size, direction=n.direction)
    results = []
    for d in directions:
        recurrence, peephole = d.given("R"), _peephole(d.part("P"))
        bias, recurrent_bias = d.biases(4)
        gates = n.X @ d.given("W").mT + (bias + recurrent_bias)

        def body(
            states: Sequence[Expr],
            inputs: Sequence[Expr],
            recurrence: Expr = recurrence,
            peephole: Peephole | None = peephole,
        ) -> tuple[list[Expr], list[Expr]]:
            (h, c), (gx,) = states, inputs
            s = lstm_step(gx + h @ recurrence.mT, c, peephole, cell_clip=0, units=n.hidden_size, order=_GATES)
            return [s.h, s.cs], [s.h, s.cs, concat([s.i, s.o, s.f, s.ci], -1)]

        final, sequences = d.walk(body, [d.state(name) for name in _STATES], [gates])
        results.append((*sequences, *final))
    hidden, cell, iofc, final_hidden, final_cell = zip(*results, strict=True)
    saved = [stacked(part, 1) for part in (hidden, cell, iofc)]
    return [saved[0], stacked(final_hidden, 0), stacked(final_cell, 0), *saved[1:]]


def _peephole(weights: Expr | None) -> Peephole | None:
    return None if weights is None else Peephole(**dict(zip(_PEEPHOLES, weights.split(3, axis=0), strict=True)))


@lowers(LSTMGrad)
def lstm_grad(n: Node, b: Builder) -> list[Expr]:
    """The gates' gradients step by step, and products with them over all steps."""
    if n.value("P") is None and n.used("dP"):
        raise n.unsupported(
            "P", "the peephole weights, or the LSTMTraining that made iofc in the same graph", "neither"
        )
    results = []
    for d in _directions(n, b, std.Sigmoid, std.Tanh, std.Tanh):
        recurrence = d.given("R")
        peephole = _peephole(d.part("P"))
        cells, cells_before = d.saved("all_cell"), d.before(d.state("initial_c"), d.saved("all_cell"))

        def body(
            states: Sequence[Expr],
            inputs: Sequence[Expr],
            recurrence: Expr = recurrence,
            peephole: Peephole | None = peephole,
        ) -> tuple[list[Expr], list[Expr]]:
            (dh, dc), (gates, c, c_before, dy) = states, inputs
            i, o, f, g = gates.split(4, axis=-1)
            step = LSTMStep(i, c, f, o, g, tanh(c), h=c)
            found = lstm_step_grad(step, c_before, dc, dh + dy, peephole, _GATES)
            return [found.gates @ recurrence, found.cs_prev], [found.gates]

        starts = [d.state("d_final_hidden"), d.state("d_final_cell")]
        inputs = [d.saved("iofc"), cells, cells_before, d.incoming("d_all_hidden")]
        finals, (gates,) = d.walk(body, starts, inputs, gradient=True)
        h_before = d.before(d.state("initial_h"), d.saved("all_hidden"))
        bias = gates.sum([0, 1])
        result = [gates @ d.given("W"), _over_steps(gates, n.X), _over_steps(gates, h_before), concat([bias, bias], 0)]
        if peephole is not None:
            i, o, f, _ = gates.split(4, axis=-1)
            result.append(
                concat([(i * cells_before).sum([0, 1]), (o * cells).sum([0, 1]), (f * cells_before).sum([0, 1])], 0)
            )
        results.append([*result[:4], *finals, *result[4:]])
    dx, *others = zip(*results, strict=True)
    first, *more = dx
    return [sum(more, first), *(stacked(part, 0) for part in others)]


def _over_steps(gates: Expr, rows: Expr) -> Expr:
    """The sum over steps and batch of outer products: `[T, B, G]` and `[T, B, N]` to `[G, N]`."""
    return _flat(gates).mT @ _flat(rows)


def _flat(sequence: Expr) -> Expr:
    return sequence.builder.op(std.Flatten, sequence, axis=2)


@lowers(GRUTraining)
def gru_training(n: Node, b: Builder) -> list[Expr]:
    """ONNX's own operator where the gates are not asked for."""
    directions, after = _directions(n, b, std.Sigmoid, std.Tanh), not n.linear_before_reset
    if n.standard_rnn and not n.used("zrh"):
        operands = [n.get(name, None) for name in ("X", "W", "R", "B", "sequence_lens", "initial_h")]
        names = ("hidden_size", "direction", "linear_before_reset")
        return b.ops(std.GRU, *operands, outputs=2, **{name: getattr(n, name) for name in names})
    results = []
    for d in directions:
        bias, recurrent_bias = d.biases(3)
        (r_zr, r_n), (b_zr, b_n) = gates_and_last(d.given("R"), 3, axis=0), gates_and_last(recurrent_bias, 3, axis=0)

        def body(
            states: Sequence[Expr],
            inputs: Sequence[Expr],
            r_zr: Expr = r_zr,
            r_n: Expr = r_n,
            b_zr: Expr = b_zr,
            b_n: Expr = b_n,
        ) -> tuple[list[Expr], list[Expr]]:
            (h,), (gx,) = states, inputs
            x_zr, x_n = gates_and_last(gx, 3)
            zr = sigmoid(x_zr + h @ r_zr.mT + b_zr)
            z, r = zr.split(2, axis=-1)
            new = tanh(x_n + ((r * h) @ r_n.mT + b_n if after else r * (h @ r_n.mT + b_n)))
            h = new + z * (h - new)
            return [h], [h, concat([zr, new], -1)]

        gates = n.X @ d.given("W").mT + bias
        (final,), (hidden, zrh) = d.walk(body, [d.state("initial_h")], [gates])
        results.append((hidden, zrh, final))
    hidden, zrh, final = zip(*results, strict=True)
    saved = [stacked(part, 1) for part in (hidden, zrh)]
    return [saved[0], stacked(final, 0), saved[1]]


@lowers(GRUGrad)
def gru_grad(n: Node, b: Builder) -> list[Expr]:
    """The gates' gradients step by step, and products with them over all steps."""
    results, after = [], not n.linear_before_reset
    for d in _directions(n, b, std.Sigmoid, std.Tanh):
        r_zr, r_n = gates_and_last(d.given("R"), 3, axis=0)
        _, b_n = gates_and_last(d.biases(3)[1], 3, axis=0)
        h_before = d.before(d.state("initial_h"), d.saved("all_hidden"))

        def body(
            states: Sequence[Expr], inputs: Sequence[Expr], r_zr: Expr = r_zr, r_n: Expr = r_n, b_n: Expr = b_n
        ) -> tuple[list[Expr], list[Expr]]:
            (dh,), (gates, h, dy) = states, inputs
            z, r, new = gates.split(3, axis=-1)
            dh = dh + dy
            d_new = dh * (1 - z) * (1 - new) * (1 + new)
            dz = dh * (h - new) * z * (1 - z)
            # Of what is multiplied by r_n, and of r times it where the gate resets behind the product.
            d_product = d_new if after else d_new * r
            d_reset = d_product @ r_n
            dr = (d_reset * h if after else d_new * (h @ r_n.mT + b_n)) * r * (1 - r)
            d_zr = concat([dz, dr], -1)
            return [dh * z + d_zr @ r_zr + (d_reset * r if after else d_reset)], [d_zr, d_new, d_product]

        inputs = [d.saved("zrh"), h_before, d.incoming("d_all_hidden")]
        (dh0,), (d_zr, d_new, d_product) = d.walk(body, [d.state("d_final_hidden")], inputs, gradient=True)
        gates = concat([d_zr, d_new], -1)
        _, r, _ = d.saved("zrh").split(3, axis=-1)
        d_r = concat([_over_steps(d_zr, h_before), _over_steps(d_product, h_before * r if after else h_before)], 0)
        bias = [part.sum([0, 1]) for part in (gates, d_zr, d_product)]
        results.append((gates @ d.given("W"), _over_steps(gates, n.X), d_r, concat(bias, 0), dh0))
    dx, *others = zip(*results, strict=True)
    first, *more = dx
    return [sum(more, first), *(stacked(part, 0) for part in others)]
