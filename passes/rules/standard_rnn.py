"""Inference on the standard LSTM, GRU and RNN operators, for which onnxruntime has kernels of its own.

A forward op lowers to them when its training outputs are unused and the operator computes the very same function:
float32, no projection, no dropout, no cell clip, no run-time window.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr, concat
from lstm_lower.passes.rules.registry import Node

# The standard operators' gate orders, as positions in cuDNN's: LSTM i, o, f, c; GRU z (our u), r, h (our n).
_OPERATORS = {
    "lstm": (std.LSTM, (0, 3, 1, 2)),
    "gru": (std.GRU, (1, 0, 2)),
    "rnn_tanh": (std.RNN, (0,)),
    "rnn_relu": (std.RNN, (0,)),
}


@dataclasses.dataclass(frozen=True)
class DirectionWeights:
    """One direction of a layer, gates stacked along the rows in cuDNN's order.

    Attributes:
        W: `[G*N, in]`.
        R: `[G*N, N]`.
        bW: `[G*N]`.
        bR: `[G*N]`.
    """

    W: Expr
    R: Expr
    bW: Expr
    bR: Expr


@dataclasses.dataclass(frozen=True)
class LayerResult:
    """y `[T, B, D*N]`, final h and c `[D, B, N]`."""

    y: Expr
    h: Expr
    c: Expr | None


def standard_layer(
    mode: str,
    x: Expr,
    weights: list[DirectionWeights],
    h0: Expr,
    c0: Expr | None,
    lengths: Expr | None,
    *,
    units: int,
    peephole: Expr | None = None,
) -> LayerResult:
    """One layer as one node.

    Args:
        mode: `lstm`, `gru`, `rnn_tanh`, `rnn_relu`.
        x: `[T, B, in]`.
        weights: per direction.
        h0: `[D, B, N]`.
        c0: `[D, B, N]` for an lstm.
        lengths: `[B]` int32 within 0..T, or `None` when all sequences are full.
        units: N.
        peephole: `[D, 3*N]`, i, o, f; lstm only.
    """
    b = x.builder
    operator, order = _OPERATORS[mode]

    def reordered(stacked: Expr) -> Expr:
        if len(order) == 1:
            return stacked
        gates = stacked.split(len(order), axis=0)
        return concat([gates[position] for position in order], 0)

    w = stack([reordered(d.W) for d in weights])
    r = stack([reordered(d.R) for d in weights])
    bias = stack([concat([reordered(d.bW), reordered(d.bR)], 0) for d in weights])
    attributes: dict[str, object] = {"hidden_size": units}
    if len(weights) == 2:
        attributes["direction"] = "bidirectional"
    if mode == "gru":
        attributes["linear_before_reset"] = 1
    if mode == "rnn_relu":
        attributes["activations"] = [std.Relu.op_type] * len(weights)
    operands = [x, w, r, bias, lengths, h0, *([c0] if c0 is not None else [])]
    if peephole is not None:
        operands.append(peephole)
    y, *finals = b.ops(operator, *operands, outputs=2 if c0 is None else 3, **attributes)
    if lengths is not None:
        # The operators end a sequence of no steps with zeros, not with its initial state.
        some = (lengths > 0).unsqueeze(0, 2)
        initial = [h0] if c0 is None else [h0, c0]
        finals = [b.where(some, final, first) for final, first in zip(finals, initial, strict=True)]
    y = y.squeeze(1) if len(weights) == 1 else y.transpose(0, 2, 1, 3).reshape(0, 0, 2 * units)
    return LayerResult(y, finals[0], finals[1] if c0 is not None else None)


def stack(parts: list[Expr]) -> Expr:
    """What directions or pseudo-layers have each, one after the other along a new first axis."""
    return concat([part.unsqueeze(0) for part in parts], 0) if len(parts) > 1 else parts[0].unsqueeze(0)


def clamped_lengths(n: Node) -> Expr:
    """sequence_lengths `[B]` within 0..T, as the Scans take them."""
    steps = n.size("T")
    limit = steps if isinstance(steps, int) else steps.cast(ir.DataType.INT32)
    lengths: Expr = n.sequence_lengths
    return lengths.maximum(0).minimum(limit)
