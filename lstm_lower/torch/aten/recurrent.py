"""Recurrent layers and packed sequences in traces, by operators of ours.

PyTorch's own traces fix the number of steps. Packed sequences are data of all steps, one behind the other, and the
number of sequences at each step. Beside the data a trace keeps the padded tensor they came from, and beside the numbers
the lengths, so that layers read these, and data that nobody else reads is not made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.builder import Expr
from lstm_lower.replacement import replaced
from lstm_lower.torch.aten.registry import Call, translates
from lstm_lower.torch.aten.tracing import operator, traces
from lstm_lower.torch.recurrent import of_steps, packed, recurrent, unpacked

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@operator(
    "recurrent(str kind, Tensor x, Tensor? lengths, Tensor[] states, Tensor[] weights, bool biased, int layers, "
    "float dropout, bool bidirectional, bool batch_first) -> Tensor[]"
)
def _RECURRENT(  # noqa: N802
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
    width = states[0].shape[2] * (2 if bidirectional else 1)
    return [x.new_empty([*x.shape[:2], width]), *(x.new_empty(state.shape) for state in states)]


@translates(_RECURRENT)
def _recurrent(
    n: Call,
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
    return recurrent(
        kind,
        x,
        lengths,
        states,
        weights,
        biased=biased,
        layers=layers,
        dropout=dropout,
        bidirectional=bidirectional,
        batch_first=batch_first,
    )


@operator("pack(Tensor x, Tensor lengths, SymInt elements, SymInt steps) -> (Tensor, Tensor)")
def _PACK(x: Tensor, lengths: Tensor, elements: Any, steps: Any) -> tuple[Tensor, Tensor]:  # noqa: N802
    return x.new_empty([elements, *x.shape[2:]]), lengths.new_empty([steps])


@translates(_PACK)
def _pack(n: Call, x: Expr, lengths: Expr, *_: Any) -> list[Expr]:
    return packed(x, lengths)


@operator("unpack(Tensor data, Tensor batch_sizes, Tensor lengths) -> Tensor")
def _UNPACK(data: Tensor, batch_sizes: Tensor, lengths: Tensor) -> Tensor:  # noqa: N802
    return data.new_empty([batch_sizes.shape[0], lengths.shape[0], *data.shape[1:]])


@translates(_UNPACK)
def _unpack(n: Call, data: Expr, counts: Expr, lengths: Expr) -> Expr:
    return unpacked(data, counts, lengths)


@operator("of_steps(Tensor x, Tensor lengths, SymInt total, float padding) -> Tensor")
def _OF_STEPS(x: Tensor, lengths: Tensor, total: Any, padding: float) -> Tensor:  # noqa: N802
    return x.new_empty([total, *x.shape[1:]])


@translates(_OF_STEPS)
def _of_steps(n: Call, x: Expr, lengths: Expr, total: Any, padding: float) -> Expr:
    return of_steps(x, lengths, n.vector([total]), padding)


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
    held: Tensor = _PADDED[data] if data in _PADDED else _UNPACK(data, batch_sizes, _lengths_of(batch_sizes))
    return held


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


for _kind in KINDS:
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
    return tuple(_RECURRENT(kind, x, lengths, states, weights, biased, layers, share, bidirectional, batch_first))


@contextlib.contextmanager
def unchecked_packs() -> Iterator[None]:
    """Leaves out the checks of layers that would make a number of the batch size of a packed sequence."""
    kinds = [kind for kind in (nn.RNNBase, nn.LSTM, nn.GRU, nn.RNN) if "check_forward_args" in vars(kind)]
    checks = {kind: kind.check_forward_args for kind in kinds}

    def unless_packed(check: Callable[..., None]) -> Callable[..., None]:
        def checked(self: Any, x: Tensor, states: Any, batch_sizes: Tensor | None) -> None:
            if batch_sizes is None:
                check(self, x, states, batch_sizes)

        return checked

    with contextlib.ExitStack() as held:
        for kind, check in checks.items():
            held.enter_context(replaced(kind, "check_forward_args", unless_packed(check)))
        yield
