"""Recurrent layers and packed sequences, in traces operators of ours.

PyTorch's own traces fix the number of steps. Packed sequences are data of all steps, one behind the other, and the
number of sequences at each step. Beside the data a trace keeps the padded tensor they came from, and beside the numbers
the lengths, so that layers read these, and data that nobody else reads is not made.

A layer is one LSTM, GRU or RNN of ONNX per layer of cells. What ONNX's LSTM has no form for, a projection, is the
cell's formula in a Scan. Gates stand in another order: PyTorch's LSTM has i, f, g, o, ONNX's i, o, f, c; PyTorch's GRU
r, z, n, ONNX's z, r, h.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat, sigmoid, tanh
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.replacement import replaced
from lstm_lower.torch.aten.registry import AtenCall, translates
from lstm_lower.torch.aten.tracing import operator, traces

INT64 = ir.DataType.INT64

_OPS: dict[str, type[std.Standard]] = {"lstm": std.LSTM, "gru": std.GRU, "rnn_tanh": std.RNN, "rnn_relu": std.RNN}
# Where ONNX's gates stand among PyTorch's.
_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}


@operator(
    "recurrent(str kind, Tensor x, Tensor? lengths, Tensor[] states, Tensor[] weights, bool biased, int layers, "
    "float dropout, bool bidirectional, bool batch_first) -> Tensor[]"
)
def RECURRENT(  # noqa: N802
    kind: str,
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    """Layers of one kind with their weights, as `torch.lstm` has them; dropout between layers is that of training."""
    width = states[0].shape[2] * (2 if bidirectional else 1)
    # Of where elements lie it depends what is a view of them.
    steps, batch = (1, 0) if batch_first else (0, 1)
    out = x.new_empty([x.shape[steps], x.shape[batch], width]).transpose(0, steps)
    return [out, *(x.new_empty(state.shape) for state in states)]


@operator("pack(Tensor x, Tensor lengths, SymInt elements, SymInt steps) -> (Tensor, Tensor)")
def _PACK(x: Tensor, lengths: Tensor, elements: Any, steps: Any) -> tuple[Tensor, Tensor]:  # noqa: N802
    return x.new_empty([elements, *x.shape[2:]]), lengths.new_empty([steps])


@operator("unpack(Tensor data, Tensor batch_sizes, Tensor lengths) -> Tensor")
def _UNPACK(data: Tensor, batch_sizes: Tensor, lengths: Tensor) -> Tensor:  # noqa: N802
    return data.new_empty([batch_sizes.shape[0], lengths.shape[0], *data.shape[1:]])


@operator("of_steps(Tensor x, Tensor lengths, SymInt total, float padding) -> Tensor")
def _OF_STEPS(x: Tensor, lengths: Tensor, total: Any, padding: float) -> Tensor:  # noqa: N802
    return x.new_empty([total, *x.shape[1:]])


# Packed data -> the padded tensor [T, B, ...]; batch sizes -> lengths.
_PADDED: WeakIdKeyDictionary = WeakIdKeyDictionary()
_LENGTHS: WeakIdKeyDictionary = WeakIdKeyDictionary()

_variants: Any = torch._VF


@traces(_variants._pack_padded_sequence)
def _pack_padded(x: Tensor, lengths: Tensor, batch_first: bool) -> Any:
    x = x.transpose(0, 1) if batch_first else x
    elements, steps = lengths.sum().item(), lengths.max().item()
    # So that PyTorch can tell that there is something, and that a total length of all steps is long enough.
    for holds in (elements >= 1, steps >= 1, steps <= x.shape[0]):
        torch._check(holds)  # type: ignore[no-untyped-call]
    data, batch_sizes = _PACK(x, lengths, elements, steps)
    _PADDED[data], _LENGTHS[batch_sizes] = x, lengths
    return data, batch_sizes


@traces(_variants._pad_packed_sequence)
def _pad_packed(data: Tensor, batch_sizes: Tensor, batch_first: bool, padding: float, total: Any) -> Any:
    lengths = _lengths_of(batch_sizes)
    x = _OF_STEPS(_padded(data, batch_sizes), lengths, total, float(padding))
    return (x.transpose(0, 1) if batch_first else x), lengths


def _padded(data: Tensor, batch_sizes: Tensor) -> Tensor:
    return _PADDED[data] if data in _PADDED else _UNPACK(data, batch_sizes, _lengths_of(batch_sizes))


def _lengths_of(batch_sizes: Tensor) -> Tensor:
    if batch_sizes not in _LENGTHS:
        raise UnsupportedOpError(
            "a packed sequence must be made inside forward by pack_padded_sequence, got one from elsewhere; "
            "take the padded tensor and the lengths as inputs"
        )
    lengths: Tensor = _LENGTHS[batch_sizes]
    return lengths


def sequences_of(batch_sizes: Tensor) -> Any:
    """The number of sequences of a packed one, of which layers make their first states; `None` of another tensor."""
    return _LENGTHS[batch_sizes].shape[0] if batch_sizes in _LENGTHS else None


def _traced(kind: str) -> Callable[..., Any]:
    def called(x: Tensor, second: Any, *rest: Any) -> Any:
        # One function of two signatures: a packed sequence brings batch sizes before the states.
        if isinstance(second, Tensor) and isinstance(rest[1], (tuple, list)):
            return _traced_with_lengths(kind, x, second, *rest)
        return _traced_layers(kind, x, None, second, *rest)

    return called


for _kind in _OPS:
    traces(getattr(_variants, _kind))(_traced(_kind))


def _traced_with_lengths(kind: str, data: Tensor, batch_sizes: Tensor, states: Any, weights: Any, *rest: Any) -> Any:
    lengths = _lengths_of(batch_sizes)
    _check_states(lengths, states, weights, layers=rest[1], directions=2 if rest[4] else 1)
    out, *last = _traced_layers(kind, _padded(data, batch_sizes), lengths, states, weights, *rest)
    result, _ = _PACK(out, lengths, data.shape[0], batch_sizes.shape[0])
    _PADDED[result] = out
    return result, *last


def _check_states(lengths: Tensor, states: Any, weights: Sequence[Tensor], *, layers: int, directions: int) -> None:
    """Fixes sizes of states that PyTorch does not check of a packed sequence: with too few it ends the process."""
    widths = (weights[1].shape[1], weights[1].shape[0] // 4)
    for state, width in zip([states] if isinstance(states, Tensor) else states, widths, strict=False):
        sizes = (layers * directions, lengths.shape[0], width)
        torch._check(all(own == size for own, size in zip(state.shape, sizes, strict=True)))  # type: ignore[no-untyped-call]


def _traced_layers(
    kind: str,
    x: Tensor,
    lengths: Tensor | None,
    states: Any,
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> Any:
    states = [states] if isinstance(states, Tensor) else list(states)
    share = float(dropout) if training else 0.0
    weights = list(weights)
    return tuple(RECURRENT(kind, x, lengths, states, weights, biased, layers, share, bidirectional, batch_first))


def unchecked_packs() -> contextlib.AbstractContextManager[None]:
    """Leaves out the checks of layers that would make a number of the batch size of a packed sequence."""
    check = nn.RNNBase.check_forward_args

    def unless_packed(self: Any, x: Tensor, states: Any, batch_sizes: Tensor | None) -> None:
        if batch_sizes is None:
            check(self, x, states, batch_sizes)

    return replaced(nn.RNNBase, "check_forward_args", unless_packed)


# Formulas.


@dataclasses.dataclass(frozen=True)
class Cell:
    """The weights of one layer in one direction, as PyTorch has them."""

    input: Expr
    recurrent: Expr
    input_bias: Expr | None = None
    recurrent_bias: Expr | None = None
    projection: Expr | None = None


@translates(RECURRENT)
def _recurrent(
    n: AtenCall,
    kind: str,
    x: Expr,
    lengths: Expr | None,
    states: Sequence[Expr],
    weights: Sequence[Expr],
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
    kind: str,
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


@translates(_PACK)
def _pack(n: AtenCall, x: Expr, lengths: Expr, *_: Any) -> list[Expr]:
    """All elements that belong to sequences, step by step, and how many sequences there are at each step."""
    b, lengths = x.builder, lengths.cast(INT64)
    places, counts = _places(b, b.sizes([x.size(0)]).reshape(), lengths)
    longest = b.op(std.ReduceMax, lengths, keepdims=0).reshape(1)
    return [b.op(std.GatherND, x, places), counts.slice(0, longest, axis=0)]


@translates(_UNPACK)
def _unpack(n: AtenCall, data: Expr, counts: Expr, lengths: Expr) -> Expr:
    """The elements at their places, zeros elsewhere [T, B, ...]; counts are the numbers of sequences at each step."""
    b, lengths = data.builder, lengths.cast(INT64)
    steps = b.sizes([counts.size(0)])
    places, _ = _places(b, steps.reshape(), lengths)
    rest = [data.size(axis) for axis in range(1, len(data.shape or ()))]
    empty = b.fill(0, [steps, lengths.size(0), *rest], data.dtype)
    return b.op(std.ScatterND, empty, places, data)


@translates(_OF_STEPS)
def _of_steps(n: AtenCall, x: Expr, lengths: Expr, total: Any, padding: float) -> Expr:
    """A padded sequence of another number of steps, with a number behind the end of each sequence."""
    b, lengths, rank = x.builder, lengths.cast(INT64), len(x.shape or ())
    total = n.vector([total])
    missing = (total - b.sizes([x.size(0)])).maximum(0)
    pads = concat([b.ints(*[0] * rank), missing, b.ints(*[0] * (rank - 1))], 0)
    x = b.op(std.Pad, x, pads).slice(0, total, axis=0)
    inside = up_to(b, total.reshape()).unsqueeze(1) < lengths.unsqueeze(0)
    return b.where(inside.unsqueeze(*range(2, rank)) if rank > 2 else inside, x, padding)
