"""Dropout between layers: masks are drawn by the forward op and travel in reserve_space.

Masks are scaled by 1/(1-p) already. They come from onnxruntime's generator seeded with the op's seeds, not from cuDNN's
stream; with both seeds 0 every session draws its own, as TensorFlow does.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.layouts import ParamsLayout
from lstm_lower.passes.emit import Expr, concat
from lstm_lower.passes.rules.registry import Node

# Seeds of ONNX's generators are float attributes: integers up to here are exact.
_SEED_RANGE = 1 << 24


def mask_sizes(layout: ParamsLayout, x: Expr) -> list[int | Expr]:
    """`[T, B, D*H]`: the shape of the masks between two layers."""
    return [x.size(0), x.size(1), layout.output_size]


def draw_masks(n: Node, layout: ParamsLayout, x: Expr) -> Expr:
    """Scaled masks of all layer boundaries, flat: boundary, time, batch, direction times units."""
    b = n.builder
    template = b.fill(0, mask_sizes(layout, x), ir.DataType.FLOAT)
    masks = []
    for boundary in range(layout.num_layers - 1):
        uniform = b.op("RandomUniformLike", template, **_seed(n, boundary))
        keep = b.op("GreaterOrEqual", uniform, uniform.like(n.dropout)).cast(x.dtype)
        masks.append((keep * (1 / (1 - n.dropout) if n.dropout < 1 else 0.0)).reshape(-1))
    return concat(masks, 0)


def _seed(n: Node, boundary: int) -> dict[str, float]:
    if n.seed == 0 and n.seed2 == 0:
        return {}
    # A multiplier of Knuth's spreads neighbouring seeds; boundaries need streams of their own.
    mixed = ((n.seed * 2654435761) ^ n.seed2) + 7919 * boundary
    return {"seed": float(mixed % _SEED_RANGE)}


def read_masks(reserve_space: Expr, layout: ParamsLayout, x: Expr) -> list[Expr]:
    """The masks between layers, each `[T, B, D*H]`, out of a flat buffer."""
    b, count = x.builder, layout.num_layers - 1
    shape = b.sizes([count, *mask_sizes(layout, x)])
    stacked = b.op("Reshape", reserve_space, shape)
    parts = stacked.split(count, axis=0) if count > 1 else [stacked]
    return [part.squeeze(0) for part in parts]
