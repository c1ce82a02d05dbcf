"""A softmax that is written out, or its logarithm, as one operator: exp(x) / sum(exp(x)) and x - log(sum(exp(x))).

The operator takes the largest of the numbers away before it raises e to their power, so that nothing overflows; where a
formula does, too, that is left to the operator.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import remove_unread
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rewriting import Results, Rewriting


def softmax(op: std.Div, b: Builder) -> ir.Value | None:
    """`exp(x) / sum(exp(x))` along the last axis."""
    powers, facts = op.inputs[0], op.facts
    made = facts.maker(powers)
    if not isinstance(made, std.Exp) or powers is None or _reduced(op.inputs[1], std.ReduceSum, facts) is not powers:
        return None
    return b.op(std.Softmax, _unshifted(made.inputs[0], facts), axis=-1)


def log_softmax(op: std.Sub, b: Builder) -> ir.Value | None:
    """`x - log(sum(exp(x)))` along the last axis."""
    x, facts = op.inputs[0], op.facts
    log = facts.maker(op.inputs[1])
    total = _reduced(log.inputs[0], std.ReduceSum, facts) if isinstance(log, std.Log) else None
    made = facts.maker(total)
    if not isinstance(made, std.Exp) or x is None or made.inputs[0] is not x:
        return None
    return b.op(std.LogSoftmax, _unshifted(x, facts), axis=-1)


def _reduced(value: ir.Value | None, reduction: type[std.Reduction], facts: std.Knowledge) -> ir.Value | None:
    """What is reduced along its last axis, which stays with size 1, or is put in again, as JAX does."""
    view, whole = facts.maker(value), facts.shape(value)
    while view is not None and (kept := _handed_on(view)) is not None:
        view = facts.maker(kept)
    if not isinstance(view, std.Reduction) or type(view) is not reduction or not whole or whole[-1] != 1:
        return None
    shape = facts.shape(view.data)
    if not shape or len(shape) != len(whole) or view.axes != (len(shape) - 1,):
        return None
    # Of two sizes, of which one is 1, the other is the number of elements.
    return view.data if len(shape) == 2 or whole[:-1] == shape[:-1] else None


def _handed_on(view: std.Standard) -> ir.Value | None:
    """The operand whose elements a node hands on, all of them in their order; `None` where there is none."""
    facts = view.facts
    match view:
        case std.Identity() | std.Reshape() | std.Squeeze() | std.Unsqueeze():
            return view.data
        case std.Expand(data=data, target=target):
            inner = facts.maker(data)
            return data if isinstance(inner, std.Reshape) and inner.inputs[1] is target else None
        case std.Max(inputs=(low, x)) if facts.uniform(low) == -math.inf and facts.rank(low) == 0:
            return x
    return None


def _unshifted(x: ir.Value | None, facts: std.Knowledge) -> ir.Value | None:
    """The numbers before the largest of them was taken away, if it was."""
    view = facts.maker(x)
    shifted = isinstance(view, std.Sub) and _reduced(view.inputs[1], std.ReduceMax, facts) is view.inputs[0]
    return view.inputs[0] if isinstance(view, std.Sub) and shifted else x


class SoftmaxPass(Rewriting, Pass):
    """Puts the operator in the place of every softmax that is written out."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        modified = self.graph(model.graph)
        # What is largest, where the formula took it away.
        remove_unread(model.graph)
        return ir.passes.PassResult(model, modified=modified)

    def where(self, node: ir.Node) -> bool:
        """Whether a node may end one."""
        return std.Div.matches(node) or std.Sub.matches(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """Emits the operator."""
        view = self.context.space.facts.view(node)
        if isinstance(view, std.Div):
            return softmax(view, builder)
        return log_softmax(view, builder) if isinstance(view, std.Sub) else None
