"""Dropout between layers: masks are drawn by the forward op and travel in reserve_space.

Masks are scaled by 1/(1-p) already. They come from onnxruntime's generator seeded with the op's seeds, not from cuDNN's
stream; with both seeds 0 every session draws its own, as TensorFlow does.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.layouts import ParamsLayout
from lstm_lower.passes.rules.registry import Node


def mask_sizes(layout: ParamsLayout, x: Expr) -> list[int | Expr]:
    """`[T, B, D*H]`: the shape of the masks between two layers."""
    return [x.size(0), x.size(1), layout.output_size]


def draw_masks(n: Node, b: Builder, layout: ParamsLayout, x: Expr) -> Expr:
    """Scaled masks of all layer boundaries, flat: boundary, time, batch, direction times units."""
    sizes = mask_sizes(layout, x)
    if n.dropout == 1:
        return b.fill(0, [layout.num_layers - 1, *sizes], x.dtype).reshape(-1)
    # ONNX's own generators end with opset 21 in onnxruntime; Dropout draws in all of them. It draws on data of the run,
    # for a Dropout of constants would be folded into one draw for ever.
    data = b.op(std.Expand, x.slice(0, 1, axis=2), b.sizes(sizes))
    ratio, training = b.constant(n.dropout, ir.DataType.FLOAT), b.constant(True, ir.DataType.BOOL)
    masks = []
    for boundary in range(layout.num_layers - 1):
        _, keep = b.ops(std.Dropout, data, ratio, training, outputs=2, **_seed(n, boundary))
        masks.append((keep.cast(x.dtype) * (1 / (1 - n.dropout))).reshape(-1))
    return concat(masks, 0)


def _seed(n: Node, boundary: int) -> dict[str, int]:
    """Boundaries need streams of their own; the multipliers spread neighbouring seeds."""
    if n.seed == 0 and n.seed2 == 0:
        return {}
    return {"seed": (n.seed * 2654435761 + n.seed2 * 40503 + boundary * 7919) % (1 << 31)}


def read_masks(reserve_space: Expr, layout: ParamsLayout, x: Expr) -> list[Expr]:
    """The masks between layers, each `[T, B, D*H]`, out of a flat buffer."""
    b, count = x.builder, layout.num_layers - 1
    shape = b.sizes([count, *mask_sizes(layout, x)])
    stacked = b.op(std.Reshape, reserve_space, shape)
    parts = stacked.split(count, axis=0) if count > 1 else [stacked]
    return [part.squeeze(0) for part in parts]
