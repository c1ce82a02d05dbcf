"""Lowering of the ops that round numbers to a grid, and of their gradients.

The order of operations is that of TensorFlow's kernels (tensorflow/core/kernels/fake_quant_ops_functor.h,
quantize_and_dequantize_op.h): a rounding more or less would move numbers by a whole step of the grid.

Symbols: C channels, the last axis. The grid has `2 ** num_bits`
numbers, or one less with `narrow_range`, from `min` to `max`, both moved a little so that zero lies on it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import agree
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import PAIRED, RawOp, number, shape_of
from lstm_lower.passes.rules.registry import Node, lowers, rank_of

_FLOAT = ir.DataType.FLOAT


class _Simulated(RawOp, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """TensorFlow's kernels take so many bits."""
        bits = call.attributes["num_bits"]
        if not 2 <= bits <= 16:
            raise call.error("attribute num_bits", "a number from 2 to 16", bits)


class _Fixed(_Simulated, abstract=True):
    @classmethod
    def verify(cls, call: Call) -> None:
        """The grid has an extent."""
        super().verify(call)
        low, high = call.attributes["min"], call.attributes["max"]
        if low >= high:
            raise call.error("attribute max", f"a number above min, {low}", high)


class FakeQuantWithMinMaxArgs(_Fixed):
    """Numbers rounded to a grid between two constants."""


class FakeQuantWithMinMaxArgsGradient(_Fixed, gradients="*S", inputs="*S"):
    """Gradient of FakeQuantWithMinMaxArgs: that of the identity on the grid's range, none beyond."""


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
    def of(cls, n: Node, b: Builder) -> _Grid:
        fixed = n.op in (FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxArgsGradient)
        least, most = (b.constant(end, _FLOAT) for end in (n.min, n.max)) if fixed else (n.min, n.max)
        empty = least.equals(0) & most.equals(0)
        first, last = int(n.narrow_range), 2**n.num_bits - 1
        step = b.where(empty, 1, (most - least) / (last - first))
        zero = ((first - least / step).maximum(first).minimum(last) + 0.5).floor()
        return cls((first - zero) * step, (last - zero) * step, step, empty)


class FakeQuantWithMinMaxVars(_Simulated, min="", max=""):
    """Numbers rounded to a grid; zeros where `min` and `max` are 0."""


class FakeQuantWithMinMaxVarsPerChannel(_Simulated, inputs="*S C", min="C", max="C"):
    """Numbers rounded to a grid of each channel's own."""


@lowers(FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxVars, FakeQuantWithMinMaxVarsPerChannel, repeatable=True)
def rounded(n: Node, b: Builder) -> Expr:
    """The nearest number of the grid."""
    grid = _Grid.of(n, b)
    inverse = b.op(std.Reciprocal, grid.step)
    zero = (0.5 - grid.low * inverse).floor()
    inside = n.inputs.minimum(grid.high).maximum(grid.low)
    steps = ((inside - grid.low) * inverse - zero + 0.5).floor()
    return b.where(grid.empty, 0, steps * grid.step)


@lowers(FakeQuantWithMinMaxArgsGradient, repeatable=True)
def fixed_gradient(n: Node, b: Builder) -> Expr:
    """Of the identity on the grid's range."""
    below, above = _beyond(n, _Grid.of(n, b))
    return b.where(below | above, 0, n.gradients)


class FakeQuantWithMinMaxVarsGradient(_Simulated, gradients="*S", inputs="*S", min="", max=""):
    """Gradient of FakeQuantWithMinMaxVars: what lies beyond the grid's range goes to its ends."""


class FakeQuantWithMinMaxVarsPerChannelGradient(_Simulated, gradients="*S C", inputs="*S C", min="C", max="C"):
    """Gradient of FakeQuantWithMinMaxVarsPerChannel."""


@lowers(FakeQuantWithMinMaxVarsGradient, FakeQuantWithMinMaxVarsPerChannelGradient, repeatable=True)
def gradient(n: Node, b: Builder) -> list[Expr]:
    """Of the identity on the grid's range, and of its ends beyond."""
    dy, grid = n.gradients, _Grid.of(n, b)
    below, above = (side & ~grid.empty for side in _beyond(n, grid))
    return [
        b.where(below | above, 0, dy),
        _total(n, b.where(below, dy, 0)),
        _total(n, b.where(above, dy, 0)),
    ]


def _beyond(n: Node, grid: _Grid) -> tuple[Expr, Expr]:
    return n.inputs < grid.low, n.inputs > grid.high


def _total(n: Node, x: Expr) -> Expr:
    if n.op is FakeQuantWithMinMaxVarsGradient:
        return x.reshape(-1).sum(0)
    axes = list(range(rank_of(n, "inputs", x) - 1))
    return x.sum(axes)


def _along_axis(n: Node, ends: Expr) -> Expr:
    """Ends, which are numbers for all elements or for each place of an axis, as what broadcasts with the input."""
    return ends if n.axis == -1 else ends.reshape(-1, *[1] * (rank_of(n, "input", n.input) - 1 - n.axis))


def _extent(n: Node, b: Builder) -> tuple[Expr, Expr]:
    """The least and the largest number of all or of each place of the axis; NaN does not count."""
    x, ends = n.input, list[Expr]()
    if n.range_given:
        return _along_axis(n, n.input_min), _along_axis(n, n.input_max)
    missing = b.op(std.IsNaN, x)
    for op, beyond in ((std.ReduceMin, math.inf), (std.ReduceMax, -math.inf)):
        counted = b.where(missing, beyond, x)
        others = None if n.axis == -1 else [axis for axis in range(rank_of(n, "input", x)) if axis != n.axis]
        ends.append(
            b.op(op, counted, keepdims=0) if others is None else counted.reduce(op, others) if others else counted
        )
    return ends[0], ends[1]


class _Ranged(RawOp, abstract=True, T=PAIRED):
    """An op whose ends are numbers, or vectors with one for each place along `axis` if that is not -1."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Ends for each channel, or for all."""
        shape, axis = shape_of(call, "input"), call.attributes["axis"]
        if axis < -1 or (shape is not None and axis >= len(shape)):
            what = "-1 or more" if shape is None else f"a number from -1 to {len(shape) - 1} (axes of input)"
            raise call.error("attribute axis", what, axis)
        if not call.attributes.get("range_given", True):
            return
        wanted = () if axis == -1 else (None if shape is None else shape[axis],)
        for name in ("input_min", "input_max"):
            found = shape_of(call, name)
            if found is not None and not agree(found, wanted):
                raise call.error(name, f"shape {list(wanted)} (axis {axis} of input)", list(found))


class _Dequantized(_Ranged, abstract=True):
    @classmethod
    def bits(cls, call: Call) -> int | None:
        """The number of bits, where it is known."""
        bits: Any = call.attributes.get("num_bits")
        return bits if isinstance(bits, int) else number(call, "num_bits")

    @classmethod
    def verify(cls, call: Call) -> None:
        """TensorFlow's kernels take so many bits."""
        super().verify(call)
        bits, most = cls.bits(call), 61 if call.attributes["signed_input"] else 62
        if bits is not None and not 1 <= bits <= most:
            raise call.error("num_bits", f"a number from 1 to {most}", bits)


class QuantizeAndDequantizeV2(_Dequantized):
    """Numbers rounded to multiples of a step, so large that `num_bits` bits count all from the least to the largest.

    These are `input_min` and `input_max` with `range_given`, and then ends of what comes out, else the operand's own.
    `signed_input` says whether the numbers of the bits are signed; `narrow_range` leaves out the least of these.
    """


class QuantizeAndDequantizeV3(_Dequantized, num_bits=""):
    """QuantizeAndDequantizeV2 with an operand for the number of bits; halves are rounded to even multiples."""

    static_operands = ("num_bits",)


class QuantizeAndDequantizeV4(QuantizeAndDequantizeV2):
    """QuantizeAndDequantizeV2, but for its gradient in TensorFlow."""


@lowers(QuantizeAndDequantizeV2, QuantizeAndDequantizeV3, QuantizeAndDequantizeV4, repeatable=True)
def quantized_and_dequantized(n: Node, b: Builder) -> Expr:
    """Scaled by the end that needs the larger step, rounded, and scaled back."""
    if n.op is QuantizeAndDequantizeV3:
        n.fixed("num_bits")
    x, bits, signed = n.input, n.op.bits(n.call), bool(n.signed_input)
    last = 2 ** (bits - signed) - 1
    first = -last - (not n.narrow_range) if signed else 0
    least, most = _extent(n, b)
    largest = float(np.finfo(x.dtype.numpy()).max)

    def scale(count: int, end: Expr) -> Expr:
        fits = end * float(count) > 0
        return b.where(fits, float(count) / b.where(fits, end, 1.0), largest)

    by_least, by_most = scale(first, least), scale(last, most)
    lower = by_least < by_most
    step = most / float(last)
    if first:
        step = b.where(lower, least / float(first), step)
    if n.range_given:
        least, most = b.where(lower, least, step * float(first)), b.where(lower, step * float(last), most)
        x = x.minimum(most).maximum(least)
    x = x * b.where(lower, by_least, by_most)
    half_up = n.get("round_mode", "") == "HALF_UP"
    return ((x + 0.5).floor() if half_up else b.op(std.Round, x)) * step


class QuantizeAndDequantizeV4Grad(_Ranged, gradients="*S", input="*S", input_min="*E", input_max="*E"):
    """Gradient of QuantizeAndDequantizeV4: that of the identity from `input_min` to `input_max`, none beyond."""


@lowers(QuantizeAndDequantizeV4Grad, repeatable=True)
def quantized_and_dequantized_grad(n: Node, b: Builder) -> list[Expr]:
    """Of the identity on the range."""
    x = n.input
    within = [~(x < _along_axis(n, n.input_min)), ~(x > _along_axis(n, n.input_max))]
    nothing = [b.zeros_like(end) for end in (n.input_min, n.input_max)]
    inside = b.op(std.And, *within) & ~b.op(std.IsNaN, x)
    return [n.gradients * inside.cast(x.dtype), *nothing]
