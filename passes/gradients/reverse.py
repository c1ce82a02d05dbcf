"""Reverse mode: the walk through a graph, or through a formula that a rule has emitted, from results to inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import detach, operands, redirect
from lstm_lower.graph.edit import operands as read_by
from lstm_lower.passes.decompositions.decompose import decomposition
from lstm_lower.passes.gradients.activity import Activity
from lstm_lower.passes.gradients.registry import Cotangents, has_rule, is_flat, rule_of, unbroadcast
from lstm_lower.passes.rewriting import values_of


class ReverseMode:
    """The gradients of one graph's values.

    Attributes:
        builder: emits them: behind the graph's own nodes, or in a body that runs the graph's steps in reverse.
        active: the values that gradients are wanted of.
        gradients: what has flowed so far into each value, of this graph or of one around it.
    """

    def __init__(self, builder: Builder, active: AbstractSet[ir.Value]) -> None:
        self.builder = builder
        self.active = active
        self.gradients: dict[ir.Value, Expr] = {}

    def add(self, value: ir.Value, gradient: Expr) -> None:
        """Lets a gradient flow into a value, in the value's dtype; of integers it is that of what they stand for."""
        dtype = self.builder.facts.dtype(value)
        gradient = gradient if dtype is None or is_integer(dtype) else gradient.cast(dtype)
        before = self.gradients.get(value)
        self.gradients[value] = gradient if before is None else before + gradient

    def run(self, nodes: Iterable[ir.Node]) -> None:
        """Walks through a graph, or nodes of one in order, whose results' gradients are there."""
        for node in reversed(list(nodes)):
            # What is emitted at the end of the graph has none.
            dys = [self.gradients.get(value) for value in node.outputs]
            if any(dy is not None for dy in dys):
                for value, dy in zip(node.outputs, dys, strict=True):
                    self._shape(dy, value)
                self._node(node, dys)

    def _shape(self, dy: Expr | None, value: ir.Value) -> None:
        """States a gradient's shape, that of its value, where none follows from what makes it.

        Not of one from outside: both branches of an If read it, whose values may differ in rank.
        """
        shape = self.builder.facts.shape(value)
        if dy is None or dy.shape is not None or shape is None:
            return
        maker = dy.value.producer()
        if maker is not None and maker.graph is self.builder.graph:
            self.builder.set_shape(dy, shape)

    def _node(self, node: ir.Node, dys: list[Expr | None]) -> None:
        view = self.builder.facts.view(node)
        if view is None or self.active.isdisjoint(operands(node)) or is_flat(view):
            return
        rule = rule_of(type(view))
        if rule is None:
            # All that varies has a rule: of this node nothing does.
            return
        b, wanted = self.builder, [operand in self.active for operand in node.inputs]
        cotangents = Cotangents([b.wrap(value) for value in node.outputs], dys, self.active, wanted, self.add)
        results = rule(view, b, cotangents)
        gradients = [results] if isinstance(results, Expr) else results
        for operand, gradient in zip(node.inputs, gradients, strict=False):
            if operand is None or gradient is None or operand not in self.active:
                continue
            if isinstance(view, std.Elementwise):
                gradient = unbroadcast(gradient, self.builder.wrap(operand))
            self.add(operand, gradient)


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
    reverse = ReverseMode(b, Activity(nodes, b.facts, values, found).active)
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
