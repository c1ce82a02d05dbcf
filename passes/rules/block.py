"""Lowering of the ops of the block family: cells by their formula, sequences as Scans over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Builder, Expr, concat, sigmoid, tanh
from lstm_lower.ops.block import (
    ICFO,
    BlockLSTM,
    BlockLSTMGrad,
    BlockLSTMGradV2,
    BlockLSTMV2,
    GRUBlockCell,
    GRUBlockCellGrad,
    LSTMBlockCell,
    LSTMBlockCellGrad,
)
from lstm_lower.passes.formulas.lstm_step import LSTMStep, Peephole, lstm_step, lstm_step_grad
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.standard_rnn import DirectionWeights, standard_layer

# One step of a loop: states and inputs to new states and outputs.
Body = Callable[[list[Expr], list[Expr]], tuple[list[Expr], list[Expr]]]


class StepWindow:
    """The steps 0 .. seq_len_max-1 of the sequences of a node: cuts inputs to it and pads outputs from it.

    Outside 0..T, which only a run-time seq_len_max can be, it is clamped. When it is known to be T, nothing is cut.
    """

    def __init__(self, n: Node, b: Builder) -> None:
        self._node, self._builder = n, b
        steps, length = n.size("T"), n.constant("seq_len_max")
        self.whole = n.is_size("seq_len_max", "T")
        self._steps = steps
        self.length: int | Expr
        if length is not None:
            self.length = int(length)
        elif self.whole:
            self.length = steps
        else:
            self.length = n.seq_len_max.reshape(1).maximum(0).minimum(b.sizes([steps]))

    def scan(
        self,
        body: Body,
        *,
        states: Sequence[Expr],
        inputs: Sequence[Expr],
        outputs: Sequence[str],
        reverse: bool = False,
    ) -> tuple[list[Expr], list[Expr]]:
        """Emits a Scan over the window.

        Args:
            body: one step, as `Builder.scan` takes it.
            states: initial states; also the final ones of an empty window.
            inputs: sequences, cut to the window.
            outputs: the dimension symbols of each step's outputs.
            reverse: walk from the last step to the first.

        Returns:
            Final states and the outputs of the window's steps.
        """
        n, b = self._node, self._builder
        dtype = inputs[0].dtype

        def run(builder: Builder) -> list[Expr]:
            final, sequences = builder.scan(body, states=states, inputs=inputs, reverse=reverse)
            return [*final, *sequences]

        def nothing(builder: Builder) -> list[Expr]:
            sizes = [[n.size(symbol) for symbol in symbols.split()] for symbols in outputs]
            return [*states, *(builder.fill(0, [0, *step], dtype) for step in sizes)]

        if isinstance(self.length, int):
            results = run(b) if self.length > 0 else nothing(b)
        elif self.whole:
            results = run(b)
        else:
            # onnxruntime refuses a Scan over no steps.
            results = b.branch((self.length > 0).reshape(), run, nothing)
        return results[: len(states)], results[len(states) :]

    def cut(self, sequence: Expr) -> Expr:
        """The first seq_len_max steps of [T, ...]."""
        return sequence if self.whole else sequence.slice(0, self.length, axis=0)

    def shifted(self, first: Expr, sequence: Expr) -> Expr:
        """Each step's previous value [seq_len_max, ...]: `first`, then the sequence without its last step."""
        # Joined first and cut after: the other order would leave one step of a sequence of none.
        joined = concat([first.unsqueeze(0), sequence], 0)
        return joined.slice(0, -1 if self.whole else self.length, axis=0)

    def pad(self, sequence: Expr) -> Expr:
        """Zeros for the steps from seq_len_max on."""
        if self.whole:
            return sequence
        b = sequence.builder
        missing = b.sizes([self._steps]) - b.sizes([self.length])
        pads = b.concat([b.ints(0, 0, 0), missing, b.ints(0, 0)], 0)
        padded = b.op(std.Pad, sequence, pads)
        if sequence.shape is not None:
            steps = self._steps if isinstance(self._steps, int) else None
            return b.set_shape(padded, (steps, *sequence.shape[1:]))
        return padded


def peephole_of(n: Node) -> Peephole | None:
    """The node's peephole weights, or `None` when it does not use them."""
    return Peephole(n.wci, n.wcf, n.wco) if n.use_peephole else None


@lowers(LSTMBlockCell, repeatable=True)
def lstm_block_cell(n: Node, _: Builder) -> list[Expr]:
    """One step from concat(x, h_prev) @ w + b."""
    step = lstm_step(
        concat([n.x, n.h_prev], 1) @ n.w + n.b,
        n.cs_prev,
        peephole_of(n),
        forget_bias=n.forget_bias,
        cell_clip=n.cell_clip,
        units=n.size("H"),
        order=ICFO,
    )
    return [*vars(step).values()]


@lowers(LSTMBlockCellGrad, repeatable=True)
def lstm_block_cell_grad(n: Node, b: Builder) -> list[Expr]:
    """The pointwise part of the gradient; peephole gradients are sums over the batch."""
    # The op has no h; no formula reads it.
    step = LSTMStep(n.i, n.cs, n.f, n.o, n.ci, n.co, h=n.co)
    d = lstm_step_grad(step, n.cs_prev, n.cs_grad, n.h_grad, peephole_of(n), ICFO)
    zero = n.use_peephole is False
    return [
        d.cs_prev,
        d.gates,
        b.zeros_like(n.wci) if zero else (d.i * n.cs_prev).sum(0),
        b.zeros_like(n.wcf) if zero else (d.f * n.cs_prev).sum(0),
        b.zeros_like(n.wco) if zero else (d.o * n.cs).sum(0),
    ]


@lowers(BlockLSTM, BlockLSTMV2)
def block_lstm(n: Node, b: Builder) -> list[Expr | None]:
    """A Scan of LSTM steps."""
    window, peephole = StepWindow(n, b), peephole_of(n)
    if standard_operator_suffices(n, window):
        return [None] * 6 + [standard_lstm(n, b)]
    bias = gate_bias(n, b)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (cs_prev, h_prev), (x,) = states, inputs
        step = lstm_step(
            concat([x, h_prev], 1) @ n.w + bias,
            cs_prev,
            peephole,
            cell_clip=n.cell_clip,
            units=n.size("H"),
            order=n.op.gate_order,
        )
        return [step.cs, step.h], list(vars(step).values())

    _, sequences = window.scan(
        body, states=[n.cs_prev, n.h_prev], inputs=[window.cut(n.x)], outputs=["B H"] * len(n.op.outputs)
    )
    return [window.pad(sequence) for sequence in sequences]


@lowers(BlockLSTMGrad, BlockLSTMGradV2)
def block_lstm_grad(n: Node, b: Builder) -> list[Expr]:
    """A Scan of LSTM step gradients from the last step to the first; weight gradients are carried sums."""
    window, peephole = StepWindow(n, b), peephole_of(n)
    cs_before, h_before = window.shifted(n.cs_prev, n.cs), window.shifted(n.h_prev, n.h)
    saved = [n.x, n.i, n.cs, n.f, n.o, n.ci, n.co, n.cs_grad, n.h_grad]
    input_size = n.size("I")

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        dcs, dh, w_grad, b_grad, *peephole_grads = states
        cs_prev, h_prev, x, i, cs, f, o, ci, co, cs_grad, h_grad = inputs
        # Like the cell's, the formula never reads h.
        step = LSTMStep(i, cs, f, o, ci, co, h=co)
        d = lstm_step_grad(step, cs_prev, dcs + cs_grad, dh + h_grad, peephole, n.op.gate_order)
        dxh = d.gates @ n.w.mT
        x_grad, h_prev_grad = dxh.slice(0, input_size, axis=1), dxh.slice(input_size, END, axis=1)
        states = [
            d.cs_prev,
            h_prev_grad,
            w_grad + concat([x, h_prev], 1).mT @ d.gates,
            b_grad + d.gates.sum(0),
        ]
        if peephole:
            products = [d.i * cs_prev, d.f * cs_prev, d.o * cs]
            states += [total + p.sum(0) for total, p in zip(peephole_grads, products, strict=True)]
        return states, [x_grad]

    peephole_weights = [n.wci, n.wcf, n.wco]
    carried = [n.w, n.b, *(peephole_weights if peephole else [])]
    final, (x_grad,) = window.scan(
        body,
        states=[b.zeros_like(state) for state in [n.cs_prev, n.h_prev, *carried]],
        inputs=[cs_before, h_before, *(window.cut(sequence) for sequence in saved)],
        outputs=["B I"],
        reverse=True,
    )
    cs_prev_grad, h_prev_grad, w_grad, b_grad, *peephole_grads = final
    if not peephole:
        peephole_grads = [b.zeros_like(weight) for weight in peephole_weights]
    return [window.pad(x_grad), cs_prev_grad, h_prev_grad, w_grad, *peephole_grads, b_grad]


def gate_bias(n: Node, b: Builder) -> Expr:
    """The gates' bias [4H], that of the forget gate with the attribute `forget_bias`: added once, not in every step."""
    bias: Expr = n.b
    forget_bias = n.get("forget_bias", 0.0)
    if not forget_bias:
        return bias
    offsets = b.constant([[forget_bias if gate == "f" else 0.0] for gate in n.op.gate_order], bias.dtype)
    return (bias.reshape(4, -1) + offsets).reshape(-1)


def standard_operator_suffices(n: Node, window: StepWindow) -> bool:
    """Whether only h is asked for, over whole sequences and without a clip."""
    others = [output.name for output in n.op.outputs if output.name != "h"]
    sized = all(isinstance(n.call.sizes.get(symbol), int) for symbol in "IH")
    return n.standard_rnn and window.whole and not n.cell_clip > 0 and sized and not any(n.used(o) for o in others)


def standard_lstm(n: Node, b: Builder) -> Expr:
    """One standard LSTM node; see `standard_rnn`."""
    input_size, units = n.size("I"), n.size("H")
    assert isinstance(units, int)

    def in_order(packed: Expr) -> Expr:
        gates = dict(zip(n.op.gate_order, packed.split(4, axis=0, size=units), strict=True))
        return concat([gates[gate] for gate in ("i", "f", "c", "o")], 0)

    bias = in_order(gate_bias(n, b))
    both = DirectionWeights(
        in_order(n.w.slice(0, input_size, axis=0).mT),
        in_order(n.w.slice(input_size, END, axis=0).mT),
        bias,
        b.zeros_like(bias),
    )
    peephole = concat([n.wci, n.wco, n.wcf], 0).unsqueeze(0) if n.use_peephole else None
    layer = standard_layer(
        "lstm", n.x, [both], n.h_prev.unsqueeze(0), n.cs_prev.unsqueeze(0), None, units=units, peephole=peephole
    )
    return layer.y


@lowers(GRUBlockCell, repeatable=True)
def gru_block_cell(n: Node, _: Builder) -> list[Expr]:
    """One GRU step, the reset gate applied before the product."""
    r, u = sigmoid(concat([n.x, n.h_prev], 1) @ n.w_ru + n.b_ru).split(2, axis=1, size=n.size("H"))
    c = tanh(concat([n.x, n.h_prev * r], 1) @ n.w_c + n.b_c)
    return [r, u, c, u * (n.h_prev - c) + c]


@lowers(GRUBlockCellGrad, repeatable=True)
def gru_block_cell_grad(n: Node, _: Builder) -> list[Expr]:
    """Gradient of one GRU step."""
    input_size = n.size("I")
    d_c_bar = n.d_h * (1 - n.u) * (1 - n.c) * (1 + n.c)
    d_u_bar = n.d_h * (n.h_prev - n.c) * n.u * (1 - n.u)
    d_x_and_hr = d_c_bar @ n.w_c.mT
    d_hr = d_x_and_hr.slice(input_size, END, axis=1)
    d_r_bar = d_hr * n.h_prev * n.r * (1 - n.r)
    d_r_bar_u_bar = concat([d_r_bar, d_u_bar], 1)
    d_x_and_h = d_r_bar_u_bar @ n.w_ru.mT
    return [
        d_x_and_h.slice(0, input_size, axis=1) + d_x_and_hr.slice(0, input_size, axis=1),
        d_x_and_h.slice(input_size, END, axis=1) + d_hr * n.r + n.d_h * n.u,
        d_c_bar,
        d_r_bar_u_bar,
    ]
