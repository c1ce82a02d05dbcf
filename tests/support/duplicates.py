"""Finds expressions that a model computes more than once, at any level: value numbering, written for tests alone.

A value's number stands for the expression it is. A loop's element is numbered by its sequence, axis and direction, a
carried state by its initial value and, after refinement, by its update; so the same recurrence in two loops has the
same numbers in both.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

import onnx
from onnx import helper

RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
    "Dropout",
}
COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Equal"}


def duplicates(model: onnx.ModelProto) -> list[str]:
    """What is computed more than once, one line each; nothing for a model that computes everything once."""
    classes: dict[tuple[str, int], Hashable] = {}
    count = -1
    while True:
        numbering = _Numbering(classes, {value.name for value in model.graph.output})
        numbering.graph(model.graph, {})
        if len(set(numbering.states.values())) == count:
            break
        count = len(set(numbering.states.values()))
        classes = numbering.states
    return [" = ".join(where) for where in numbering.makers.values() if len(where) > 1]


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


class _Numbering:
    """One pass over a model, given the classes of the carried states.

    Attributes:
        states: the refined class of every state, by the name of its Scan and its position.
        makers: the nodes that compute each number.
    """

    def __init__(self, classes: dict[tuple[str, int], Hashable], results: set[str]) -> None:
        self.classes = classes
        self.results = results
        self.states: dict[tuple[str, int], Hashable] = {}
        self.makers: dict[int, list[str]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._fresh = itertools.count()

    def number(self, expression: Hashable) -> int:
        return self._numbers.setdefault(expression, len(self._numbers))

    def made(self, name: str, node: onnx.NodeProto, expression: Hashable) -> int:
        number = self.number(expression)
        # A graph's output that is a constant has to be made by a node of its own.
        if node.op_type != "Constant" or name not in self.results:
            self.makers.setdefault(number, []).append(f"{node.op_type} '{name}'")
        return number

    def graph(self, graph: onnx.GraphProto, env: dict[str, int]) -> dict[str, int]:
        """Numbers the values of a graph; `env` holds those of outer scopes and of the graph's inputs."""
        env = dict(env)
        for value in (*graph.input, *graph.initializer):
            env.setdefault(value.name, self.number(("input", value.name)))
        for node in graph.node:
            self.node(node, env)
        return env

    def node(self, node: onnx.NodeProto, env: dict[str, int]) -> None:
        operands = [env[name] if name else None for name in node.input]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        subgraphs = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        if node.op_type == "Identity":
            env[node.output[0]] = operands[0]
        elif node.op_type == "Scan":
            self.scan(node, operands, {name: helper.get_attribute_value(a) for name, a in attributes.items()}, env)
        elif node.op_type in RANDOM or subgraphs:
            for graph in subgraphs:
                self.graph(graph, {**env, **{value.name: self.number(next(self._fresh)) for value in graph.input}})
            env.update((name, self.number(("own", next(self._fresh)))) for name in node.output if name)
        else:
            if node.op_type in COMMUTATIVE:
                operands.sort()
            texts = tuple(sorted((name, attribute.SerializeToString()) for name, attribute in attributes.items()))
            number = self.made(node.output[0], node, (node.op_type, tuple(operands), texts))
            env.update((name, self.number((number, index))) for index, name in enumerate(node.output) if name)

    def scan(
        self, node: onnx.NodeProto, operands: list[int], attributes: dict[str, object], env: dict[str, int]
    ) -> None:
        body = attributes["body"]
        count = attributes["num_scan_inputs"]
        split = len(operands) - count
        made = len(body.output) - split
        axes, turns = (attributes.get(f"scan_input_{name}", [0] * count) for name in ("axes", "directions"))
        scope = dict(env)
        for index, value in enumerate(body.input[:split]):
            start = self.classes.get((node.name, index), ("state", operands[index]))
            scope[value.name] = self.number(start)
        for value, sequence, axis, turn in zip(body.input[split:], operands[split:], axes, turns, strict=True):
            scope[value.name] = self.number(("element", sequence, axis, turn))
        inner = self.graph(body, scope)
        results = [inner[value.name] for value in body.output]
        axes, turns = (attributes.get(f"scan_output_{name}", [0] * made) for name in ("axes", "directions"))
        for index in range(split):
            self.states[node.name, index] = ("state", scope[body.input[index].name], results[index])
        for position, name in enumerate(node.output):
            if position < split:
                env[name] = self.number(("final", scope[body.input[position].name], results[position]))
            else:
                form = axes[position - split], turns[position - split]
                env[name] = self.made(name, node, ("sequence", results[position], *form))
