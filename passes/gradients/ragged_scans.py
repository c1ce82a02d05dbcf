"""Scans whose gradient carries values of different shapes, or of unknown rank: a Scan cannot, so they become Loops."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace, replace
from lstm_lower.graph.edit import captures, detach
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.gradients.saving import is_cheap
from lstm_lower.passes.loops.views.variation import BodyVariation, variation


def ragged_scans_to_loops(model: ir.Model, space: Workspace, active: Container[ir.Node]) -> bool:
    """Makes Loops of the Scans whose gradient saves values of different shapes, or sums gradients of unknown rank.

    Args:
        model: the model.
        space: its workspace.
        active: the nodes that gradients flow through.

    Returns:
        Whether there was one.
    """
    found: list[std.Scan] = []
    for node in model.graph:
        if node in active:
            _look(node, model.graph, space, active, found)
    for scan in found:
        _convert(scan, space)
    return bool(found)


def _look(node: ir.Node, around: ir.Graph, space: Workspace, active: Container[ir.Node], found: list[std.Scan]) -> bool:
    """Whether a node saves values of shapes that differ from step to step; the Scans among them are added."""
    op = space.facts.view(node)
    inner = [x for graph in subgraphs_of(node) for x in graph if x in active and subgraphs_of(x)]
    ragged = [_look(x, around, space, active, found) for x in inner]
    if not isinstance(op, std.Scan | std.Loop):
        # A branch is run again for its gradient, and saves nothing.
        return False
    seen = variation(op, space.facts, around)
    varies = any(ragged) or any(_saves(x, seen, space) for x in all_nodes(op.body))
    # onnxruntime's Scan asks for the rank of what leaves it, as sums of the gradients of what it reads do.
    varies |= any(space.facts.rank(value) is None for value in [*op.inputs, *captures(node)] if value is not None)
    if varies and isinstance(op, std.Scan):
        found.append(op)
    return varies


def _saves(node: ir.Node, seen: BodyVariation, space: Workspace) -> bool:
    """Whether what a node of a body makes may have to be saved and differs in shape from step to step."""
    loop = std.Loop.of(node, space.facts)
    if loop is not None and not (loop.is_counted and loop.trips is not None and seen.steady(loop.trips)):
        return True
    if is_cheap(node, space.facts):
        return False
    shapes = [(value, space.facts.shape(value)) for value in node.outputs]
    # onnxruntime's Scan asks for the rank of what leaves it.
    return any(
        shape is None or (not all(isinstance(dim, int) for dim in shape) and seen.of(value)) for value, shape in shapes
    )


def _convert(op: std.Scan, space: Workspace) -> None:
    """Makes a Loop of a Scan, in whose body the sequences are read by the step's number."""
    node, body, facts, count = op.node, op.body, space.facts, op.states
    assert node.graph is not None
    front = Builder(space, node.graph, before=node, scope=node.name or node.op_type)
    stacked = list(zip(op.output_axes, op.output_directions, strict=True))
    sequences, parameters = node.inputs[count:], body.inputs[count:]
    length = front.squeeze(front.size(_given(sequences[0]), op.input_axes[0]), 0)
    number = space.value(f"{front.scope}/step", ir.TensorType(ir.DataType.INT64), ())
    going = space.value(f"{front.scope}/going", ir.TensorType(ir.DataType.BOOL), ())
    first = next(iter(body), None)
    inside = Builder(space, body, before=first, scope=front.scope)
    roles = zip(sequences, parameters, op.input_axes, op.input_directions, strict=True)
    for sequence, parameter, axis, backwards in roles:
        place = number
        if backwards:
            place = inside.op(std.Sub, inside.op(std.Sub, length, number), inside.constant(1))
        element = inside.op(std.Gather, _given(sequence), place, axis=axis)
        shape = facts.shape(parameter)
        if shape is not None:
            inside.set_shape(element, shape)
        replace(parameter, element, space)
    results = [Builder(space, body, scope=front.scope).op(std.Identity, going), *body.outputs]
    states = list(body.inputs[:count])
    body.inputs.clear()
    body.inputs.extend([number, going, *states])
    body.outputs.clear()
    body.outputs.extend(results)
    node.attributes.pop("body")
    always = front.constant(np.asarray(1), ir.DataType.BOOL)
    loop = front.node(std.Loop, [length, always, *node.inputs[:count]], len(node.outputs), body=body)
    # A Scan has no run without a step.
    loop.metadata_props.update({**node.metadata_props, std.STEPS: std.AT_LEAST_ONE})
    provenance.inherit(loop, node)
    behind = Builder(space, node.graph, before=node, scope=front.scope)
    for old, final in zip(node.outputs[:count], loop.outputs, strict=False):
        _stand_for(old, final, space)
    for old, made, (axis, backwards) in zip(node.outputs[count:], loop.outputs[count:], stacked, strict=True):
        found = behind.reverse(made, 0) if backwards else made
        rank = facts.rank(found)
        if axis and rank is not None:
            found = behind.move_axis(found, 0, axis, rank)
        _stand_for(old, found, space)
    detach(node)


def _stand_for(old: ir.Value, new: ir.Value, space: Workspace) -> None:
    """Puts a value in the place of another, under its name, by which gradients may be asked for."""
    replace(old, new, space)
    if not old.is_graph_output() and not new.is_graph_output():
        new.name, old.name = old.name, space.names.fresh(f"{old.name}_replaced")


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
