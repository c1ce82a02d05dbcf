"""Lowering of the ops that round numbers to a grid, and of their gradients.

The order of operations is that of TensorFlow's kernels (tensorflow/core/kernels/fake_quant_ops_functor.h): a rounding
more or less would move numbers by a whole step of the grid.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Expr
from lstm_lower.ops.ordinary.quantization import (
    FakeQuantWithMinMaxArgs,
    FakeQuantWithMinMaxArgsGradient,
    FakeQuantWithMinMaxVars,
    FakeQuantWithMinMaxVarsGradient,
    FakeQuantWithMinMaxVarsPerChannel,
    FakeQuantWithMinMaxVarsPerChannelGradient,
)
from lstm_lower.passes.rules.registry import Node, lowers

_FLOAT = ir.DataType.FLOAT


@dataclasses.dataclass(frozen=True)
class _Grid:
    """The grid on which zero lies.

    Attributes:
        low: its first number.
        high: its last one.
        step: their distance, 1 where the range is empty.
        empty: whether both ends that were asked for are 0.
    """

    low: Expr
    high: Expr
    step: Expr
    empty: Expr

    @classmethod
    def of(cls, n: Node) -> _Grid:
        b, fixed = n.builder, n.op in (FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxArgsGradient)
        least, most = (b.constant(end, _FLOAT) for end in (n.min, n.max)) if fixed else (n.min, n.max)
        empty = b.op(std.And, b.op(std.Equal, least, least.like(0)), b.op(std.Equal, most, most.like(0)))
        first, last = int(n.narrow_range), 2**n.num_bits - 1
        step = b.where(empty, 1, (most - least) / (last - first))
        zero = b.op(std.Floor, (first - least / step).maximum(first).minimum(last) + 0.5)
        return cls((first - zero) * step, (last - zero) * step, step, empty)


@lowers(FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxVars, FakeQuantWithMinMaxVarsPerChannel, repeatable=True)
def rounded(n: Node) -> dict[str, Expr]:
    """The nearest number of the grid."""
    b, grid = n.builder, _Grid.of(n)
    inverse = b.op(std.Reciprocal, grid.step)
    zero = b.op(std.Floor, 0.5 - grid.low * inverse)
    inside = n.inputs.minimum(grid.high).maximum(grid.low)
    steps = b.op(std.Floor, (inside - grid.low) * inverse - zero + 0.5)
    return {"outputs": b.where(grid.empty, 0, steps * grid.step)}


@lowers(FakeQuantWithMinMaxArgsGradient, repeatable=True)
def fixed_gradient(n: Node) -> dict[str, Expr]:
    """Of the identity on the grid's range."""
    below, above = _beyond(n, _Grid.of(n))
    return {"backprops": n.builder.where(n.builder.op(std.Or, below, above), 0, n.gradients)}


@lowers(FakeQuantWithMinMaxVarsGradient, FakeQuantWithMinMaxVarsPerChannelGradient, repeatable=True)
def gradient(n: Node) -> dict[str, Expr]:
    """Of the identity on the grid's range, and of its ends beyond."""
    b, dy, grid = n.builder, n.gradients, _Grid.of(n)
    below, above = (b.op(std.And, side, b.op(std.Not, grid.empty)) for side in _beyond(n, grid))
    return {
        "backprops_wrt_input": b.where(b.op(std.Or, below, above), 0, dy),
        "backprop_wrt_min": _total(n, b.where(below, dy, 0)),
        "backprop_wrt_max": _total(n, b.where(above, dy, 0)),
    }


def _beyond(n: Node, grid: _Grid) -> tuple[Expr, Expr]:
    return n.inputs < grid.low, n.inputs > grid.high


def _total(n: Node, x: Expr) -> Expr:
    if n.op is FakeQuantWithMinMaxVarsGradient:
        return x.reshape(-1).sum(0)
    if x.shape is None:
        raise n.unsupported("inputs", "a known rank", "an unknown one")
    axes = list(range(len(x.shape) - 1))
    return x.sum(axes) if axes else x
