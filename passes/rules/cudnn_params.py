"""Lowering of the ops on cuDNN's params buffer: a constant, slices, and a concatenation, read off the layout table."""

from __future__ import annotations

from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.layouts import ParamsBlock, ParamsLayout
from lstm_lower.ops.cudnn_params import (
    CudnnRNNCanonicalToParams,
    CudnnRNNCanonicalToParamsV2,
    CudnnRNNParamsSize,
    CudnnRNNParamsToCanonical,
    CudnnRNNParamsToCanonicalV2,
    layout_of,
)
from lstm_lower.passes.rules.registry import Node, lowers


def known_layout(n: Node) -> ParamsLayout:
    """The layout.

    Raises:
        UnsupportedOpError: one of the sizes is not a constant.
    """
    layout = layout_of(n.call)
    if layout is None:
        open_size = next(name for name in n.op.static_operands if n.constant(name) is None)
        raise n.unsupported(open_size, "a constant, since the layout of params depends on it", "a run-time value")
    return layout


@lowers(CudnnRNNParamsSize)
def params_size(n: Node, b: Builder) -> Expr:
    """The size is known."""
    return b.constant([known_layout(n).size], n.S)


@lowers(CudnnRNNParamsToCanonical, CudnnRNNParamsToCanonicalV2)
def params_to_canonical(n: Node, b: Builder) -> list[Expr]:
    """One slice per part."""
    layout = known_layout(n)
    return [
        n.params.slice(block.offset, block.end, axis=0).reshape(*block.shape)
        if block.size
        else b.fill(0, block.shape, n.params.dtype)
        for block in (*layout.canonical_weights(), *layout.canonical_biases())
    ]


@lowers(CudnnRNNCanonicalToParams, CudnnRNNCanonicalToParamsV2)
def canonical_to_params(n: Node, _: Builder) -> Expr:
    """All parts end to end."""
    layout = known_layout(n)

    def flat(parts: list[Expr], blocks: list[ParamsBlock]) -> list[Expr]:
        return [part.reshape(-1) for part, block in zip(parts, blocks, strict=True) if block.size]

    weights = flat(n.variadic("weights"), layout.canonical_weights())
    return concat([*weights, *flat(n.variadic("biases"), layout.canonical_biases())], 0)
