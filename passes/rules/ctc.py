"""Lowering of CTCLoss: the forward-backward algorithm in log space, a Scan each way over all sequences at once.

Symbols beside those of the op: U states of a path, which is the labels with a blank before, between and behind them.
Source of the recursion: Graves et al., Connectionist Temporal Classification, 2006.

Symbols: B batch, C classes, T time steps, N labels in all.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp
from lstm_lower.passes.formulas.indices import from_front, within
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers

INT64 = ir.DataType.INT64


END = 2**31 - 1


# The logarithm of zero: finite, so that differences of two of them are numbers, and sums of thousands stay finite.
LOG_ZERO = -1e30


@dataclasses.dataclass(frozen=True)
class Paths:
    """The sequences' label paths.

    Attributes:
        classes: class of each state [B, U].
        counts: number of labels of each sequence [B, 1].
        stay: 0 where a path may stay in a state, the logarithm of zero elsewhere [B, U], or `None` where it always may.
        skip: the same for entering a state from the one before the one before.
        places: 0 .. U-1.
    """

    classes: Expr
    counts: Expr
    stay: Expr | None
    skip: Expr
    places: Expr


class CTCLoss(RawOp, inputs="T B C", labels_indices="N 2", labels_values="N", sequence_length="B"):
    """Connectionist temporal classification loss, with its gradient; the last class is the blank.

    The labels are a sparse matrix [B, longest], given by `labels_indices` and `labels_values`; `inputs` are logits.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """There must be a class beside the blank, or at least the blank."""
        if call.sizes.get("C") == 0:
            raise call.error("inputs", "at least one class", "none")


class CTCLossV2(CTCLoss):
    """Connectionist temporal classification loss, with its gradient; class 0 is the blank."""


@lowers(CTCLoss, CTCLossV2)
def ctc_loss(n: Node, b: Builder) -> list[Expr]:
    """Scores of all steps at once, two Scans over them, and from their results all gradients at once."""
    blank = b.constant(0, INT64) if n.op is CTCLossV2 else b.sizes([n.size("C")]).reshape() - 1
    paths = _paths(n, b, blank)
    scores = b.op(std.LogSoftmax, n.inputs, axis=2)
    emissions = emissions_of(scores, paths)
    lengths = up_to_end(n.sequence_length.cast(INT64), n.size("T")).unsqueeze(1)
    active = _step_numbers(n, b) < lengths.unsqueeze(0)

    alphas, shifts = forward(paths, emissions, active)
    total, final = total_of(paths, alphas, shifts)
    betas = _backward(paths, emissions, final, _step_numbers(n, b) < (lengths - 1).unsqueeze(0))
    possible = total > LOG_ZERO / 2
    counted = lengths > 0
    if n.ignore_longer_outputs_than_inputs:
        counted = counted & (paths.counts <= lengths)

    # At each step the states share one probability, that of the labels; their scores are known up to a factor.
    occupation = b.where(possible, b.op(std.Softmax, alphas + betas, axis=2), 0)
    occupied = _by_class(n, b, paths, occupation)
    kept = active & counted.unsqueeze(0)
    gradient = b.where(kept, scores.exp() - occupied, 0)
    infinite = total.like(float("inf"))
    loss = b.where(counted, b.where(possible, -total, infinite), 0).squeeze(1)
    return [loss, gradient]


def emissions_of(scores: Expr, paths: Paths) -> Expr:
    """The score of each state's class at each step [T, B, U], from those of all classes [T, B, C]; others fail."""
    b = scores.builder
    shape = concat([b.sizes([scores.size(0)]), paths.classes.sizes()], 0)
    classes = from_front(paths.classes).unsqueeze(0)
    return b.op(std.GatherElements, scores, b.op(std.Expand, classes, shape), axis=2)


def up_to_end(lengths: Expr, size: int | Expr) -> Expr:
    """Lengths, which are refused unless they are 0 to `size`."""
    return within(from_front(lengths), size + 1)


def total_of(paths: Paths, alphas: Expr, shifts: Expr) -> tuple[Expr, Expr]:
    """Log probability of each sequence's labels [B, 1], and where a path may end, see `_final`.

    Args:
        paths: the paths.
        alphas: what `forward` returns first.
        shifts: and second.
    """
    final = _final(paths, alphas)
    last = alphas.slice(-1, END, axis=0).squeeze(0)
    return shifts.sum(0) + (last + final).reduce(std.ReduceLogSumExp, 1), final


def _step_numbers(n: Node, b: Builder) -> Expr:
    """The number of each step, [T, 1, 1]."""
    return up_to(b, n.size("T")).unsqueeze(1, 2)


def _paths(n: Node, b: Builder, blank: Expr) -> Paths:
    rows = n.labels_indices.slice(0, 1, axis=1)
    values = n.labels_values.cast(INT64).unsqueeze(1)
    batch = b.sizes([n.size("B")])
    numbers = up_to(b, batch).unsqueeze(0)
    member = rows.equals(numbers)
    if n.op is not CTCLossV2:
        values = _ended(values, values < blank, member)
    kept = _kept(n, b, rows, values, blank)
    if kept is not None:
        member = member & kept
    member = member.cast(INT64)
    counts = member.sum(0, keepdims=True).transpose()
    # At least one, so that no axis is empty.
    longest = b.op(std.ReduceMax, counts, keepdims=0).reshape(1).maximum(1)
    before = b.op(std.CumSum, member, b.constant(0, INT64), exclusive=1)
    position = (before * member).sum(1, keepdims=True)
    if kept is not None:
        # A label that does not count goes to a column that is cut off.
        position = b.where(kept, position, longest.unsqueeze(0))
    empty = b.op(std.Expand, blank, concat([batch, longest + 1], 0))
    table = b.op(std.ScatterND, empty, concat([from_front(rows), position], 1), values.squeeze(1))
    labels = table.slice(0, longest, axis=1)
    return paths_of(labels, counts, blank, n.inputs.dtype, merge_repeated=n.ctc_merge_repeated)


def paths_of(labels: Expr, counts: Expr, blank: Expr, dtype: ir.DataType, *, merge_repeated: bool = True) -> Paths:
    """The paths of label sequences.

    Args:
        labels: classes, whatever stands behind a sequence's end [B, L]; L is at least 1.
        counts: number of labels of each sequence [B, 1].
        blank: class of the blank, an int64 scalar.
        dtype: of scores.
        merge_repeated: whether equal classes in a row are one label.
    """
    b = labels.builder
    each = labels.unsqueeze(2)
    pairs = concat([b.op(std.Expand, blank, each.sizes()), each], 2).reshape(0, -1)
    behind = b.op(std.Expand, blank, concat([b.sizes([labels.size(0)]), b.ints(1)], 0))
    classes = concat([pairs, behind], 1)
    states = b.sizes([labels.size(1)]) * 2 + 1
    places = up_to(b, states).unsqueeze(0)
    is_blank = classes.equals(blank)
    may_skip = ~is_blank & (places > 1)
    stay = None
    if merge_repeated:
        # Two equal labels need the blank between them.
        before_last = b.op(std.Pad, classes, b.ints(0, 2, 0, -2))
        may_skip = may_skip & ~classes.equals(before_last)
    else:
        stay = _log_of(is_blank, dtype)
    return Paths(classes, counts, stay, _log_of(may_skip, dtype), places)


def _ended(values: Expr, inside: Expr, member: Expr) -> Expr:
    """Labels [N, 1] of which one that is no class ends a sequence: those behind it are made none, and refused.

    Args:
        values: the labels.
        inside: which of them are classes [N, 1].
        member: which row each belongs to [N, B].
    """
    b = values.builder
    ends = (member & ~inside).cast(INT64)
    before = b.op(std.CumSum, ends, b.constant(0, INT64), exclusive=1) * member.cast(INT64)
    return b.where(inside & (before.sum(1, keepdims=True) > 0), -1, values)


def _kept(n: Node, b: Builder, rows: Expr, values: Expr, blank: Expr) -> Expr | None:
    """Which labels count [N, 1], or `None` when all do."""
    kept = None if n.op is CTCLossV2 else values < blank
    if n.preprocess_collapse_repeated:
        # -1 is the row and the class of no label, in front of the first.
        shift = b.ints(1, 0, -1, 0)
        same_row = rows.equals(b.op(std.Pad, rows, shift, rows.like(-1)))
        same_value = values.equals(b.op(std.Pad, values, shift, values.like(-1)))
        first = ~(same_row & same_value)
        kept = first if kept is None else kept & first
    return kept


def _log_of(allowed: Expr, dtype: ir.DataType) -> Expr:
    return allowed.builder.where(allowed, allowed.builder.constant(0, dtype), LOG_ZERO)


def _shifted(x: Expr, by: int) -> Expr:
    """States moved along the path [B, U]; the logarithm of zero comes in at the end."""
    pads = x.builder.ints(0, by, 0, -by)
    return x.builder.op(std.Pad, x, pads, x.like(LOG_ZERO))


def _log_sum_of(*terms: Expr) -> Expr:
    """The logarithm of the sum of exponentials, elementwise."""
    b = terms[0].builder
    largest = b.op(std.Max, *terms)
    total = (terms[0] - largest).exp()
    for term in terms[1:]:
        total = total + (term - largest).exp()
    return largest + total.log()


def forward(paths: Paths, emissions: Expr, active: Expr) -> tuple[Expr, Expr]:
    """Log probability of the first steps, ending in each state; past a sequence's end, that at its end.

    Returns:
        [T, B, U], each step less its largest, so that what counts is near zero and exact; and what was subtracted
        [T, B, 1].
    """
    b = emissions.builder

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (alpha,), (emission, running) = states, inputs
        stayed = alpha if paths.stay is None else alpha + paths.stay
        arrived = _log_sum_of(stayed, _shifted(alpha, 1), _shifted(alpha, 2) + paths.skip) + emission
        shift = arrived.reduce(std.ReduceMax, 1)
        alpha = b.where(running, arrived - shift, alpha)
        return [alpha], [alpha, b.where(running, shift, 0)]

    # Before the first step the path stands where one step leads to the first two states only.
    first = _log_of(paths.places.equals(0), emissions.dtype)
    start = first + _zeros(b, paths, emissions)
    _, (alphas, shifts) = b.scan(body, states=[start], inputs=[emissions, active])
    return alphas, shifts


def _zeros(b: Builder, paths: Paths, like: Expr) -> Expr:
    return b.fill(0, paths.classes.sizes(), like.dtype)


def _final(paths: Paths, like: Expr) -> Expr:
    """0 for the two states in which a path may end, the logarithm of zero elsewhere [B, U]."""
    end = paths.counts * 2
    ends = paths.places.equals(end) | paths.places.equals(end - 1)
    return _log_of(ends, like.dtype)


def _backward(paths: Paths, emissions: Expr, final: Expr, before_last: Expr) -> Expr:
    """Log probability of the steps after each one, starting from each state [T, B, U], less each step's largest."""
    b = emissions.builder

    def body(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        (after,), (emission, running) = states, inputs
        stayed = after if paths.stay is None else after + paths.stay
        left = _log_sum_of(stayed, _shifted(after, -1), _shifted(after + paths.skip, -2))
        beta = b.where(running, left - left.reduce(std.ReduceMax, 1), final)
        return [beta + emission], [beta]

    _, (betas,) = b.scan(body, states=[_zeros(b, paths, emissions)], inputs=[emissions, before_last], reverse=True)
    return betas


def _by_class(n: Node, b: Builder, paths: Paths, occupation: Expr) -> Expr:
    """Sums what the states of each class have [T, B, C], as a product with the table of which state is which class."""
    numbers = up_to(b, n.size("C"))
    table = paths.classes.unsqueeze(2).equals(numbers).cast(occupation.dtype)
    return (occupation.transpose(1, 0, 2) @ table).transpose(1, 0, 2)
