"""The gradients of a formula that a rule has emitted, found by the same rules as those of a whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import detach, redirect
from lstm_lower.graph.edit import operands as read_by
from lstm_lower.passes.decompositions.decompose import decomposition
from lstm_lower.passes.gradients.activity import Activity
from lstm_lower.passes.gradients.registry import has_rule
from lstm_lower.passes.gradients.reverse import Reverse
from lstm_lower.passes.rewriting import values_of


def pullback(b: Builder, results: Sequence[Expr], operands: Sequence[Expr], dys: Sequence[Expr]) -> list[Expr]:
    """The gradients of operands, in order, by those of results.

    Args:
        b: the builder that emitted the formula.
        results: what the formula makes.
        operands: what it is differentiated by.
        dys: the gradient of each result.
    """
    found = [result.value for result in results]
    nodes: list[ir.Node] = []
    # What else the builder has emitted stays as it is.
    waiting = list(reversed(between(b.emitted, [x.value for x in operands], [y.value for y in results])))
    while waiting:
        node = waiting.pop()
        inner = Builder.before(node, b.space)
        made = None if has_rule(node, b.facts) else decomposition(node, inner)
        if made is None:
            nodes.append(node)
            continue
        new = {old: new for old, new in zip(node.outputs, values_of(made), strict=False) if new is not None}
        for old, value in new.items():
            redirect(old, value)
        found = [new.get(value, value) for value in found]
        detach(node)
        b.emitted += inner.emitted
        waiting += reversed(inner.emitted)
    values = [operand.value for operand in operands]
    reverse = Reverse(b, Activity(nodes, b.facts, values, found).active)
    for value, dy in zip(found, dys, strict=True):
        reverse.add(value, dy)
    reverse.run(nodes)
    gradients = [reverse.gradients.get(value) for value in values]
    return [b.zeros_like(x) if dx is None else dx for x, dx in zip(operands, gradients, strict=True)]


def between(nodes: Iterable[ir.Node], operands: Iterable[ir.Value], results: Iterable[ir.Value]) -> list[ir.Node]:
    """Those of some nodes in order that lead from operands to results."""
    varied = set(operands)
    behind: set[ir.Node] = set()
    waiting = list(results)
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if node is not None and node not in behind and value not in varied:
            behind.add(node)
            waiting += read_by(node)
    found = []
    for node in nodes:
        if node in behind and any(value in varied for value in read_by(node)):
            found.append(node)
            varied.update(node.outputs)
    return found
