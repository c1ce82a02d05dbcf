"""Activity: which values vary with what a gradient is taken for, and which of these matter to the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_floating, is_integer
from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.gradients.fixed_constants import fixed_constants
from lstm_lower.passes.gradients.registry import is_flat

# A graph, or nodes of one in an order in which they can run.
Nodes = ir.Graph | Sequence[ir.Node]

# What makes integers of numbers that gradients flow through: the first output.
_QUANTIZING = std.QuantizeLinear | std.DynamicQuantizeLinear
# Through what of these integers they flow on: what moves them, chooses among them, or adds them up.
_OF_INTEGERS = (
    *(std.Scaled, std.MatMulInteger, std.ConvInteger, std.Cast, std.Identity),
    *(std.Transpose, std.Reshape, std.Flatten, std.Squeeze, std.Unsqueeze, std.Expand, std.Tile, std.Slice, std.Split),
    *(std.Concat, std.Gather, std.GatherND, std.Pad, std.SpaceToDepth, std.DepthToSpace, std.Resize, std.MaxPool),
    *(std.Add, std.Sub, std.Neg, std.Max, std.Min, std.Clip, std.Relu, std.Where, std.ReduceSum),
)


def weights(graph: ir.Graph, facts: Facts) -> list[ir.Value]:
    """The initializers of a floating dtype that can have gradients: no region or scales of a Resize."""
    settings = {x for node in all_nodes(graph) if std.Resize.matches(node) for x in node.inputs[1:]}
    return [value for value in graph.initializers.values() if value not in settings and is_floating(facts.dtype(value))]


def learned(graph: ir.Graph, facts: Facts) -> list[ir.Value]:
    """The initializers that count as weights when none are named.

    These are no constants that belong to an operator's formula, no masks of infinities, and no floats of 8 bits or
    less, which are what weights became.
    """
    kept = fixed_constants(graph, facts)
    found = [x for x in weights(graph, facts) if x not in kept]
    return [x for x in found if (dtype := facts.dtype(x)) is not None and dtype.bitwidth > 8 and _is_finite(x)]


def _is_finite(value: ir.Value) -> bool:
    return value.const_value is None or bool(np.isfinite(value.const_value.numpy()).all())


class Activity:
    """The values between some inputs and some results of a graph, or of nodes of one, those of inner graphs included.

    Attributes:
        inputs: these inputs.
        active: the values that vary with the inputs and that the results vary with.
        quantized: integers that stand for numbers, in steps of a scale, of values that vary with the inputs.
    """

    def __init__(self, graph: Nodes, facts: Facts, inputs: Iterable[ir.Value], results: Iterable[ir.Value]) -> None:
        self.facts = facts
        self.inputs = list(inputs)
        self.quantized: set[ir.Value] = set()
        self._varied: set[ir.Value] = set(self.inputs)
        self._nodes: dict[ir.Graph, list[ir.Node]] = {}
        self._forward(graph)
        self.active: set[ir.Value] = {value for value in results if value in self._varied}
        self._backward(graph)

    def nodes(self, graph: ir.Graph) -> list[ir.Node]:
        """The nodes that gradients flow through, those of inner graphs included, as they were when first asked for."""
        if graph not in self._nodes:
            self._nodes[graph] = [node for node in all_nodes(graph) if self._flows(node)]
        return self._nodes[graph]

    def reads_integers(self, node: ir.Node) -> bool:
        """Whether a node computes with integers that stand for numbers what has no gradient of integers."""
        view = self.facts.view(node)
        return not self.quantized.isdisjoint(operands(node)) and not isinstance(view, _OF_INTEGERS)

    def _flows(self, node: ir.Node) -> bool:
        return not (self.active.isdisjoint(node.outputs) or self.active.isdisjoint(_read(node)))

    def _forward(self, graph: Nodes) -> None:
        for node in graph:
            if subgraphs_of(node):
                self._forward_through(node)
            elif not self._varied.isdisjoint(_read(node)):
                view = self.facts.view(node)
                if isinstance(view, _QUANTIZING):
                    self._quantize(node.outputs[:1])
                elif not self.quantized.isdisjoint(node.inputs) and not is_flat(view):
                    self._varied.update(x for x in node.outputs if self._may_vary(x))
                    self._quantize(node.outputs)
                elif self._has_bits(node):
                    self._varied.update(x for x in node.outputs if self.facts.dtype(x) != ir.DataType.BOOL)
                elif not is_flat(view):
                    self._varied.update(x for x in node.outputs if self._may_vary(x))

    def _quantize(self, values: Iterable[ir.Value]) -> None:
        """Notes integers that stand for numbers; truth values and floats of 8 bits do not."""
        integers = {x for x in values if is_integer(self.facts.dtype(x))}
        self.quantized |= integers
        self._varied |= integers

    def _has_bits(self, node: ir.Node) -> bool:
        """Whether what varies is read as bits: integers of these are no steps, until something compares them."""
        integers = (x for x in node.inputs if x in self._varied and x not in self.quantized and not self._may_vary(x))
        return std.BitCast.matches(node) or any(True for _ in integers)

    def _may_vary(self, value: ir.Value) -> bool:
        """Whether a value can have a gradient: of sequences and of what has no known type the rules must say so."""
        dtype = self.facts.dtype(value)
        return dtype is None or is_floating(dtype)

    def _forward_through(self, node: ir.Node) -> None:
        pairs, results = _roles(node, self.facts)
        known = -1
        # What a step makes may vary because of what the step before made.
        while known != len(self._varied):
            known = len(self._varied)
            self._varied.update(inner for outer, inner in pairs if outer in self._varied and self._may_vary(inner))
            for graph in subgraphs_of(node):
                self._forward(graph)
            varied = [outer for inner, outer in results if inner in self._varied and self._may_vary(outer)]
            self._varied.update(varied)
        if not self.quantized.isdisjoint([*operands(node), *(inner for inner, _ in results)]):
            what, got = "operands and results of a floating dtype, as DequantizeLinear makes them", "quantized integers"
            raise UnsupportedOpError(requires(node.op_type, node_label(node), "its gradient", what, got))

    def _backward(self, graph: Nodes) -> None:
        for node in reversed(graph):
            if subgraphs_of(node):
                self._backward_through(node)
            elif not self.active.isdisjoint(node.outputs):
                self.active.update(self._varied.intersection(_read(node)))

    def _backward_through(self, node: ir.Node) -> None:
        pairs, results = _roles(node, self.facts)
        known = -1
        while known != len(self.active):
            known = len(self.active)
            self.active.update(inner for inner, outer in results if outer in self.active and inner in self._varied)
            for graph in subgraphs_of(node):
                self._backward(graph)
            self.active.update(outer for outer, inner in pairs if inner in self.active and outer in self._varied)


def _read(node: ir.Node) -> list[ir.Value]:
    """The values whose numbers a node reads: of what a CastLike is to be like it reads the dtype."""
    return operands(node)[:1] if std.CastLike.matches(node) else operands(node)


def _roles(node: ir.Node, facts: Facts) -> tuple[list[tuple[ir.Value, ir.Value]], list[tuple[ir.Value, ir.Value]]]:
    """What inner graphs' parameters stand for, and what their outputs become: of a state also the next step's."""
    view = facts.view(node)
    if isinstance(view, std.If):
        both = [pair for graph in view.branches for pair in zip(graph.outputs, node.outputs, strict=True)]
        return [], both
    if not isinstance(view, std.Scan | std.Loop):
        what, got = "sequences of a known length", "others"
        raise UnsupportedOpError(requires(node.op_type, node_label(node), "its gradient", what, got))
    skipped, states = (2, len(view.carried)) if isinstance(view, std.Loop) else (0, view.states)
    body = view.body
    given = [(x, p) for x, p in zip(node.inputs[skipped:], body.inputs[skipped:], strict=False) if x is not None]
    made = list(body.outputs[1 if skipped else 0 :])
    carried = list(zip(made[:states], body.inputs[skipped:], strict=False))
    # Without any step the last value is the first.
    unchanged = [(x, y) for x, y in zip(node.inputs[skipped:], node.outputs[:states], strict=False) if x is not None]
    return [*given, *carried, *unchanged], list(zip(made, node.outputs, strict=False))
