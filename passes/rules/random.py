"""Lowering of TensorFlow's stateless random numbers, exactly its own."""

from __future__ import annotations

import dataclasses
import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import COMPUTED, INDEX, PAIRED, RawOp
from lstm_lower.passes.formulas.philox import INT64, SMALLEST_FRACTION, UINT64, Stream, fractions, joined
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.drawing import sampled
from lstm_lower.passes.rules.registry import Node, lowers

DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT


# Of the counter's values, as many belong to each group of truncated numbers as for 256 times as many numbers; of these
# so many are looked at, in which numbers enough lie within two standard deviations but once in 1e14.
_RESERVED, _EXAMINED = 256, {FLOAT: 4, DOUBLE: 6}

# At least 19 of 20 attempts at a number of the gamma distribution are accepted, so that none will do once in 4e15.
_ATTEMPTS = 12


def _stream(n: Node) -> Stream:
    """The stream that the node's seed, or its key and counter, stand for."""
    return Stream.of_seed(n.seed) if n.value("seed") is not None else Stream(n.key, n.counter)


class StatelessRandomGetKeyCounter(RawOp, seed="2", Tseed=(*INDEX, "uint32", "uint64")):
    """Scrambles a seed into the key and the counter of a random number generator."""


class StatelessRandomGetKeyCounterAlg(RawOp, seed="2", Tseed=(*INDEX, "uint32", "uint64")):
    """The same with the algorithm: 1, Philox."""


@lowers(StatelessRandomGetKeyCounter, StatelessRandomGetKeyCounterAlg)
def key_and_counter(n: Node, b: Builder) -> list[Expr]:
    """The seed's own random words."""
    stream = _stream(n)
    return [stream.key, stream.counter, preferred_algorithm(n, b)]


class StatelessRandomGetAlg(RawOp):
    """The number of the algorithm that the device prefers; 1, Philox."""


@lowers(StatelessRandomGetAlg)
def preferred_algorithm(_: Node, b: Builder) -> Expr:
    """Philox."""
    return b.constant(1, ir.DataType.INT32)


def _count(n: Node, b: Builder) -> Expr:
    """The number of numbers, as a vector of one."""
    sizes: Expr = n.shape.cast(INT64)
    return b.op(std.ReduceProd, sizes, keepdims=0).reshape(1)


def _shaped(n: Node, b: Builder, flat: Expr, count: Expr) -> Expr:
    """The first so many numbers in the shape that is asked for."""
    found = flat.slice(0, count, axis=0)
    return b.op(std.Reshape, found, n.shape.cast(INT64), allowzero=1)


def _words(n: Node, b: Builder, count: Expr, each: int) -> Expr:
    """Groups of words [groups, 2, 2] for so many numbers, of which a group makes `each`."""
    stream = _stream(n)
    return stream.words(up_to(b, b.op(std.Div, count + (each - 1), b.ints(each))))


class _Numbers(RawOp, abstract=True, key="1", seed="2", minval="", shape="R", maxval="", alg="", counter="2"):
    """Numbers of a dtype that the attribute says, in the shape that the operand `shape` says."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The algorithm must be Philox."""
        alg = call.operands["alg"].value if "alg" in call.operands else None
        if alg is not None and int(alg) not in (1, 3):
            raise call.error("alg", "1 (Philox) or 3 (the device's choice, which is Philox)", int(alg))
        bounds = [call.operands[name].value for name in ("minval", "maxval") if name in call.operands]
        low, high = bounds if len(bounds) == 2 else (None, None)
        if low is not None and high is not None and int(low) >= int(high):
            raise call.error("maxval", f"more than minval, {int(low)}", int(high))


class StatelessRandomUniformV2(_Numbers, dtype=("float16", *PAIRED)):
    """Uniform numbers from 0 to 1, determined by key and counter: Philox 4x32 with ten rounds."""


class StatelessRandomUniform(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessRandomUniformV2, by a seed."""


@lowers(StatelessRandomUniform, StatelessRandomUniformV2)
def uniform(n: Node, b: Builder) -> Expr:
    """Numbers in the order of their words."""
    count, dtype = _count(n, b), ir.DataType(n.call.attributes["dtype"])
    return _shaped(n, b, fractions(_words(n, b, count, 2 if dtype == DOUBLE else 4), dtype), count)


def _normal(uniform_numbers: Expr) -> Expr:
    """As many normal numbers as uniform ones, in pairs [N, 2], by Box and Muller's method."""
    pairs = uniform_numbers.reshape(-1, 2)
    b = pairs.builder
    radius = (pairs.slice(0, 1, axis=1).maximum(SMALLEST_FRACTION).log() * -2.0).sqrt()
    angle = pairs.slice(1, 2, axis=1) * (2 * math.pi)
    return concat([b.op(std.Sin, angle), b.op(std.Cos, angle)], 1) * radius


class StatelessRandomNormalV2(_Numbers, dtype=("float16", *PAIRED)):
    """Normal numbers of mean 0 and variance 1, made of the uniform ones."""


class StatelessRandomNormal(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessRandomNormalV2, by a seed."""


@lowers(StatelessRandomNormal, StatelessRandomNormalV2)
def normal(n: Node, b: Builder) -> Expr:
    """Halves are made in float32."""
    count, dtype = _count(n, b), ir.DataType(n.call.attributes["dtype"])
    wide = DOUBLE if dtype == DOUBLE else FLOAT
    words = _words(n, b, count, 2 if wide == DOUBLE else 4)
    return _shaped(n, b, _normal(fractions(words, wide)).cast(dtype).reshape(-1), count)


class StatelessTruncatedNormalV2(_Numbers, dtype=("float16", *PAIRED)):
    """Normally distributed numbers within two standard deviations."""


class StatelessTruncatedNormal(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessTruncatedNormalV2, by a seed."""


@lowers(StatelessTruncatedNormal, StatelessTruncatedNormalV2)
def truncated_normal(n: Node, b: Builder) -> Expr:
    """Each group of numbers has words of its own, of whose normal numbers it takes the first that lie within."""
    count, dtype = _count(n, b), ir.DataType(n.call.attributes["dtype"])
    wide = DOUBLE if dtype == DOUBLE else FLOAT
    each, examined = (2 if wide == DOUBLE else 4), _EXAMINED[wide]
    groups = up_to(b, b.op(std.Div, count + (each - 1), b.ints(each))) * (each * _RESERVED // 4)
    counters = (groups.unsqueeze(1) + b.ints(*range(examined))).reshape(-1)
    numbers = _normal(fractions(_stream(n).words(counters), wide)).reshape(-1, examined * each)
    within = numbers.abs() < 2.0
    places = b.where(within, b.ints(*range(examined * each)), examined * each)
    _, chosen = b.ops(std.TopK, places, b.ints(each), outputs=2, axis=1, largest=0, sorted=1)
    return _shaped(n, b, b.op(std.GatherElements, numbers, chosen, axis=1).cast(dtype).reshape(-1), count)


class StatelessRandomGammaV3(_Numbers):
    """Numbers of the gamma distribution of scale 1, for each parameter `alpha`, whose shape the result's ends with."""


class StatelessRandomGammaV2(_Numbers, Tseed=(*INDEX, "uint32", "uint64")):
    """The numbers of StatelessRandomGammaV3, by a seed."""


@lowers(StatelessRandomGammaV2, StatelessRandomGammaV3)
def gamma(n: Node, b: Builder) -> Expr:
    """Marsaglia and Tsang, 2000: the first of several attempts that is accepted, from words of each number's own.

    Words are counted by parameters first, and the result by samples. The parameter 1 stands for -log(1 - u).
    """
    count, alpha = _count(n, b), n.alpha.cast(DOUBLE)
    parameters = b.op(std.Max, b.sizes([alpha.reshape(-1).size(0)]), b.ints(1))
    places = up_to(b, count)
    numbers = places % parameters * (count / parameters) + places / parameters
    counters = (numbers * _RESERVED).unsqueeze(1) + b.ints(*range(_ATTEMPTS + 1))
    uniform_numbers = fractions(_stream(n).words(counters.reshape(-1)), DOUBLE)
    each = 2 * (_ATTEMPTS + 1)
    drawn = _Drawn(_normal(uniform_numbers).reshape(-1, each), uniform_numbers.reshape(-1, each))
    each_alpha = b.op(std.Expand, alpha, n.shape.cast(INT64)).reshape(-1)
    exponential = -(1.0 - drawn.uniform(places * 0 + 1)).log()
    numbers_of = b.where(b.op(std.Equal, each_alpha, each_alpha.like(1)), exponential, _accepted(drawn, each_alpha))
    return _shaped(n, b, numbers_of.cast(n.moved("alpha").dtype), count)


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """Numbers [N, 2 * blocks] that may be made of the words of each of N numbers.

    Attributes:
        normals: normal ones.
        uniforms: uniform ones.
    """

    normals: Expr
    uniforms: Expr

    def normal(self, places: Expr) -> Expr:
        """A normal one for each number, by place."""
        return _picked(self.normals, places)

    def uniform(self, places: Expr) -> Expr:
        """A uniform one for each number, by place."""
        return _picked(self.uniforms, places)


def _picked(rows: Expr, places: Expr) -> Expr:
    return rows.builder.op(std.GatherElements, rows, places.unsqueeze(1), axis=1).squeeze(1)


def _accepted(drawn: _Drawn, alpha: Expr) -> Expr:
    """Numbers of the gamma distribution [N].

    Blocks of two numbers are taken when they are needed, one after the other, normal or uniform, and the second number
    of each first. What would not be positive is passed over before a uniform number is taken.
    """
    b = alpha.builder
    below = alpha < 1.0
    d = alpha + b.where(below, alpha.like(2 / 3), alpha.like(-1 / 3))
    c = (1.0 / 3) / d.sqrt()

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        following, normal_block, uniform_block, left, done, result = states
        (first,) = inputs  # 1 in every other attempt, which takes a block of normal numbers
        normal_block = normal_block + first * (following - normal_block)
        following = following + first
        x = drawn.normal(normal_block * 2 + first)
        root = 1.0 + c * x
        positive = root > 0.0
        v = b.where(positive, root * root * root, 1.0)
        takes = (positive & (left < 1)).cast(INT64)
        uniform_block = uniform_block + takes * (following - uniform_block)
        following = following + takes
        left = left + takes * 2 - positive.cast(INT64)
        u = drawn.uniform(uniform_block * 2 + left.maximum(0))
        squeezed = u < 1.0 - 0.0331 * (x * x) * (x * x)
        good = positive & (squeezed | (u.log() < 0.5 * x * x + d * (1.0 - v + v.log())))
        power = drawn.uniform(b.where(left < 1, following * 2 + 1, uniform_block * 2 + left - 1))
        number = d * v * b.where(below, b.op(std.Pow, power, 1.0 / alpha), 1.0)
        result = b.where(good & ~done, number, result)
        return [following, normal_block, uniform_block, left, done | good, result], []

    zero = (alpha * 0.0).cast(INT64)
    states = [zero, zero, zero, zero, zero > 0, alpha * 0.0]
    final, _ = b.scan(body, states=states, inputs=[b.ints(*([1, 0] * (_ATTEMPTS // 2)))])
    return final[-1]


class StatelessRandomUniformFullIntV2(_Numbers):
    """Integers of which every one is equally likely: the generator's words as they are."""


class StatelessRandomUniformIntV2(_Numbers):
    """Integers from `minval` to `maxval`, which is excluded: the remainder of a word."""


class StatelessRandomUniformFullInt(_Numbers):
    """The numbers of StatelessRandomUniformFullIntV2, by a seed."""


class StatelessRandomUniformInt(_Numbers, Tseed=(*INDEX, "uint32", "uint64")):
    """The numbers of StatelessRandomUniformIntV2, by a seed."""


@lowers(
    StatelessRandomUniformFullInt,
    StatelessRandomUniformFullIntV2,
    StatelessRandomUniformInt,
    StatelessRandomUniformIntV2,
)
def integers(n: Node, b: Builder) -> Expr:
    """The words, or pairs of them, as they are; or their remainders, which are counted from the lower bound."""
    dtype, count = n.call.outputs[0].dtype, _count(n, b)
    assert dtype is not None
    wide = dtype in (INT64, UINT64)
    numbers = _words(n, b, count, 2 if wide else 4)
    if wide:
        pairs = numbers.reshape(-1, 2)
        numbers = joined(pairs.slice(0, 1, axis=1), pairs.slice(1, 2, axis=1))
    if n.op in (StatelessRandomUniformInt, StatelessRandomUniformIntV2):
        low, high = n.minval.cast(INT64), n.maxval.cast(INT64)
        remainder = numbers % (high - low).cast(numbers.dtype)
        numbers = remainder.cast(INT64) + low
    elif dtype == ir.DataType.INT32:
        # A word from 2**31 on stands for a negative number.
        numbers = b.where(numbers < 2**31, numbers, numbers - 2**32)
    return _shaped(n, b, numbers.cast(dtype).reshape(-1), count)


class StatelessMultinomial(
    RawOp,
    logits="B C",
    num_samples="",
    seed="2",
    T=(*COMPUTED, "int8", "int16", "uint8", "uint16"),
    Tseed=(*INDEX, "uint32", "uint64"),
):
    """Classes drawn by unnormalised log probabilities, row by row, determined by a seed.

    TensorFlow's kernel deals rows out to threads that start at places of their own: the numbers are those of one
    thread, all that it uses for a few hundred classes and samples.
    """


@lowers(StatelessMultinomial)
def multinomial(n: Node, b: Builder) -> Expr:
    """A fraction of two words for each sample."""
    sizes = b.sizes([n.logits.size(0), n.num_samples.cast(INT64).reshape(1)])
    count = b.op(std.ReduceProd, sizes, keepdims=1)
    flat = fractions(_words(n, b, count, 2), DOUBLE).slice(0, count, axis=0)
    classes = sampled(n.logits, b.op(std.Reshape, flat, sizes, allowzero=1))
    return classes.cast(ir.DataType(n.call.attributes["output_dtype"]))


# Of Philox 4x32-10: factors and what is added to the key, round by round.
