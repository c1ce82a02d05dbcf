"""Equal composite nodes lower to equal nodes: a rule runs once for them, and what it emitted is repeated.

An unrolled network holds thousands of cells that differ in nothing but their operands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import onnx_ir as ir

from lstm_lower.graph.expressions import Builder
from lstm_lower.opdef import Call

Replacements = list[tuple[ir.Value, ir.Value]]


def signature(node: ir.Node, call: Call) -> Hashable:
    """What a rule that reads no operand's value can depend on: the call, equal operands, and outputs in use."""
    first: dict[ir.Value | None, int] = {}
    operands = tuple(first.setdefault(value, index) for index, value in enumerate(node.inputs))
    used = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
    return call, operands, used


@dataclasses.dataclass(frozen=True)
class _Operand:
    """The node's own operand number `index`."""

    index: int


@dataclasses.dataclass(frozen=True)
class _Made:
    """Output `output` of the template's step number `step`."""

    step: int
    output: int


# A shared constant stands for itself.
_Reference = _Operand | _Made | ir.Value | None


@dataclasses.dataclass(frozen=True)
class _Step:
    op_type: str
    attributes: tuple[ir.Attr, ...]
    inputs: tuple[_Reference, ...]
    outputs: tuple[ir.Value, ...]


@dataclasses.dataclass(frozen=True)
class Template:
    """The nodes that a rule emitted for one composite node.

    Attributes:
        steps: the nodes, operands by reference.
        results: number of a composite node's output -> what takes its place.
    """

    steps: tuple[_Step, ...]
    results: tuple[tuple[int, _Made], ...]

    @classmethod
    def record(cls, node: ir.Node, builder: Builder, replacements: Replacements) -> Template:
        """Makes a template of what a rule has emitted for a node."""
        references: dict[ir.Value, _Reference] = {}
        for index, value in enumerate(node.inputs):
            if value is not None:
                references.setdefault(value, _Operand(index))
        steps = []
        for number, made in enumerate(builder.nodes):
            for output, value in enumerate(made.outputs):
                references[value] = _Made(number, output)
                if value.shape is not None:
                    # The same object will serve all repetitions.
                    value.shape.freeze()
            inputs = tuple(None if value is None else references.get(value, value) for value in made.inputs)
            steps.append(_Step(made.op_type, tuple(made.attributes.values()), inputs, tuple(made.outputs)))
        position = {value: index for index, value in enumerate(node.outputs)}
        return cls(tuple(steps), tuple((position[old], _made(references, new)) for old, new in replacements))

    def repeat(self, node: ir.Node, builder: Builder) -> Replacements:
        """Emits the template's nodes for another composite node of the same signature."""
        made: list[ir.Node] = []
        for step in self.steps:
            inputs = [_resolve(reference, node, made) for reference in step.inputs]
            name = builder.names.fresh(f"{builder.scope}/{step.op_type}")
            single = len(step.outputs) == 1
            outputs = [
                ir.Value(name=name if single else f"{name}:{index}", type=recorded.type, shape=recorded.shape)
                for index, recorded in enumerate(step.outputs)
            ]
            for value, recorded in zip(outputs, step.outputs, strict=True):
                builder.facts.alike(value, recorded)
            made.append(ir.Node("", step.op_type, inputs, step.attributes, outputs=outputs, name=name))
        builder.emitter.place(*made)
        return [(node.outputs[index], made[ref.step].outputs[ref.output]) for index, ref in self.results]


def _resolve(reference: _Reference, node: ir.Node, made: list[ir.Node]) -> ir.Value | None:
    if isinstance(reference, _Made):
        return made[reference.step].outputs[reference.output]
    if isinstance(reference, _Operand):
        return node.inputs[reference.index]
    return reference


def _made(references: Mapping[ir.Value, _Reference], value: ir.Value) -> _Made:
    reference = references[value]
    assert isinstance(reference, _Made)
    return reference
