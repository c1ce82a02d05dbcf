"""TensorFlow's random words as formulas: Philox 4x32-10, as a Scan over its ten rounds.

The 32-bit words of counter and key are kept in uint64, which holds the product of two, the four words of a counter as
pairs: `even` holds words 0 and 2, which a round multiplies, `odd` words 1 and 3. Words are halves of products by shifts
and masks: a division of integers takes onnxruntime four times as long (1.32.0).
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat

# Of Philox 4x32-10: factors and what is added to the key, round by round.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

# TensorFlow scrambles the user's seed with this key first.
SCRAMBLE_KEY = (0x3EC8F720, 0x02461E29)

# Box and Muller's method takes the logarithm of a uniform number, which must not be 0.
SMALLEST_FRACTION = 1e-7

INT64, UINT64 = ir.DataType.INT64, ir.DataType.UINT64


@dataclasses.dataclass(frozen=True)
class Stream:
    """The state that determines random numbers.

    Attributes:
        key: uint64 [1].
        counter: uint64 [2], the lower half first.
    """

    key: Expr
    counter: Expr

    @classmethod
    def of_seed(cls, seed: Expr) -> Stream:
        """The stream of a seed [2]: the seed's own random words; the lower half of the counter starts at 0."""
        b = seed.builder
        low, high = split(seed.cast(INT64).cast(UINT64))
        key = b.constant([[number] for number in SCRAMBLE_KEY], UINT64)
        even, odd = _philox(b, low.unsqueeze(1), high.unsqueeze(1), key)
        mixed = joined(even, odd).reshape(2)
        zero = b.constant([0], UINT64)
        return cls(mixed.slice(0, 1, axis=0), concat([zero, mixed.slice(1, 2, axis=0)], 0))

    def words(self, numbers: Expr) -> Expr:
        """Groups of four words [N, 2, 2] in int64 for values [N] of the counter, which are counted from its own."""
        b, key = numbers.builder, concat(list(split(self.key)), 0).unsqueeze(1)
        even, odd = _philox(b, *_counters(self.counter, numbers.cast(UINT64)), key)
        # [2, N] twice -> N groups of words 0, 1, 2, 3.
        return concat([even.unsqueeze(2), odd.unsqueeze(2)], 2).transpose(1, 0, 2).cast(INT64)


def fractions(words: Expr, dtype: ir.DataType) -> Expr:
    """Uniform numbers [N] from groups of words, low bits behind the binary point; float64 takes two words for each."""
    if dtype == ir.DataType.DOUBLE:
        pairs = words.reshape(-1, 2)
        upper, lower = pairs.slice(0, 1, axis=1), pairs.slice(1, 2, axis=1)
        return ((_and(upper, 0xFFFFF) * 2**32 + lower).cast(dtype) * 2.0**-52).reshape(-1)
    bits = 23 if dtype == ir.DataType.FLOAT else 10
    return (_and(words, 2**bits - 1).cast(dtype) * 2.0**-bits).reshape(-1)


def _and(x: Expr, mask: int) -> Expr:
    return x.builder.op(std.BitwiseAnd, x, x.like(mask))


def _xor(x: Expr, y: Expr) -> Expr:
    return x.builder.op(std.BitwiseXor, x, y)


def _shift(x: Expr, direction: str) -> Expr:
    """Shifts uint64 by a word."""
    return x.builder.op(std.BitShift, x, x.like(32), direction=direction)


def _low(x: Expr) -> Expr:
    return _and(x, 0xFFFFFFFF)


def split(x: Expr) -> tuple[Expr, Expr]:
    """Low and high word of uint64 numbers."""
    return _low(x), _shift(x, "RIGHT")


def joined(low: Expr, high: Expr) -> Expr:
    """Uint64 numbers of low and high words."""
    return low.builder.op(std.BitwiseOr, low.cast(UINT64), _shift(high.cast(UINT64), "LEFT"))


def _philox(b: Builder, even: Expr, odd: Expr, key: Expr) -> tuple[Expr, Expr]:
    """Ten rounds; even and odd [2, N], key [2, 1]."""
    factors, steps = (b.constant([[number] for number in each], UINT64) for each in (MULTIPLIERS, KEY_STEPS))
    swapped = b.ints(1, 0)

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:  # noqa: ARG001
        even, odd, key = states
        low, high = split((even * factors).take(swapped))
        return [_xor(_xor(high, odd), key), low, _low(key + steps)], []

    (even, odd, _), _ = b.scan(body, states=[even, odd, key], inputs=[b.ints(*range(ROUNDS))])
    return even, odd


def _counters(start: Expr, numbers: Expr) -> tuple[Expr, Expr]:
    """The words of start + number, for each number [N] in uint64, carried over from word to word."""
    low, high = split(start)
    words = []
    carried = numbers
    for half in range(2):
        for part in (low, high):
            word, carried = split(part.slice(half, half + 1, axis=0) + carried)
            words.append(word.unsqueeze(0))
    return concat([words[0], words[2]], 0), concat([words[1], words[3]], 0)
