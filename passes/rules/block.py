"""Lowering of the block family: each cell's formula once, sequences as Scans over it.

Formulas: the kernels of TensorFlow's `lstm_ops` and `gru_ops`. Derivatives of tanh are written `(1-y)*(1+y)`, which
does not cancel near saturation. Gates come packed in the op's gate order, `icfo` or `ifco`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from lstm_lower.ops.block import (
    BlockLSTM,
    BlockLSTMGrad,
    BlockLSTMGradV2,
    BlockLSTMV2,
    GRUBlockCell,
    GRUBlockCellGrad,
    LSTMBlockCell,
    LSTMBlockCellGrad,
)
from lstm_lower.passes.emit import END, Builder, Expr, concat, sigmoid, tanh
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.standard_rnn import DirectionWeights, standard_layer

ICFO = ("i", "c", "f", "o")

# One step of a loop: states and inputs to new states and outputs.
Body = Callable[[list[Expr], list[Expr]], tuple[list[Expr], list[Expr]]]


@dataclasses.dataclass(frozen=True)
class Peephole:
    """Peephole weights, each of shape [H]."""

    i: Expr
    f: Expr
    o: Expr


@dataclasses.dataclass(frozen=True)
class LSTMStep:
    """The activations of one LSTM step, each of shape [B, H]; `ci` is the cell input, `co` is tanh(cs)."""

    i: Expr
    cs: Expr
    f: Expr
    o: Expr
    ci: Expr
    co: Expr
    h: Expr


def peephole_of(n: Node) -> Peephole | None:
    """The node's peephole weights, or `None` when it does not use them."""
    return Peephole(n.wci, n.wcf, n.wco) if n.use_peephole else None


def lstm_step(
    gates: Expr,
    cs_prev: Expr,
    peephole: Peephole | None,
    *,
    forget_bias: float,
    cell_clip: float,
    units: int | Expr,
    order: Sequence[str],
) -> LSTMStep:
    """One LSTM step from the gates' pre-activations [B, 4H]."""
    pre = dict(zip(order, gates.split(4, axis=1, size=units), strict=True))
    pre_f = pre["f"] + forget_bias if forget_bias else pre["f"]
    i = sigmoid(pre["i"] + cs_prev * peephole.i if peephole else pre["i"])
    f = sigmoid(pre_f + cs_prev * peephole.f if peephole else pre_f)
    ci = tanh(pre["c"])
    cs = i * ci + f * cs_prev
    if cell_clip > 0:
        # Not Min and Max of the whole: a NaN must stay one, and ONNX leaves open which operand of Min wins over it.
        cs = clip(cs, cell_clip)
    co = tanh(cs)
    o = sigmoid(pre["o"] + cs * peephole.o if peephole else pre["o"])
    return LSTMStep(i, cs, f, o, ci, co, o * co)


def clip(x: Expr, bound: float) -> Expr:
    """Limits to -bound..bound; a NaN stays NaN."""
    if math.isinf(bound):
        return x
    return x.builder.op("Clip", x, x.like(-bound), x.like(bound))


@dataclasses.dataclass(frozen=True)
class LSTMStepGrad:
    """Gradients of one LSTM step: of the gates' pre-activations [B, 4H] (and i, f, o apart) and of cs_prev [B, H]."""

    gates: Expr
    i: Expr
    f: Expr
    o: Expr
    cs_prev: Expr


def lstm_step_grad(
    s: LSTMStep, cs_prev: Expr, dcs: Expr, dh: Expr, peephole: Peephole | None, order: Sequence[str]
) -> LSTMStepGrad:
    """Gradient of one LSTM step; `dcs` and `dh` are the gradients of cs and h. The clip counts as identity."""
    do = s.o * (1 - s.o) * dh * s.co
    dcs = (1 - s.co) * (1 + s.co) * dh * s.o + dcs
    if peephole:
        dcs = dcs + do * peephole.o
    dci = (1 - s.ci) * (1 + s.ci) * dcs * s.i
    df = s.f * (1 - s.f) * dcs * cs_prev
    di = s.i * (1 - s.i) * dcs * s.ci
    dcs_prev = dcs * s.f
    if peephole:
        dcs_prev = dcs_prev + di * peephole.i + df * peephole.f
    by_gate = {"i": di, "c": dci, "f": df, "o": do}
    return LSTMStepGrad(concat([by_gate[gate] for gate in order], 1), di, df, do, dcs_prev)


@lowers(LSTMBlockCell, repeatable=True)
def lstm_block_cell(n: Node) -> dict[str, Expr]:
    """One step from concat(x, h_prev) @ w + b."""
    gates = concat([n.x, n.h_prev], 1) @ n.w + n.b
    step = lstm_step(
        gates,
        n.cs_prev,
        peephole_of(n),
        forget_bias=n.forget_bias,
        cell_clip=n.cell_clip,
        units=n.size("H"),
        order=ICFO,
    )
    return vars(step)


@lowers(LSTMBlockCellGrad, repeatable=True)
def lstm_block_cell_grad(n: Node) -> dict[str, Expr]:
    """The pointwise part of the gradient; peephole gradients are sums over the batch."""
    # The op has no h; no formula reads it.
    step = LSTMStep(n.i, n.cs, n.f, n.o, n.ci, n.co, h=n.co)
    d = lstm_step_grad(step, n.cs_prev, n.cs_grad, n.h_grad, peephole_of(n), ICFO)
    zero = n.use_peephole is False
    return {
        "cs_prev_grad": d.cs_prev,
        "dicfo": d.gates,
        "wci_grad": n.builder.zeros_like(n.wci) if zero else (d.i * n.cs_prev).sum(0),
        "wcf_grad": n.builder.zeros_like(n.wcf) if zero else (d.f * n.cs_prev).sum(0),
        "wco_grad": n.builder.zeros_like(n.wco) if zero else (d.o * n.cs).sum(0),
    }


class Window:
    """The steps 0 .. seq_len_max-1 of the sequences of a node: cuts inputs to it and pads outputs from it.

    Outside 0..T, which only a run-time seq_len_max can be, it is clamped. When it is known to be T, nothing is cut.
    """

    def __init__(self, n: Node) -> None:
        self._node = n
        steps, length = n.size("T"), n.constant("seq_len_max")
        self.whole = n.is_size("seq_len_max", "T")
        self._steps = steps
        self.length: int | Expr
        if length is not None:
            self.length = int(length)
        elif self.whole:
            self.length = steps
        else:
            self.length = n.seq_len_max.reshape(1).maximum(0).minimum(n.builder.sizes([steps]))

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
        n = self._node
        dtype = inputs[0].dtype

        def run(builder: Builder) -> list[Expr]:
            final, sequences = builder.scan(body, states=states, inputs=inputs, reverse=reverse)
            return [*final, *sequences]

        def nothing(builder: Builder) -> list[Expr]:
            sizes = [[n.size(symbol) for symbol in symbols.split()] for symbols in outputs]
            return [*states, *(builder.fill(0, [0, *step], dtype) for step in sizes)]

        if isinstance(self.length, int):
            results = run(n.builder) if self.length > 0 else nothing(n.builder)
        elif self.whole:
            results = run(n.builder)
        else:
            # onnxruntime refuses a Scan over no steps.
            results = n.builder.branch((self.length > 0).reshape(), run, nothing)
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
        padded = b.op("Pad", sequence, pads)
        if sequence.shape is not None:
            steps = self._steps if isinstance(self._steps, int) else None
            return b.set_shape(padded, (steps, *sequence.shape[1:]))
        return padded


def standard_operator_suffices(n: Node, window: Window) -> bool:
    """Whether only h is asked for, over whole sequences and without a clip."""
    others = [output.name for output in n.op.outputs if output.name != "h"]
    sized = all(isinstance(n.call.sizes.get(symbol), int) for symbol in "IH")
    return n.standard_rnn and window.whole and not n.cell_clip > 0 and sized and not any(n.used(o) for o in others)


def standard_lstm(n: Node) -> dict[str, Expr]:
    """One standard LSTM node; see `standard_rnn`."""
    input_size, units, b = n.size("I"), n.size("H"), n.builder
    assert isinstance(units, int)

    def in_order(packed: Expr) -> Expr:
        gates = dict(zip(n.op.gate_order, packed.split(4, axis=0, size=units), strict=True))
        return concat([gates[gate] for gate in ("i", "f", "c", "o")], 0)

    bias = in_order(n.b)
    forget_bias = n.get("forget_bias", 0.0)
    offsets = b.constant([[0.0], [forget_bias], [0.0], [0.0]], n.x.dtype)
    both = DirectionWeights(
        in_order(n.w.slice(0, input_size, axis=0).mT),
        in_order(n.w.slice(input_size, END, axis=0).mT),
        (bias.reshape(4, -1) + offsets).reshape(-1) if forget_bias else bias,
        b.zeros_like(bias),
    )
    peephole = concat([n.wci, n.wco, n.wcf], 0).unsqueeze(0) if n.use_peephole else None
    layer = standard_layer(
        "lstm", n.x, [both], n.h_prev.unsqueeze(0), n.cs_prev.unsqueeze(0), None, units=units, peephole=peephole
    )
    return {"h": layer.y}


@lowers(BlockLSTM, BlockLSTMV2)
def block_lstm(n: Node) -> dict[str, Expr]:
    """A Scan of LSTM steps."""
    window, peephole = Window(n), peephole_of(n)
    if standard_operator_suffices(n, window):
        return standard_lstm(n)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (cs_prev, h_prev), (x,) = states, inputs
        gates = concat([x, h_prev], 1) @ n.w + n.b
        step = lstm_step(
            gates,
            cs_prev,
            peephole,
            forget_bias=n.get("forget_bias", 0.0),
            cell_clip=n.cell_clip,
            units=n.size("H"),
            order=n.op.gate_order,
        )
        return [step.cs, step.h], list(vars(step).values())

    _, sequences = window.scan(
        body, states=[n.cs_prev, n.h_prev], inputs=[window.cut(n.x)], outputs=["B H"] * len(n.op.outputs)
    )
    return {output.name: window.pad(s) for output, s in zip(n.op.outputs, sequences, strict=True)}


@lowers(BlockLSTMGrad, BlockLSTMGradV2)
def block_lstm_grad(n: Node) -> dict[str, Expr]:
    """A Scan of LSTM step gradients from the last step to the first; weight gradients are carried sums."""
    window, peephole = Window(n), peephole_of(n)
    b = n.builder
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
    results = [window.pad(x_grad), cs_prev_grad, h_prev_grad, w_grad, *peephole_grads, b_grad]
    return dict(zip([output.name for output in n.op.outputs], results, strict=True))


@lowers(GRUBlockCell, repeatable=True)
def gru_block_cell(n: Node) -> dict[str, Expr]:
    """One GRU step, the reset gate applied before the product."""
    r, u = sigmoid(concat([n.x, n.h_prev], 1) @ n.w_ru + n.b_ru).split(2, axis=1, size=n.size("H"))
    c = tanh(concat([n.x, n.h_prev * r], 1) @ n.w_c + n.b_c)
    return {"r": r, "u": u, "c": c, "h": u * (n.h_prev - c) + c}


@lowers(GRUBlockCellGrad, repeatable=True)
def gru_block_cell_grad(n: Node) -> dict[str, Expr]:
    """Gradient of one GRU step."""
    input_size = n.size("I")
    d_c_bar = n.d_h * (1 - n.u) * (1 - n.c) * (1 + n.c)
    d_u_bar = n.d_h * (n.h_prev - n.c) * n.u * (1 - n.u)
    d_x_and_hr = d_c_bar @ n.w_c.mT
    d_hr = d_x_and_hr.slice(input_size, END, axis=1)
    d_r_bar = d_hr * n.h_prev * n.r * (1 - n.r)
    d_r_bar_u_bar = concat([d_r_bar, d_u_bar], 1)
    d_x_and_h = d_r_bar_u_bar @ n.w_ru.mT
    return {
        "d_x": d_x_and_h.slice(0, input_size, axis=1) + d_x_and_hr.slice(0, input_size, axis=1),
        "d_h_prev": d_x_and_h.slice(input_size, END, axis=1) + d_hr * n.r + n.d_h * n.u,
        "d_c_bar": d_c_bar,
        "d_r_bar_u_bar": d_r_bar_u_bar,
    }
