"""Equal composite nodes lower to equal nodes: a rule runs once for them, and what it emitted is repeated.

An unrolled network holds thousands of cells that differ in nothing but their operands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import onnx_ir as ir

from lstm_lower.graph.builder import Builder
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Entry
from lstm_lower.opdef import Call

# What takes the place of a node's outputs, in order.
Outputs = list[ir.Value | None]

# Sizes follow from no more numbers than there are axes.
_FEW = 16


def signature(node: ir.Node, call: Call, facts: Facts) -> Hashable:
    """What a repeatable rule can depend on: the call, equal operands, their known entries, and outputs in use.

    The call tells integers that are known as a whole; entries are those of which some are sizes known by name, and
    the few of other dtypes from which sizes may follow, such as a Range's bounds.
    """
    first: dict[ir.Value | None, int] = {}
    operands = tuple(first.setdefault(value, index) for index, value in enumerate(node.inputs))
    entries = tuple(_entries(value, facts) for value in first)
    used = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
    return call, operands, entries, used


def _entries(value: ir.Value | None, facts: Facts) -> Hashable:
    """The known entries of an operand."""
    dtype = facts.dtype(value)
    if dtype is not None and dtype.is_integer():
        entries = facts.entries(value)
        return None if entries is None else tuple([None if isinstance(entry, Entry) else entry for entry in entries])
    array = facts.constant(value) if facts.elements(value) <= _FEW else None
    return None if array is None else (array.shape, array.tobytes())


# What a step reads: the value at a place of the template, or a shared constant, which stands for itself.
_Reference = int | ir.Value | None


@dataclasses.dataclass(frozen=True)
class _Step:
    op_type: str
    attributes: tuple[ir.Attr, ...]
    inputs: tuple[_Reference, ...]
    outputs: tuple[ir.Value, ...]
    marks: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Template:
    """The nodes that a rule emitted for one composite node.

    A value's place counts the composite node's own operands first, and then the outputs of all steps.

    Attributes:
        steps: the nodes, operands by place.
        results: the place of what stands for each of a composite node's outputs.
    """

    steps: tuple[_Step, ...]
    results: tuple[int | None, ...]

    @classmethod
    def record(cls, node: ir.Node, builder: Builder, results: Outputs) -> Template:
        """Makes a template of what a rule has emitted for a node."""
        places: dict[ir.Value, int] = {}
        for index, value in enumerate(node.inputs):
            if value is not None:
                places.setdefault(value, index)
        steps, count = [], len(node.inputs)
        for made in builder.emitted:
            inputs = tuple(None if value is None else places.get(value, value) for value in made.inputs)
            marks = dict(made.metadata_props)
            steps.append(_Step(made.op_type, tuple(made.attributes.values()), inputs, tuple(made.outputs), marks))
            for value in made.outputs:
                places[value] = count
                count += 1
                if value.shape is not None:
                    # The same object will serve all repetitions.
                    value.shape.freeze()
        return cls(tuple(steps), tuple(None if value is None else places[value] for value in results))

    def repeat(self, node: ir.Node, builder: Builder) -> Outputs:
        """Emits the template's nodes for another composite node of the same signature."""
        names, facts, scope = builder.names, builder.facts, builder.scope
        values = list(node.inputs)
        made: list[ir.Node] = []
        for step in self.steps:
            inputs = [values[place] if isinstance(place, int) else place for place in step.inputs]
            name = names.fresh(f"{scope}/{step.op_type}")
            outputs = [
                ir.Value(name=names.part(name, index, len(step.outputs)), type=recorded.type, shape=recorded.shape)
                for index, recorded in enumerate(step.outputs)
            ]
            for value, recorded in zip(outputs, step.outputs, strict=True):
                facts.alike(value, recorded)
            values += outputs
            marks = dict(step.marks)
            made.append(
                ir.Node("", step.op_type, inputs, step.attributes, outputs=outputs, name=name, metadata_props=marks)
            )
        builder.place(*made)
        return [None if place is None else values[place] for place in self.results]
