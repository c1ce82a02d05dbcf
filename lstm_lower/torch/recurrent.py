"""PyTorch's recurrent layers and packed sequences as ONNX.

A layer is one LSTM, GRU or RNN of ONNX per layer of cells. What ONNX's LSTM has no form for, a projection, is the
cell's formula in a Scan. Gates stand in another order: PyTorch's LSTM has i, f, g, o, ONNX's i, o, f, c; PyTorch's GRU
r, z, n, ONNX's z, r, h.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat, detached, sigmoid, tanh
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch import formulas
from lstm_lower.torch.nodes import Formula, Traced

INT64 = ir.DataType.INT64

_OPS: dict[str, type[std.Standard]] = {"lstm": std.LSTM, "gru": std.GRU, "rnn_tanh": std.RNN, "rnn_relu": std.RNN}
# Where ONNX's gates stand among PyTorch's.
_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}


@dataclasses.dataclass(frozen=True)
class Cell:
    """The weights of one layer in one direction, as PyTorch has them."""

    input: Expr
    recurrent: Expr
    input_bias: Expr | None = None
    recurrent_bias: Expr | None = None
    projection: Expr | None = None


def recurrent(
    kind: str,
    x: Expr,
    lengths: Expr | None,
    states: Sequence[Expr],
    weights: Sequence[Expr],
    *,
    biased: bool,
    layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
) -> list[Expr]:
    """All layers: outputs, last hidden states, last cell states."""
    b, directions = x.builder, 2 if bidirectional else 1
    if batch_first:
        x = x.transpose(1, 0, 2)
    first = [None if _is_zero(b, state) else state for state in states]
    per_cell = len(weights) // (layers * directions)
    last: list[list[Expr]] = [[], []]
    for layer in range(layers):
        if layer and dropout:
            x = b.op(std.Dropout, x, x.like(dropout), b.constant(value=True, dtype=ir.DataType.BOOL))
        begin = layer * directions
        cells = [
            _cell(weights[index * per_cell : (index + 1) * per_cell], biased=biased)
            for index in range(begin, begin + directions)
        ]
        own = [None if state is None else state.slice(begin, begin + directions, axis=0) for state in first]
        run = _layer if cells[0].projection is None else _projected_layer
        x, final = run(b, kind, x, cells, own, lengths)
        for kept, state in zip(last, final, strict=False):
            kept.append(state)
    if batch_first:
        x = x.transpose(1, 0, 2)
    return [x, *(concat(kept, 0) for kept in last[: len(states)])]


def _is_zero(b: Builder, value: Expr) -> bool:
    return b.facts.uniform(value.value) == 0


def _cell(weights: Sequence[Expr], *, biased: bool) -> Cell:
    given: list[Expr | None] = [*weights]
    if not biased:
        given[2:2] = [None, None]
    return Cell(*weights[:2], *given[2:])


def _reordered(matrix: Expr, kind: str) -> Expr:
    order = _ORDER[kind]
    if len(order) == 1:
        return matrix
    gates = matrix.split(len(order), axis=0)
    return concat([gates[gate] for gate in order], 0)


def _stacked(parts: list[Expr], kind: str) -> Expr:
    """A matrix or vector of each direction, one behind the other along a new first axis."""
    return concat([_reordered(part, kind).unsqueeze(0) for part in parts], 0)


def _layer(
    b: Builder, kind: str, x: Expr, cells: list[Cell], states: list[Expr | None], lengths: Expr | None
) -> tuple[Expr, list[Expr]]:
    """One layer by ONNX's operator: [T, B, D*H] and last states [D, B, H]."""
    size = cells[0].recurrent.size(1)
    assert isinstance(size, int)
    biases = [
        concat([_reordered(bias, kind) for bias in (cell.input_bias, cell.recurrent_bias) if bias is not None], 0)
        for cell in cells
        if cell.input_bias is not None
    ]
    operands = [
        x,
        _stacked([cell.input for cell in cells], kind),
        _stacked([cell.recurrent for cell in cells], kind),
        concat([bias.unsqueeze(0) for bias in biases], 0) if biases else None,
        None if lengths is None else lengths.cast(ir.DataType.INT32),
        *states,
    ]
    attributes: dict[str, object] = {
        "hidden_size": size,
        "direction": "forward" if len(cells) == 1 else "bidirectional",
    }
    if kind == "gru":
        attributes["linear_before_reset"] = 1
    if kind == "rnn_relu":
        attributes["activations"] = [std.Relu.op_type] * len(cells)
    while operands[-1] is None:
        operands.pop()
    out, *final = b.ops(_OPS[kind], *operands, outputs=3 if kind == "lstm" else 2, **attributes)
    # [T, D, B, H]
    return out.transpose(0, 2, 1, 3).reshape(0, 0, len(cells) * size), final


def _projected_layer(
    b: Builder,
    kind: str,  # noqa: ARG001
    x: Expr,
    cells: list[Cell],
    states: list[Expr | None],
    lengths: Expr | None,
) -> tuple[Expr, list[Expr]]:
    """One layer of an LSTM whose outputs are projected, the formula in a Scan (Sak, Senior and Beaufays, 2014)."""
    batch = b.sizes([x.size(1)])
    steps = b.sizes([x.size(0)]).reshape()
    running = None
    if lengths is not None:
        numbers = up_to(b, steps).unsqueeze(1, 2)
        running = numbers < lengths.cast(INT64).unsqueeze(0, 2)
    outputs, hiddens, memories = [], [], []
    for index, cell in enumerate(cells):
        assert cell.projection is not None
        starts = [
            b.fill(0, [batch, weight.size(axis)], x.dtype)
            if state is None
            else state.slice(index, index + 1, axis=0).squeeze(0)
            for state, weight, axis in zip(states, (cell.projection, cell.projection), (0, 1), strict=True)
        ]
        fed = x @ cell.input.mT
        for bias in (cell.input_bias, cell.recurrent_bias):
            fed = fed if bias is None else fed + bias
        recurrent, projection = cell.recurrent.mT, cell.projection.mT

        def body(
            carried: list[Expr], inputs: list[Expr], recurrent: Expr = recurrent, projection: Expr = projection
        ) -> tuple[list[Expr], list[Expr]]:
            hidden, memory = carried
            i, f, g, o = (inputs[0] + hidden @ recurrent).split(4, axis=1)
            new_memory = sigmoid(f) * memory + sigmoid(i) * tanh(g)
            new_hidden = (sigmoid(o) * tanh(new_memory)) @ projection
            if len(inputs) == 1:
                return [new_hidden, new_memory], [new_hidden]
            on = inputs[1]
            kept = [hidden.builder.where(on, new, old) for new, old in ((new_hidden, hidden), (new_memory, memory))]
            return kept, [hidden.builder.where(on, new_hidden, 0)]

        sequences = [fed] if running is None else [fed, running]
        (hidden, memory), (out,) = b.scan(body, states=starts, inputs=sequences, reverse=index == 1)
        outputs.append(out)
        hiddens.append(hidden.unsqueeze(0))
        memories.append(memory.unsqueeze(0))
    return concat(outputs, 2), [concat(hiddens, 0), concat(memories, 0)]


def _places(b: Builder, steps: Expr, lengths: Expr) -> tuple[Expr, Expr]:
    """Step and sequence of each element of a packed sequence [N, 2], and the number of sequences at each step [T].

    Args:
        b: where to emit.
        steps: number of steps, a scalar.
        lengths: of each sequence [B].
    """
    numbers = up_to(b, steps).unsqueeze(1)
    inside = numbers < lengths.unsqueeze(0)
    return b.op(std.NonZero, inside).transpose(), inside.cast(INT64).sum(1)


def packed(x: Expr, lengths: Expr) -> list[Expr]:
    """All elements that belong to sequences, step by step, and how many sequences there are at each step."""
    b, lengths = x.builder, lengths.cast(INT64)
    places, counts = _places(b, b.sizes([x.size(0)]).reshape(), lengths)
    longest = b.op(std.ReduceMax, lengths, keepdims=0).reshape(1)
    return [b.op(std.GatherND, x, places), counts.slice(0, longest, axis=0)]


def unpacked(data: Expr, counts: Expr, lengths: Expr) -> Expr:
    """The elements at their places, zeros elsewhere [T, B, ...]; counts are the numbers of sequences at each step."""
    b, lengths = data.builder, lengths.cast(INT64)
    steps = b.sizes([counts.size(0)])
    places, _ = _places(b, steps.reshape(), lengths)
    rest = [data.size(axis) for axis in range(1, len(data.shape or ()))]
    empty = b.fill(0, [steps, lengths.size(0), *rest], data.dtype)
    return b.op(std.ScatterND, empty, places, data)


def of_steps(x: Expr, lengths: Expr, total: Expr, padding: float) -> Expr:
    """A padded sequence of another number of steps [1], with a number behind the end of each sequence."""
    b, lengths, rank = x.builder, lengths.cast(INT64), len(x.shape or ())
    missing = (total - b.sizes([x.size(0)])).maximum(0)
    pads = concat([b.ints(*[0] * rank), missing, b.ints(*[0] * (rank - 1))], 0)
    x = b.op(std.Pad, x, pads).slice(0, total, axis=0)
    inside = up_to(b, total.reshape()).unsqueeze(1) < lengths.unsqueeze(0)
    return b.where(inside.unsqueeze(*range(2, rank)) if rank > 2 else inside, x, padding)


def rnn(n: Traced) -> list[Expr | None]:
    """All layers: outputs, last hidden states, last cell states."""
    count = n.attribute("states")
    states, weights = n.operands[2 : 2 + count], n.operands[2 + count :]
    return [
        *recurrent(
            str(n.attribute("kind")),
            n.operand(0),
            n.operands[1],
            [state for state in states if state is not None],
            [weight for weight in weights if weight is not None],
            biased=bool(n.attribute("has_biases")),
            layers=n.attribute("layers"),
            dropout=n.attribute("dropout"),
            bidirectional=bool(n.attribute("bidirectional")),
            batch_first=bool(n.attribute("batch_first")),
        )
    ]


def pack(n: Traced) -> list[Expr | None]:
    """All elements that belong to sequences, step by step, and how many sequences there are at each step."""
    return [*packed(n.operand(0), n.operand(1))]


def unpack(n: Traced) -> list[Expr | None]:
    """The elements at their places, zeros elsewhere [T, B, ...]."""
    return [unpacked(n.operand(0), n.operand(1), n.operand(2))]


def steps(n: Traced) -> list[Expr | None]:
    """A padded sequence of another number of steps, with a number behind the end of each sequence."""
    total = n.b.sizes([n.operand(2).size(0)])
    return [of_steps(n.operand(0), n.operand(1), total, n.attribute("padding"))]


def stop(n: Traced) -> list[Expr | None]:
    """The operand, marked as one through which no gradient goes."""
    return [detached(n.operand(0))]


FORMULAS: dict[str, Formula] = {
    **formulas.FORMULAS,
    "Pack": pack,
    "Recurrent": rnn,
    "Steps": steps,
    "Stop": stop,
    "Unpack": unpack,
}
