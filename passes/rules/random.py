"""Lowering of TensorFlow's stateless random numbers: Philox 4x32-10 in int64, as a Scan over its ten rounds.

The 32-bit words of counter and key are kept in int64, the four words of a counter as pairs: `even` holds words 0 and 2,
which a round multiplies, `odd` words 1 and 3.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.expressions import Builder, Expr, concat
from lstm_lower.ops.random import (
    KEY_STEPS,
    MULTIPLIERS,
    ROUNDS,
    SCRAMBLE_KEY,
    SMALLEST_FRACTION,
    StatelessRandomGetAlg,
    StatelessRandomGetKeyCounter,
    StatelessRandomNormalV2,
    StatelessRandomUniformFullIntV2,
    StatelessRandomUniformIntV2,
    StatelessRandomUniformV2,
)
from lstm_lower.passes.rules.registry import Node, lowers

INT64, UINT64 = ir.DataType.INT64, ir.DataType.UINT64
END = 2**31 - 1


def _and(x: Expr, mask: int) -> Expr:
    return x.builder.op(std.BitwiseAnd, x, x.like(mask))


def _xor(x: Expr, y: Expr) -> Expr:
    return x.builder.op(std.BitwiseXor, x, y)


def _shift(x: Expr, direction: str) -> Expr:
    """Shifts uint64 by a word."""
    return x.builder.op(std.BitShift, x, x.like(32), direction=direction)


def _low(x: Expr) -> Expr:
    return _and(x, 0xFFFFFFFF)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """Low and high word of uint64 numbers."""
    return _low(x).cast(INT64), _shift(x, "RIGHT").cast(INT64)


def _joined(low: Expr, high: Expr) -> Expr:
    return low.builder.op(std.BitwiseOr, low.cast(UINT64), _shift(high.cast(UINT64), "LEFT"))


def _product(words: Expr, factors: Expr) -> tuple[Expr, Expr]:
    """High and low word of the products, by halves of words: no intermediate result needs more than 49 bits."""
    b = words.builder
    half = words.like(2**16)
    upper = b.op(std.Div, words, half) * factors
    lower = _and(words, 0xFFFF) * factors
    high = b.op(std.Div, upper + b.op(std.Div, lower, half), half)
    return high, _low(_and(upper, 0xFFFF) * half + lower)


def _philox(b: Builder, even: Expr, odd: Expr, key: Expr) -> tuple[Expr, Expr]:
    """Ten rounds; even and odd [2, N], key [2, 1]."""
    factors = b.constant([[number] for number in MULTIPLIERS], INT64)
    steps = b.constant([[number] for number in KEY_STEPS], INT64)
    swapped = b.ints(1, 0)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:  # noqa: ARG001
        even, odd, key = states
        high, low = (part.builder.op(std.Gather, part, swapped, axis=0) for part in _product(even, factors))
        return [_xor(_xor(high, odd), key), low, _low(key + steps)], []

    (even, odd, _), _ = b.scan(body, states=[even, odd, key], inputs=[b.ints(*range(ROUNDS))])
    return even, odd


def _require_bitwise(n: Node) -> None:
    if n.builder.opset < 18:
        raise n.unsupported("the node", "opset 18 or higher (it needs BitwiseXor)", n.builder.opset)


@lowers(StatelessRandomGetKeyCounter)
def key_and_counter(n: Node) -> dict[str, Expr]:
    """The seed's own random words; the lower half of the counter starts at 0."""
    _require_bitwise(n)
    b = n.builder
    low, high = _split(n.seed.cast(INT64).cast(UINT64))
    key = b.constant([[number] for number in SCRAMBLE_KEY], INT64)
    even, odd = _philox(b, low.unsqueeze(1), high.unsqueeze(1), key)
    mixed = _joined(even, odd).reshape(2)
    zero = b.constant([0], UINT64)
    return {"key": mixed.slice(0, 1, axis=0), "counter": concat([zero, mixed.slice(1, 2, axis=0)], 0)}


@lowers(StatelessRandomGetAlg)
def preferred_algorithm(n: Node) -> dict[str, Expr]:
    """Philox."""
    return {"alg": n.builder.constant(1, ir.DataType.INT32)}


@lowers(StatelessRandomUniformV2)
def uniform(n: Node) -> dict[str, Expr]:
    """Numbers in the order of their words."""
    shape = n.shape.cast(INT64)
    dtype = ir.DataType(n.call.attributes["dtype"])
    flat = _fractions(n, n.builder.op(std.ReduceProd, shape, keepdims=0).reshape(1), dtype)
    return {"output": n.builder.op(std.Reshape, flat, shape, allowzero=1)}


@lowers(StatelessRandomNormalV2)
def normal(n: Node) -> dict[str, Expr]:
    """Pairs of uniform numbers by Box and Muller's method, for halves in float32."""
    b = n.builder
    shape = n.shape.cast(INT64)
    dtype = ir.DataType(n.call.attributes["dtype"])
    count = b.op(std.ReduceProd, shape, keepdims=0).reshape(1)
    pairs = b.op(std.Div, count + 1, b.ints(2))
    wide = dtype if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    fractions = _fractions(n, pairs * 2, wide).reshape(-1, 2)
    radius = b.op(std.Sqrt, b.op(std.Log, fractions.slice(0, 1, axis=1).maximum(SMALLEST_FRACTION)) * -2.0)
    angle = fractions.slice(1, 2, axis=1) * (2 * math.pi)
    numbers = concat([b.op(std.Sin, angle), b.op(std.Cos, angle)], 1) * radius
    flat = numbers.cast(dtype).reshape(-1).slice(0, count, axis=0)
    return {"output": b.op(std.Reshape, flat, shape, allowzero=1)}


def _fractions(n: Node, count: Expr, dtype: ir.DataType) -> Expr:
    """As many uniform numbers: four words for each value of the counter, low bits behind the binary point."""
    words = _words(n, count, 2 if dtype == ir.DataType.DOUBLE else 4)
    if dtype == ir.DataType.DOUBLE:
        pairs = words.reshape(-1, 2)
        upper, lower = pairs.slice(0, 1, axis=1), pairs.slice(1, 2, axis=1)
        values = (_and(upper, 0xFFFFF) * 2**32 + lower).cast(dtype) * 2.0**-52
    else:
        bits = 23 if dtype == ir.DataType.FLOAT else 10
        values = _and(words, 2**bits - 1).cast(dtype) * 2.0**-bits
    return values.reshape(-1).slice(0, count, axis=0)


def _words(n: Node, count: Expr, each: int) -> Expr:
    """Groups of four words [groups, 2, 2] for so many numbers, of which a group makes `each`."""
    _require_bitwise(n)
    b = n.builder
    groups = b.op(std.Div, count + (each - 1), b.ints(each))
    numbers = b.op(std.Range, b.constant(0, INT64), groups.reshape(), b.constant(1, INT64))
    even, odd = _philox(b, *_counters(n.counter, numbers), concat(list(_split(n.key)), 0).unsqueeze(1))
    # [2, N] twice -> N groups of words 0, 1, 2, 3.
    return concat([even.unsqueeze(2), odd.unsqueeze(2)], 2).transpose(1, 0, 2)


@lowers(StatelessRandomUniformFullIntV2, StatelessRandomUniformIntV2)
def integers(n: Node) -> dict[str, Expr]:
    """The words, or pairs of them, as they are; or their remainders, which are counted from the lower bound."""
    b, shape, dtype = n.builder, n.shape.cast(INT64), n.call.types["dtype"]
    assert dtype is not None
    wide = dtype in (INT64, UINT64)
    count = b.op(std.ReduceProd, shape, keepdims=0).reshape(1)
    words = _words(n, count, 2 if wide else 4)
    if wide:
        pairs = words.reshape(-1, 2)
        numbers = _joined(pairs.slice(0, 1, axis=1), pairs.slice(1, 2, axis=1))
    else:
        numbers = words
    numbers = numbers.reshape(-1).slice(0, count, axis=0)
    if n.op is StatelessRandomUniformIntV2:
        low, high = n.minval.cast(INT64), n.maxval.cast(INT64)
        remainder = b.op(std.Mod, numbers, (high - low).cast(numbers.dtype))
        numbers = remainder.cast(INT64) + low
    elif dtype == ir.DataType.INT32:
        # A word from 2**31 on stands for a negative number.
        numbers = b.where(numbers < 2**31, numbers, numbers - 2**32)
    return {"output": b.op(std.Reshape, numbers.cast(dtype), shape, allowzero=1)}


def _counters(start: Expr, numbers: Expr) -> tuple[Expr, Expr]:
    """The words of start + number, for each number [N], carried over from word to word."""
    low, high = _split(start)
    words = []
    carried = numbers
    for half in range(2):
        for part in (low, high):
            total = part.slice(half, half + 1, axis=0) + carried
            words.append(_low(total).unsqueeze(0))
            carried = total.builder.op(std.Div, total, total.like(2**32))
    return concat([words[0], words[2]], 0), concat([words[1], words[3]], 0)
