"""Lowering of the elementwise ops around losses: each one is its formula."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, FLOATS, Binary, RawOp, broadcast
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.special_functions import expm1_of, log1p_of, sum_of_squares
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


class L2Loss(RawOp):
    """Half the sum of squares, sum(t * t) / 2."""


class Log1p(RawOp, T=FLOATS):
    """log(1 + x), accurate also where x is close to 0."""


class Expm1(RawOp, T=FLOATS):
    """exp(x) - 1, accurate also where x is close to 0."""


class Inv(RawOp, T=FLOATS):
    """1 / x, under the name it has in older graphs."""


class Snapshot(RawOp):
    """Its input: TensorFlow's own optimiser puts it where it found a constant factor of one."""


@lowers(Snapshot)
def snapshot(n: Node, _: Builder) -> Expr:
    """The input."""
    return n.input


def _unless_zero(condition: Expr, value: Expr) -> Expr:
    return value.builder.where(condition.equals(0), 0, value)


class Xdivy(Binary, T=FLOATS):
    """x / y, and 0 where x is 0."""


class Xlogy(Binary, T=FLOATS):
    """x log(y), and 0 where x is 0."""


class Xlog1py(Binary, T=FLOATS):
    """x log(1 + y), and 0 where x is 0."""


class MulNoNan(Binary, T=FLOATS):
    """x y, and 0 where y is 0, even if x is infinite or NaN."""


lowers_by(
    {
        L2Loss: lambda t: sum_of_squares(t) * 0.5,
        Log1p: log1p_of,
        Expm1: expm1_of,
        Inv: lambda x: 1 / x,
        Xdivy: lambda x, y: _unless_zero(x, x / y),
        Xlogy: lambda x, y: _unless_zero(x, x * y.log()),
        Xlog1py: lambda x, y: _unless_zero(x, x * log1p_of(y)),
        MulNoNan: lambda x, y: _unless_zero(y, x * y),
    }
)


class TruncateMod(Binary):
    """Remainder of the division that rounds towards 0: it has x's sign."""


class Mod(TruncateMod):
    """TruncateMod, under the name it has in older graphs."""


@lowers(TruncateMod, Mod)
def truncate_mod(n: Node, _: Builder) -> Expr:
    """C's remainder."""
    return _truncated(n)


def _truncated(n: Node) -> Expr:
    x: Expr = n.x
    return x.builder.op(std.Mod, x, n.operand("y"), fmod=1)


class FloorMod(Binary, T=COMPUTED):
    """Remainder of the division that rounds down: it has y's sign."""


@lowers(FloorMod)
def floor_mod(n: Node, b: Builder) -> Expr:
    """C's remainder, moved to y's side of 0; on integers ONNX's remainder has y's sign already."""
    if n.x.dtype in _INTEGERS:
        return n.x % n.y
    remainder = _truncated(n)
    right = (remainder < 0).equals(n.y < 0) | remainder.equals(0)
    return b.where(right, remainder, remainder + n.y)


class FloorDiv(Binary, T=COMPUTED):
    """Quotient, rounded down."""


@lowers(FloorDiv)
def floor_div(n: Node, _: Builder) -> Expr:
    """The quotient, rounded down; on integers ONNX's quotient is exact once the remainder is taken off."""
    if n.x.dtype in _INTEGERS:
        return (n.x - n.x % n.y) / n.y
    return (n.x / n.y).floor()


class SelectV2(RawOp):
    """t where the condition holds, e elsewhere; the operands broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        broadcast(call, "condition", "t", "e")


@lowers(SelectV2)
def select_v2(n: Node, _: Builder) -> Expr:
    """A Where: a sum of masked operands, as tf2onnx has it, would carry over NaN from the masked one."""
    return _choice(n.condition, n.t, n.e)


def _choice(condition: Expr, x: Expr, y: Expr) -> Expr:
    b = condition.builder
    if x.dtype == ir.DataType.BOOL:
        # onnxruntime has no Where on truth values.
        return condition & x | ~condition & y
    return b.op(std.Where, condition, computed(x), computed(y))


def _rows(condition: Expr, x: Expr) -> Expr:
    """A vector with axes of size 1 behind, so many that it meets x's first axis."""
    b = condition.builder
    if x.shape is not None:
        added = range(1, len(x.shape))
        return condition.unsqueeze(*added)
    ones = b.fill(1, x.sizes().sizes() - 1, ir.DataType.INT64)
    return b.op(std.Reshape, condition, b.concat([b.ints(-1), ones], 0))


def _filled(condition: Expr, x: Expr) -> Expr:
    """A condition of unknown rank with axes of size 1 behind: it may be a scalar, one entry a row, or as large as x."""
    b = condition.builder
    sizes = condition.sizes()
    ones = b.fill(1, x.sizes().sizes() - sizes.sizes(), ir.DataType.INT64)
    return b.op(std.Reshape, condition, b.concat([sizes, ones], 0))


class Select(RawOp, x="*S", y="*S"):
    """SelectV2 in older graphs: x and y have one shape; a condition that is a vector chooses rows."""


@lowers(Select)
def select(n: Node, b: Builder) -> Expr:
    """The same; axes of size 1 behind a vector let it choose rows."""
    condition = n.condition
    if condition.shape is None:
        condition = _filled(condition, n.x)
    elif len(condition.shape) == 1:
        condition = _rows(condition, n.x)
    output = _choice(condition, n.x, n.y)
    # Its rows are as many as the condition's entries, which need not be known to be equal.
    return output if n.x.shape is None else b.set_shape(output, n.x.shape)
