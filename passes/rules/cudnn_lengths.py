"""Ragged sequences: which steps lie within their sequence."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.passes.infer import constant_of
from lstm_lower.passes.known import known_entries
from lstm_lower.passes.rules.registry import Node


def running_steps(n: Node) -> Expr | None:
    """`[T, B, 1]`: t < length; `None` when every sequence is known to be full.

    At run time, lengths beyond T count as T and negative ones as 0.
    """
    lengths = n.get("sequence_lengths", None)
    if lengths is None or _all_full(n):
        return None
    b, steps = n.builder, n.size("T")
    if isinstance(steps, int):
        times = b.constant(list(range(steps)), ir.DataType.INT32)
    else:
        zero, one = (b.constant(value, ir.DataType.INT32) for value in (0, 1))
        times = b.op(std.Range, zero, steps.cast(ir.DataType.INT32).squeeze(0), one)
    running: Expr = times.unsqueeze(1, 2) < lengths.unsqueeze(0, 2)
    return running


def _all_full(n: Node) -> bool:
    """Whether sequence_lengths is a constant of T, or filled with one, as Keras does for sequences without a mask."""
    steps: Dim = n.call.sizes.get("T")
    if steps is None:
        return False
    constant = n.constant("sequence_lengths")
    if constant is not None:
        return bool((constant == steps).all())
    return filled_with(n.value("sequence_lengths")) == steps


def filled_with(value: ir.Value | None) -> Dim:
    """The one entry that an integer tensor is filled with, as a number or the name of a size; `None` when unknown."""
    if value is None:
        return None
    constant = constant_of(value)
    if constant is not None:
        first = constant.reshape(-1)[:1]
        return int(first[0]) if first.size and (constant == first[0]).all() else None
    node = value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type == "ConstantOfShape":
        tensor = node.attributes.get("value")
        return int(tensor.as_tensor().numpy().reshape(-1)[0]) if tensor is not None else 0
    if node.op_type in ("Expand", "Tile", "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze"):
        return filled_with(node.inputs[0])
    entries = known_entries(value)
    return entries[0] if entries is not None and len(entries) == 1 else None
