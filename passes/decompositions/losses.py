"""ONNX's losses of class numbers, which refuse negative ones unless they are the one to be ignored.

ONNX allows no others. The functions by which it defines these losses look scores up by GatherElements, though, for
which -1 is the last class.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.decompositions.functions import expanded
from lstm_lower.passes.formulas.indices import BEYOND, from_front, is_never_negative
from lstm_lower.passes.rewriting import decomposes

_LABELS = std.ClassLoss.labels.index


def are_refused(view: std.ClassLoss) -> bool:
    """Whether negative class numbers cannot be, or have been sent beyond all classes."""
    facts, numbers = view.facts, view.constant(_LABELS)
    if numbers is not None:
        return bool(((numbers >= 0) | (numbers == view.ignored)).all())
    made = facts.maker(view.labels)
    sent = isinstance(made, std.Where) and facts.uniform(made.yes) == BEYOND
    return sent or is_never_negative(view.labels, facts)


def refusing(view: std.ClassLoss, b: Builder) -> Sequence[ir.Value]:
    """The same loss of class numbers of which negative ones are refused."""
    return b.again(view.node, _checked(view, b)).outputs


@decomposes(std.ClassLoss)
def class_loss(view: std.ClassLoss, b: Builder) -> Sequence[Expr | None] | None:
    """Onnx's function of class numbers of which negative ones are refused."""
    return expanded(b.again(view.node, _checked(view, b)), b.opset, b)


def _checked(view: std.ClassLoss, b: Builder) -> list[ir.Value | None]:
    labels, ignored = b.wrap(view.labels), view.ignored
    checked = from_front(labels, but=None if ignored is None else labels.equals(ignored))
    return [checked.value if place == _LABELS else value for place, value in enumerate(view.node.inputs)]
