"""Lowering of the samplers of classes.

Symbols: B rows, P true classes of each, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.repetition import repeat_while
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.drawing import DOUBLE, FLOAT, Drawing, drawn, places
from lstm_lower.passes.rules.filling import full
from lstm_lower.passes.rules.registry import Node, lowers


def _check_true_classes(call: Call) -> None:
    count, given = call.attributes["num_true"], call.sizes.get("P")
    if count < 1 or (isinstance(given, int) and given != count):
        raise call.error("true_classes", f"num_true columns, {count}, and 1 or more", given)


class AllCandidateSampler(Drawing):
    """Every class once."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many true classes as the attribute says, and samples; different ones, if they are to be."""
        _check_true_classes(call)
        count, classes = call.attributes["num_sampled"], call.attributes.get("range_max")
        if count < 1:
            raise call.error("attribute num_sampled", "1 or more", count)
        if classes is not None and classes < 1:
            raise call.error("attribute range_max", "1 or more", classes)
        if classes is not None and call.attributes["unique"] and count > classes:
            raise call.error("attribute num_sampled", f"range_max, {classes}, or fewer different samples", count)
        call.sizes["S"] = count

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """There is nothing to choose."""
        return False


@lowers(AllCandidateSampler, repeatable=True)
def all_classes(n: Node, b: Builder) -> list[Expr]:
    """Each is expected once."""
    return [
        up_to(b, n.num_sampled),
        full(n.true_classes.sizes(), 1, FLOAT),
        full(b.ints(n.num_sampled), 1, FLOAT),
    ]


class UniformCandidateSampler(AllCandidateSampler):
    """Classes of which each is as likely as any other; `unique`: drawn again until there are enough different ones.

    The counts are how often a class is expected among the samples: so many times its probability or, of different ones,
    the probability that it is among as many draws as were made.
    """

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Always."""
        return True


class LogUniformCandidateSampler(UniformCandidateSampler):
    """The same with probabilities log((c + 2) / (c + 1)) / log(classes + 1), as words have when sorted by frequency."""


@lowers(UniformCandidateSampler, LogUniformCandidateSampler)
def sampler(n: Node, b: Builder) -> list[Expr]:
    """As many draws as are asked for, or twice as many again and again until enough of them differ."""
    samples = _draws(n, b, b.ints(n.num_sampled), "")
    tries = b.constant(n.num_sampled, INT64)
    if n.unique:

        def missing(found: list[Expr]) -> Expr:
            return b.op(std.Size, _first(found[0])[0]) < tries

        def more(inner: Builder, number: Expr, found: list[Expr]) -> list[Expr]:  # noqa: ARG001
            # A generator of its own: this one's first numbers are others than those that there are.
            return [inner.concat([found[0], _draws(n, b, found[0].sizes(), "again")], 0)]

        different, at = _first(repeat_while(b, missing, samples, more))
        samples = b.set_shape(different.slice(0, n.num_sampled, axis=0), [n.num_sampled])
        tries = at.take(n.num_sampled - 1) + 1
    return [
        samples,
        _expected(n, b, n.true_classes, tries),
        _expected(n, b, samples, tries),
    ]


def _draws(n: Node, b: Builder, count: Expr, stream: str) -> Expr:
    """So many classes, int64."""
    fractions, classes = drawn(n, b, count, DOUBLE, stream=stream), b.constant(n.range_max, INT64)
    if n.op is UniformCandidateSampler:
        return places(fractions, classes)
    powers = (fractions * math.log1p(n.range_max)).exp()
    return (powers.cast(INT64) - 1).minimum(n.range_max - 1)


def _first(draws: Expr) -> tuple[Expr, Expr]:
    """The different ones in the order in which they came first, and where that was."""
    different, at, _, _ = draws.builder.ops(std.Unique, draws, outputs=4, sorted=0)
    for value in (different, at):
        value.value.type = ir.TensorType(INT64)
    return different, at


def _expected(n: Node, b: Builder, classes: Expr, tries: Expr) -> Expr:
    """How often classes are expected among the samples."""
    wide = classes.cast(DOUBLE)
    if n.op is UniformCandidateSampler:
        probability = full(wide.sizes(), 1 / n.range_max, DOUBLE)
    else:
        probability = ((wide + 2.0) / (wide + 1.0)).log() * (1 / math.log1p(n.range_max))
    often = probability * float(n.num_sampled)
    if n.unique:
        missed = ((1.0 - probability).log() * tries.cast(DOUBLE)).exp()
        often = b.where(tries.equals(n.num_sampled), often, 1.0 - missed)
    return often.cast(FLOAT)


class ComputeAccidentalHits(RawOp, true_classes="B P", sampled_candidates="S"):
    """The samples that are among a row's true classes: their rows, their places, and the lowest number for each."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many true classes as the attribute says."""
        _check_true_classes(call)


@lowers(ComputeAccidentalHits, repeatable=True)
def accidental_hits(n: Node, b: Builder) -> list[Expr]:
    """Each true class compared with each sample; of equal samples the last one counts."""
    equal = n.true_classes.unsqueeze(2).equals(n.sampled_candidates).cast(INT64)
    last = (equal * (up_to(b, n.sampled_candidates.size(0)) + 1)).reduce(std.ReduceMax, 2, keepdims=False)
    found = b.op(std.NonZero, last)
    rows = found.slice(0, 1, axis=0).reshape(-1)
    ids = b.op(std.GatherND, last, found.transpose(1, 0)) - 1
    lowest = full(ids.sizes(), float(np.finfo(np.float32).min), FLOAT)
    return [rows.cast(ir.DataType.INT32), ids, lowest]
