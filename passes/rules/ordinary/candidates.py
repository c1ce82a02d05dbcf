"""Lowering of the samplers of classes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.repetition import repeat_while
from lstm_lower.ops.ordinary.candidates import (
    AllCandidateSampler,
    ComputeAccidentalHits,
    LogUniformCandidateSampler,
    UniformCandidateSampler,
)
from lstm_lower.passes.formulas.rows import INT64
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.ordinary.filling import full
from lstm_lower.passes.rules.ordinary.random import DOUBLE, FLOAT, drawn, places
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(AllCandidateSampler, repeatable=True)
def all_classes(n: Node) -> dict[str, Expr]:
    """Each is expected once."""
    b = n.builder
    return {
        "sampled_candidates": up_to(b, n.num_sampled),
        "true_expected_count": full(n.true_classes.sizes(), 1, FLOAT),
        "sampled_expected_count": full(b.ints(n.num_sampled), 1, FLOAT),
    }


@lowers(UniformCandidateSampler, LogUniformCandidateSampler)
def sampler(n: Node) -> dict[str, Expr]:
    """As many draws as are asked for, or twice as many again and again until enough of them differ."""
    b = n.builder
    samples = _draws(n, b.ints(n.num_sampled), "")
    tries = b.constant(n.num_sampled, INT64)
    if n.unique:

        def missing(found: list[Expr]) -> Expr:
            return b.op(std.Size, _first(found[0])[0]) < tries

        def more(inner: Builder, number: Expr, found: list[Expr]) -> list[Expr]:  # noqa: ARG001
            # A generator of its own: this one's first numbers are others than those that there are.
            return [inner.concat([found[0], _draws(n, found[0].sizes(), "again")], 0)]

        different, at = _first(repeat_while(b, missing, samples, more))
        samples = b.set_shape(different.slice(0, n.num_sampled, axis=0), [n.num_sampled])
        tries = at.take(n.num_sampled - 1) + 1
    return {
        "sampled_candidates": samples,
        "true_expected_count": _expected(n, n.true_classes, tries),
        "sampled_expected_count": _expected(n, samples, tries),
    }


def _draws(n: Node, count: Expr, stream: str) -> Expr:
    """So many classes, int64."""
    fractions, classes = drawn(n, count, DOUBLE, stream=stream), n.builder.constant(n.range_max, INT64)
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


def _expected(n: Node, classes: Expr, tries: Expr) -> Expr:
    """How often classes are expected among the samples."""
    b, wide = n.builder, classes.cast(DOUBLE)
    if n.op is UniformCandidateSampler:
        probability = full(wide.sizes(), 1 / n.range_max, DOUBLE)
    else:
        probability = ((wide + 2.0) / (wide + 1.0)).log() * (1 / math.log1p(n.range_max))
    often = probability * float(n.num_sampled)
    if n.unique:
        missed = ((1.0 - probability).log() * tries.cast(DOUBLE)).exp()
        often = b.where(tries.equals(n.num_sampled), often, 1.0 - missed)
    return often.cast(FLOAT)


@lowers(ComputeAccidentalHits, repeatable=True)
def accidental_hits(n: Node) -> dict[str, Expr]:
    """Each true class compared with each sample; of equal samples the last one counts."""
    b = n.builder
    equal = n.true_classes.unsqueeze(2).equals(n.sampled_candidates).cast(INT64)
    last = (equal * (up_to(b, n.sampled_candidates.size(0)) + 1)).reduce(std.ReduceMax, 2, keepdims=False)
    found = b.op(std.NonZero, last)
    rows = found.slice(0, 1, axis=0).reshape(-1)
    ids = b.op(std.GatherND, last, found.transpose(1, 0)) - 1
    lowest = full(ids.sizes(), float(np.finfo(np.float32).min), FLOAT)
    return {"indices": rows.cast(ir.DataType.INT32), "ids": ids, "weights": lowest}
