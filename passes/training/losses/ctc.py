"""Connectionist temporal classification, with PyTorch's operands."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules import ctc
from lstm_lower.passes.training.losses.base import INT64, Loss, Target, shape_of


@dataclasses.dataclass(frozen=True, eq=False)
class CTC(Loss):
    """Minus the logarithm of the probability of labels, of logarithms of probabilities [T, N, C] (or [T, C]).

    Targets are labels, padded [N, S] or one behind the other [sum of S], then the numbers of steps and of labels of
    each sequence. A mean is one over sequences, each divided by its number of labels.

    Attributes:
        blank: class of the blank.
        zero_infinity: whether the loss of labels for which there are too few steps is zero.

    Source: Graves et al., Connectionist Temporal Classification, 2006.
    """

    count: ClassVar[int] = 3
    blank: int = 0
    zero_infinity: bool = False

    def targets(self, prediction: Expr) -> list[Target]:
        shape = shape_of(prediction)
        if len(shape) not in (2, 3):
            raise InvalidInputError(f"CTC requires predictions [T, N, C] or [T, C], got rank {len(shape)}")
        batch = shape[1:-1]
        return [Target(INT64, (*batch, "S")), Target(INT64, batch), Target(INT64, batch)]

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        b, alone = prediction.builder, len(shape_of(prediction)) == 2
        labels, steps, counts = (target.cast(INT64) for target in targets)
        if alone:
            prediction, labels = prediction.unsqueeze(1), labels.unsqueeze(0)
        steps = ctc.up_to_end(steps.reshape(-1, 1), prediction.size(0))
        counts = ctc.up_to_end(counts.reshape(-1, 1), labels.size(-1))
        if len(shape_of(labels)) == 1:
            labels = _padded(labels, counts)
        width = b.sizes([labels.size(1)]).reshape()
        inside = up_to(b, width).unsqueeze(0) < counts
        # Padding may be no class at all.
        labels = b.where(inside, labels, self.blank)
        paths = ctc.paths_of(labels, counts, b.constant(self.blank, INT64), prediction.dtype)
        emissions = ctc.emissions_of(prediction, paths)
        length = b.sizes([prediction.size(0)]).reshape()
        numbers = up_to(b, length).unsqueeze(1, 2)
        total, _ = ctc.total_of(paths, *ctc.forward(paths, emissions, numbers < steps.unsqueeze(0)))
        impossible = prediction.like(0.0 if self.zero_infinity else float("inf"))
        each = b.where(total > ctc.LOG_ZERO / 2, -total, impossible)
        if self.reduction == "mean":
            each = each / counts.maximum(1).cast(each.dtype)
        return self.reduced(each.squeeze(*((0, 1) if alone else (1,))))


def _padded(labels: Expr, counts: Expr) -> Expr:
    """Labels one behind the other as rows [N, S], whatever stands behind a row's end."""
    b = labels.builder
    starts = b.op(std.CumSum, counts, b.constant(0, INT64), exclusive=1)
    longest = b.op(std.ReduceMax, counts, keepdims=0).maximum(1)
    places = starts + up_to(b, longest).unsqueeze(0)
    last = b.sizes([labels.size(0)]) - 1
    return labels.take(places.minimum(last))
