"""Lowering of the ops that read label sequences off scores, and compare them.

Symbols: T time steps, B batch, C classes.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, RawOp
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import add_rows, largest, reshape_to
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers
from lstm_lower.passes.rules.sparse import numbered, ranked

_INT64 = ir.DataType.INT64


class CTCGreedyDecoder(RawOp, inputs="T B C", sequence_length="B"):
    """The best class of each step, without blanks and, where they are merged, without repetitions: a sparse matrix.

    `log_probability` is minus the sum of the best classes' scores. A negative `blank_index` counts from the end.
    """

    counts = ("sequence_length", "T")

    @classmethod
    def verify(cls, call: Call) -> None:
        """The blank must be one of the classes."""
        classes, blank = call.sizes.get("C"), call.attributes["blank_index"]
        if isinstance(classes, int) and not -classes <= blank < classes:
            raise call.error("blank_index", f"-{classes} to {classes - 1}, as there are {classes} classes", blank)


@lowers(CTCGreedyDecoder, repeatable=True)
def ctc_greedy_decoder(n: Node, b: Builder) -> list[Expr]:
    """All steps at once; the place of a label in its row is the number of labels before it."""
    batch = _size(n, b, "B")
    steps = up_to(b, _size(n, b, "T")).unsqueeze(1)
    active = steps < n.sequence_length.cast(_INT64).unsqueeze(0)
    best = b.op(std.ArgMax, n.inputs, axis=2, keepdims=0)
    blank = _size(n, b, "C").reshape() + n.blank_index if n.blank_index < 0 else b.constant(n.blank_index, _INT64)
    kept = active & ~best.equals(blank)
    if n.merge_repeated:
        # No class is -1, which stands before the first step.
        before = b.op(std.Pad, best, b.ints(1, 0, -1, 0), b.constant(-1, _INT64))
        kept = kept & ~best.equals(before)
    member = kept.cast(_INT64).transpose(1, 0)
    places = b.op(std.NonZero, member).transpose(1, 0)
    before = b.op(std.CumSum, member, b.constant(1, _INT64), exclusive=1)
    position = b.op(std.GatherND, before, places).unsqueeze(1)
    longest = b.op(std.ReduceMax, concat([b.ints(0), member.sum(1)], 0), keepdims=0).reshape(1)
    score = b.where(active, n.inputs.reduce(std.ReduceMax, 2, keepdims=False), 0)
    return [
        concat([places.slice(0, 1, axis=1), position], 1),
        b.op(std.GatherND, best.transpose(1, 0), places),
        concat([batch, longest], 0),
        -score.sum(0).unsqueeze(1),
    ]


class EditDistance(
    RawOp,
    hypothesis_indices="N R",
    hypothesis_values="N",
    hypothesis_shape="R",
    truth_indices="M R",
    truth_values="M",
    truth_shape="R",
    T=NUMBERS,
):
    """How many insertions, deletions and replacements make one sequence of each pair into the other.

    The elements along the last axis of a sparse array are a sequence, wherever they stand. Where `normalize`, the
    number is divided by the length of the true sequence: infinite if that is empty and the other is not, 0 if both are.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sequences lie along the last of several axes."""
        rank = call.sizes.get("R")
        if isinstance(rank, int) and rank < 2:
            raise call.error("hypothesis_shape", "2 sizes or more", rank)


@lowers(EditDistance, repeatable=True)
def edit_distance(n: Node, b: Builder) -> Expr:
    """The table of distances between beginnings, one diagonal of all tables at a time.

    On diagonal d stand the distances between the first d - j elements of the hypothesis and the first j of the truth.
    Source: Wagner and Fischer, The String-to-String Correction Problem, 1974.
    """
    rank = ranked(n, b, "truth_indices", "truth_shape").size(1)
    assert isinstance(rank, int)
    leading = n.hypothesis_shape.maximum(n.truth_shape).slice(0, rank - 1, axis=0)
    hypothesis, length = _sequences(n, b, "hypothesis", leading, before=0)
    truth, size = _sequences(n, b, "truth", leading, before=1)
    longest = b.op(std.Shape, hypothesis).slice(1, 2, axis=0) - 1
    width = b.op(std.Shape, truth).slice(1, 2, axis=0)
    numbers, ends = up_to(b, width), length + size
    earlier, at_end = (numbers - 1).maximum(0), size.unsqueeze(1)

    def body(carried: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (before, last, found), (d,) = carried, inputs
        opposite = b.op(std.Gather, hypothesis, (d - numbers - 1).maximum(0).minimum(longest), axis=1)
        differs = (~opposite.equals(truth)).cast(_INT64)
        replaced = b.op(std.Gather, before, earlier, axis=1) + differs
        changed = last.minimum(b.op(std.Gather, last, earlier, axis=1)) + 1
        # Nothing becomes a beginning by as many insertions as that is long.
        alone = numbers.equals(0) | numbers.equals(d)
        row = b.where(alone, d, replaced.minimum(changed))
        here = b.op(std.GatherElements, row, at_end, axis=1).squeeze(1)
        return [last, row, b.where(ends.equals(d), here, found)], []

    start = truth.cast(_INT64) * 0
    diagonals = up_to(b, longest + width)
    (_, _, found), _ = b.scan(body, states=[start, start, b.zeros_like(ends)], inputs=[diagonals])
    distance = found.cast(ir.DataType.FLOAT)
    if n.normalize:
        distance = b.where(found.equals(0), 0, distance / size.cast(ir.DataType.FLOAT))
    return reshape_to(distance, leading)


def _sequences(n: Node, b: Builder, side: str, leading: Expr, *, before: int) -> tuple[Expr, Expr]:
    """Sequences [count, longest + 1] and their lengths [count]; `before` places are left free at their beginnings."""
    places = ranked(n, b, f"{side}_indices", f"{side}_shape")
    values, rank = computed(n.moved(f"{side}_values")), places.size(1)
    assert isinstance(rank, int)
    count = b.op(std.ReduceProd, leading, keepdims=1)
    owner = numbered(places, n.hypothesis_shape.maximum(n.truth_shape), rank - 1)
    lengths = add_rows(b.zeros_like(owner) + 1, owner, count)
    starts = b.op(std.CumSum, lengths, b.constant(0, _INT64), exclusive=1)
    position = up_to(b, b.op(std.Shape, owner)) - b.op(std.Gather, starts, owner, axis=0)
    width = largest(concat([b.ints(0), lengths], 0)) + 1
    flat = b.fill(0, count * width, values.dtype)
    flat = b.op(std.ScatterND, flat, (owner * width + position + before).unsqueeze(1), values)
    return reshape_to(flat, concat([count, width], 0)), lengths


def _size(n: Node, b: Builder, symbol: str) -> Expr:
    """A size of the node as a vector of one."""
    return b.sizes([n.size(symbol)])
