"""Lowering of arithmetic on two or more operands."""

from __future__ import annotations

import functools
import math
import operator

import onnx_ir as ir

from lstm_lower.dims import Dim, agree
from lstm_lower.dtypes import dtype_name, is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call, attr
from lstm_lower.ops.raw import COMPLEX, COMPUTED, FLOATS, INTEGERS, NUMBERS, PAIRED, Binary, RawOp, broadcast
from lstm_lower.passes.formulas.complex_numbers import conjugate
from lstm_lower.passes.formulas.special_functions import atan, truncated
from lstm_lower.passes.rules.registry import Node, lowers, lowers_by, standard, widened

_INT64, _UINT64 = ir.DataType.INT64, ir.DataType.UINT64


def _truncate_div(x: Expr, y: Expr) -> Expr:
    return truncated(x / y) if x.dtype.is_floating_point() else x / y


def _div_no_nan(x: Expr, y: Expr) -> Expr:
    return x.builder.where(y.equals(0), 0, x / y)


def _squared_difference(x: Expr, y: Expr) -> Expr:
    """Of complex numbers the square of the distance."""
    difference = x - y
    return difference * (conjugate(difference) if is_complex(x.dtype) else difference)


def _pow(x: Expr, y: Expr) -> Expr:
    """A Pow; of integers, which onnxruntime rounds to 53 bits, a product of squares.

    From 64 on only powers of -1, 0 and 1 are representable, and it matters only whether the exponent is even.
    """
    b = x.builder
    if x.dtype.is_floating_point():
        return x**y
    rest = b.where(y < 64, y, 62 + y % 2)
    factors = []
    for bit in range(6):
        odd = rest % 2 > 0
        factors.append(b.where(odd, x, 1))
        if bit < 5:
            x, rest = x * x, rest / 2
    return functools.reduce(operator.mul, factors)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle from the nearest axis, whose tangent is at most 1, taken from or added to that of the axis."""
    b = x.builder
    tall, wide = y.abs(), x.abs()
    # Also of two zeros, and of two infinities, which have no quotient.
    equal = tall.equals(wide)
    corner = b.where(tall > 0, tall.like(1), 0)
    tangent = b.where(equal, corner, tall.minimum(wide) / tall.maximum(wide))
    angle = atan(tangent) if x.dtype == ir.DataType.DOUBLE else b.op(std.Atan, tangent)
    angle = b.where(tall > wide, math.pi / 2 - angle, angle)
    angle = b.where(_negative(x), math.pi - angle, angle)
    return b.where(_negative(y), -angle, angle)


def _negative(x: Expr) -> Expr:
    """Whether a number has a minus sign: even a zero may."""
    return (x < 0) | (1 / x < 0)


def _left_shift(x: Expr, y: Expr) -> Expr:
    """A product, which wraps."""
    return x.cast(_INT64) * _power_of_two(y.cast(_INT64))


def _right_shift(x: Expr, y: Expr) -> Expr:
    """A quotient, rounded down; in two steps, since 2^63 is no int64."""
    half = y.cast(_INT64) / 2
    return _floor_div(_floor_div(x.cast(_INT64), _power_of_two(half)), _power_of_two(y.cast(_INT64) - half))


def _floor_div(x: Expr, y: Expr) -> Expr:
    return (x - x % y) / y


def _power_of_two(exponent: Expr) -> Expr:
    table = exponent.builder.ints(*(2**power for power in range(63)), -(2**63))
    return table.take(exponent)


class Add(Binary, T=(*NUMBERS, *COMPLEX)):
    """x + y."""


class AddV2(Binary):
    """x + y."""


class Sub(Binary):
    """x - y."""


class Mul(Binary):
    """x y."""


class RealDiv(Binary, T=(*FLOATS, *COMPLEX)):
    """x / y."""


class Div(Binary):
    """x / y; of integers rounded towards 0."""


class TruncateDiv(Binary, T=NUMBERS):
    """x / y, rounded towards 0."""


class DivNoNan(Binary):
    """x / y, and 0 where y is 0."""


class Pow(Binary, T=(*COMPUTED, "int8", "int16")):
    """x to the power of y."""


class Maximum(Binary):
    """The larger of x and y; NaN where one of them is NaN."""


class Minimum(Binary):
    """The smaller of x and y; NaN where one of them is NaN."""


class SquaredDifference(Binary):
    """(x - y)^2."""


class Atan2(Binary):
    """The angle of the point (x, y)."""


class ClipByValue(RawOp, T=NUMBERS):
    """The nearest number between the two bounds."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Bounds broadcast to the operand's shape."""
        for name in ("clip_value_min", "clip_value_max"):
            whole = broadcast(call, "t", name)
            if not agree(whole, call.operands["t"].shape):
                shape = list(call.operands["t"].shape or ())
                raise call.error(
                    name, f"a shape that broadcasts to {shape} (as t)", list(call.operands[name].shape or ())
                )


lowers_by(
    {
        Add: operator.add,
        AddV2: operator.add,
        Sub: operator.sub,
        Mul: operator.mul,
        RealDiv: operator.truediv,
        Div: operator.truediv,
        TruncateDiv: _truncate_div,
        DivNoNan: _div_no_nan,
        Pow: _pow,
        Maximum: standard(std.Max),
        Minimum: standard(std.Min),
        SquaredDifference: _squared_difference,
        Atan2: atan2,
        ClipByValue: lambda t, low, high: t.minimum(high).maximum(low),
    }
)


def check_alike(call: Call, name: str) -> None:
    """The tensors of a list have one shape.

    Raises:
        InvalidModelError, InvalidInputError: they have not.
    """
    merged: tuple[Dim, ...] | None = None
    for number, info in enumerate(call.lists[name]):
        if info.shape is None:
            continue
        if not agree(merged, info.shape):
            raise call.error(f"{name}[{number}]", f"shape {list(merged or ())} (as those before)", list(info.shape))
        before = merged or info.shape
        merged = tuple(a if isinstance(a, int) else b for a, b in zip(before, info.shape, strict=True))


class _Sum(RawOp, abstract=True):
    """A sum of tensors of one shape."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is something to add, of one shape."""
        if not call.lists["inputs"]:
            raise call.error("inputs", "one tensor or more", "none")
        check_alike(call, "inputs")


class AddN(_Sum):
    """The sum of tensors."""


class AccumulateNV2(_Sum):
    """The sum of tensors; they have one shape, which is `shape`."""

    class Attrs:
        shape = attr(list[int], [])


@lowers(AddN, AccumulateNV2, repeatable=True)
def add_n(n: Node, b: Builder) -> Expr:
    """One after another. They have one shape, of which each may tell a part."""
    parts = [widened(part) for part in n.variadic("inputs")]
    total, shapes = functools.reduce(operator.add, parts), [part.shape for part in parts if part.shape is not None]
    if len(parts) == 1 or not shapes:
        return total
    sizes = [next((size for size in axis if isinstance(size, int)), axis[0]) for axis in zip(*shapes, strict=True)]
    return b.set_shape(total, sizes)


class BitwiseAnd(Binary):
    """The bits that both have."""


class BitwiseOr(Binary):
    """The bits that one of the two has."""


class BitwiseXor(Binary):
    """The bits in which they differ."""


@lowers(BitwiseAnd, BitwiseOr, BitwiseXor, repeatable=True)
def bitwise(n: Node, b: Builder) -> Expr:
    """ONNX's own, of opset 18."""
    operators = {BitwiseAnd: std.BitwiseAnd, BitwiseOr: std.BitwiseOr, BitwiseXor: std.BitwiseXor}
    return b.op(operators[n.op], n.x, n.y)


class LeftShift(Binary):
    """x 2^y; y is taken to be at least 0 and less than the number of bits."""


class RightShift(Binary):
    """x / 2^y, rounded down; y is taken to be at least 0 and less than the number of bits."""


@lowers(LeftShift, RightShift, repeatable=True)
def shift(n: Node, b: Builder) -> Expr:
    """By powers of two, since ONNX shifts unsigned numbers only."""
    x, y, bits = n.x, n.y, n.x.dtype.bitwidth
    y = (y if y.dtype == _UINT64 else y.cast(_INT64).maximum(0)).minimum(bits - 1)
    if n.op is LeftShift:
        return _left_shift(x, y)
    if x.dtype == _UINT64:
        return b.op(std.BitShift, x, y, direction="RIGHT")
    return _right_shift(x, y)


# Bits of a number behind its point, and what is added to its exponent.
_LAYOUTS = {ir.DataType.FLOAT16: (10, 15), ir.DataType.FLOAT: (23, 127), ir.DataType.DOUBLE: (52, 1023)}


class Bitcast(RawOp, T=("float16", *PAIRED, *INTEGERS), type=INTEGERS):
    """The same bits, read as integers with or without a sign; those of NaN are the usual ones of a positive NaN."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """Both dtypes have as many bits, so that shapes stay."""
        given, wanted = call.types.get("T"), call.attributes["type"]
        if given is not None and given.itemsize != wanted.itemsize:
            raise call.error("attribute type", f"integers of as many bits as {dtype_name(given)}", dtype_name(wanted))


@lowers(Bitcast, repeatable=True)
def bitcast(n: Node, _: Builder) -> Expr:
    """A Cast, which lets integers of as many bits wrap."""
    x = n.moved("input")
    return (bits(x) if x.dtype in _LAYOUTS else x).cast(n.call.attributes["type"])


def bits(x: Expr) -> Expr:
    """The bits of floating-point numbers, in int64 and with the sign that integers of as many bits have.

    Below the exponent, which the logarithm tells up to one, all that is left is the size in units of the last place.
    """
    b, (places, bias) = x.builder, _LAYOUTS[x.dtype]
    wide, smallest = x.cast(ir.DataType.DOUBLE), 1 - bias
    size = wide.abs()
    powers = b.constant([2.0**exponent for exponent in range(smallest, bias + 1)], ir.DataType.DOUBLE)
    finite = size <= 2.0**bias * (2 - 2.0**-places)
    number = b.where(finite, size, 1.0)
    estimate = (number.log() * (1 / math.log(2))).floor().maximum(smallest).minimum(bias).cast(_INT64) - smallest
    power = powers.take(estimate)
    nearer = estimate + (number >= power * 2.0).cast(_INT64) - (number < power).cast(_INT64)
    exponent = nearer.maximum(0).minimum(2 * bias - 1)
    units = (number / powers.take(exponent) * 2.0**places).cast(_INT64)
    infinite = (2 * bias + 1) * 2**places
    none = b.where(size > 0.0, b.constant(infinite, _INT64), infinite + 2 ** (places - 1))
    negative = (wide < 0.0) | (wide.equals(0.0) & (1.0 / wide < 0.0))
    found = b.where(finite, exponent * 2**places + units, none)
    return b.where(negative, found + b.constant(-(2 ** (x.dtype.bitwidth - 1)), _INT64), found)
