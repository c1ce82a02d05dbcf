"""Lowering of the ops that draw anew in every run: ONNX's generators.

Each node keeps a generator of its own, seeded with the node's seeds or, where it has none, with its name. What is drawn
once is read by forward and backward ops alike, and differs from run to run of a session.

Symbols: R rank of a result, B rows, C classes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.graph.form import node_label
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.opset.installed import has_kernel
from lstm_lower.passes.rules.filling import full
from lstm_lower.passes.rules.registry import Node, lowers

FLOAT, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


# Bits behind the binary point, of which TensorFlow's uniform halves have as many.
_BITS = {ir.DataType.FLOAT16: 10, ir.DataType.BFLOAT16: 7}


# Numbers outside two standard deviations are one in 22, so that none of so many will do once in 5e10.
_ATTEMPTS = 8


# Nearer to 0 no logarithm is taken.
_LEAST = 1e-37


def drawn(
    n: Node,
    b: Builder,
    sizes: Expr,
    dtype: ir.DataType,
    op: type[std.Random] = std.RandomUniformLike,
    *,
    stream: str = "",
) -> Expr:
    """New numbers of float32 or float64.

    Args:
        n: the node.
        b: where nodes go.
        sizes: their shape, an int64 vector.
        dtype: float32 or float64.
        op: which of ONNX's generators.
        stream: tells several generators of a node apart.
    """
    if b.opset >= 22 and not has_kernel(op.op_type, 22):
        raise n.unsupported("the node", "opset 21 or older (onnxruntime runs no newer form of it)", b.opset)
    seeds = (n.seed, n.seed2)
    key = repr(seeds) if any(seeds) else n.node.name or n.node.outputs[0].name or node_label(n.node)
    # So many whole numbers does float32, the attribute's dtype, tell apart.
    seed = float(zlib.crc32(f"{key}{stream}".encode()) % 2**24)
    numbers = b.op(op, full(sizes, 0, dtype), dtype=int(dtype), seed=seed)
    return numbers if sizes.entries is None else b.set_shape(numbers, sizes.entries)


def _precise(dtype: ir.DataType) -> ir.DataType:
    return DOUBLE if dtype == DOUBLE else FLOAT


class Drawing(RawOp, abstract=True, shape="R", true_classes="B P"):
    """An op that draws; with both seeds 0 each node has a stream of its own, else equal seeds mean equal streams."""

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Always."""
        return True


class RandomUniform(Drawing):
    """Uniform numbers from 0 to 1, which is excluded."""


@lowers(RandomUniform)
def uniform(n: Node, b: Builder) -> Expr:
    """Halves without the bits that could round them to 1."""
    dtype = n.call.attributes["dtype"]
    numbers = drawn(n, b, n.shape.cast(INT64), _precise(dtype))
    if dtype in _BITS:
        parts = 2.0 ** _BITS[dtype]
        numbers = (numbers * parts).floor() * (1 / parts)
    return numbers.cast(dtype)


class RandomStandardNormal(RandomUniform):
    """Normal numbers of mean 0 and variance 1."""


@lowers(RandomStandardNormal)
def normal(n: Node, b: Builder) -> Expr:
    """A RandomNormalLike."""
    dtype = n.call.attributes["dtype"]
    return drawn(n, b, n.shape.cast(INT64), _precise(dtype), std.RandomNormalLike).cast(dtype)


class TruncatedNormal(RandomUniform):
    """The same within two standard deviations: what lies outside is drawn again."""


@lowers(TruncatedNormal)
def truncated_normal(n: Node, b: Builder) -> Expr:
    """The first of several attempts that lies within."""
    dtype = n.call.attributes["dtype"]
    sizes = concat([b.ints(_ATTEMPTS), n.shape.cast(INT64)], 0)
    numbers = drawn(n, b, sizes, _precise(dtype), std.RandomNormalLike)
    chosen = _first(numbers, numbers.abs() < 2.0)
    return chosen.minimum(2.0).maximum(-2.0).cast(dtype)


def _first(attempts: Expr, good: Expr) -> Expr:
    """For each place the first good one of the attempts, which are counted along axis 0."""
    b = attempts.builder
    first = b.op(std.ArgMax, good.cast(ir.DataType.INT32), axis=0, keepdims=1)
    return b.op(std.GatherElements, attempts, first, axis=0).squeeze(0)


class RandomGamma(Drawing):
    """Numbers of the gamma distribution of scale 1, as many of a shape as asked for for each parameter `alpha`."""


@lowers(RandomGamma)
def gamma(n: Node, b: Builder) -> Expr:
    """Marsaglia and Tsang, 2000: cubes of normal numbers, of which at least 19 of 20 are accepted.

    Below 1 the parameter is raised by 1, and the number multiplied by a power of a uniform one.
    """
    dtype = n.moved("alpha").dtype
    alpha = n.alpha if n.alpha.dtype == DOUBLE else n.alpha.cast(FLOAT)
    sizes = concat([n.shape.cast(INT64), alpha.sizes()], 0)
    every = concat([b.ints(_ATTEMPTS), sizes], 0)
    raised = b.where(alpha < 1.0, alpha + 1.0, alpha)
    d = raised - 1 / 3
    x = drawn(n, b, every, alpha.dtype, std.RandomNormalLike)
    cube = x / (d * 9.0).sqrt() + 1.0
    v = cube * cube * cube
    uniform_numbers = drawn(n, b, every, alpha.dtype, stream="accepted").maximum(_LEAST)
    log_v = v.maximum(_LEAST).log()
    accepted = (v > 0.0) & (uniform_numbers.log() < x * x * 0.5 + d - d * v + d * log_v)
    numbers = _first(v, accepted) * d
    power = drawn(n, b, sizes, alpha.dtype, stream="below").maximum(_LEAST).log() / alpha
    return b.where(alpha < 1.0, numbers * power.exp(), numbers).cast(dtype)


class RandomUniformInt(Drawing, minval="", maxval=""):
    """Integers from `minval` to `maxval`, which is excluded."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a number between the bounds."""
        low, high = number(call, "minval"), number(call, "maxval")
        if low is not None and high is not None and low >= high:
            raise call.error("maxval", f"more than minval, {low}", high)


@lowers(RandomUniformInt)
def integers(n: Node, b: Builder) -> Expr:
    """Whole numbers counted from the lower bound."""
    low = n.minval.cast(INT64)
    count = n.maxval.cast(INT64) - low
    fractions = drawn(n, b, n.shape.cast(INT64), DOUBLE)
    return (low + places(fractions, count)).cast(n.minval.dtype)


def places(fractions: Expr, count: Expr) -> Expr:
    """Whole numbers below a count, from fractions of it in float64."""
    return (fractions * count.cast(DOUBLE)).cast(INT64).minimum(count - 1)


class RandomShuffle(Drawing):
    """The rows in another order, every order as likely as any other."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if call.operands["value"].shape == ():
            raise call.error("value", "rank 1 or more", "rank 0")


@lowers(RandomShuffle)
def shuffle(n: Node, b: Builder) -> Expr:
    """Rows in the order of as many random numbers."""
    value = n.moved("value")
    count = b.sizes([value.size(0)])
    _, order = b.ops(std.TopK, drawn(n, b, count, DOUBLE), count, outputs=2, axis=0)
    return value.take(order)


class Multinomial(Drawing, logits="B C", num_samples=""):
    """Classes drawn by unnormalised log probabilities, row by row."""


@lowers(Multinomial)
def multinomial(n: Node, b: Builder) -> Expr:
    """A fraction for each sample, looked up in the row's cumulative probabilities."""
    sizes = b.sizes([n.logits.size(0), n.num_samples.cast(INT64).reshape(1)])
    return sampled(n.logits, drawn(n, b, sizes, DOUBLE)).cast(n.call.attributes["output_dtype"])


def sampled(logits: Expr, fractions: Expr) -> Expr:
    """Classes [B, S] by unnormalised log probabilities [B, C], from fractions [B, S] in float64.

    What is no finite logarithm has no probability, as in TensorFlow's kernel.
    """
    b, wide = logits.builder, logits.cast(DOUBLE)
    finite = wide.abs() < float("inf")
    largest = b.where(finite, wide, -1.7e308).reduce(std.ReduceMax, 1)
    weights = b.where(finite, (wide - largest).exp(), 0.0)
    cumulative = b.op(std.CumSum, weights, b.constant(1, INT64))
    sought = fractions * cumulative.slice(-1, 1 << 62, axis=1)
    passed = ~(sought.unsqueeze(2) < cumulative.unsqueeze(1))
    return passed.cast(INT64).sum(2)
