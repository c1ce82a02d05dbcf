"""Sequences that a Loop grows by one tensor in every step, as tensors.

Where all tensors have one shape they are what the steps make: a tensor with an axis more. Where they differ, and are
joined behind the loop, the loop carries what has been joined so far.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace, replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.passes.base import Pass
from lstm_lower.passes.gradients.steps import variation


class GrownSequencesPass(Pass):
    """Makes tensors of the sequences that Loops carry only to append to them.

    Precondition of one that becomes a stacked output: it begins empty, each step appends one tensor and does nothing
    else with it, that has the same shape in every step, and behind the Loop its tensors are joined, counted, or read
    one by one. Of one whose tensors have any shapes: it begins with known tensors, and is only joined behind the Loop,
    along an axis of the tensors'.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts."""
        space = self.context.space
        modified = False
        for node in [node for node in all_nodes(model.graph) if std.Loop.matches(node)]:
            loop: ir.Node | None = node
            last = node
            while loop is not None:
                last, loop = loop, _converted(loop, model.graph, space)
                modified |= loop is not None
            modified |= _join(last, space)
        return ir.passes.PassResult(model, modified)


def _converted(node: ir.Node, around: ir.Graph, space: Workspace) -> ir.Node | None:
    """The Loop with one such sequence less; `None` where it has none."""
    view = std.Loop.of(node, space.facts)
    if view is None:
        return None
    body = view.body
    for j, initial in enumerate(view.carried):
        appended = _appended(body.inputs[2 + j], body.outputs[1 + j], space)
        sequence = node.outputs[j]
        if appended is None or not _begins_empty(initial, space) or not _is_read_only(sequence):
            continue
        shape = space.facts.shape(appended)
        if shape is None or not all(isinstance(dim, int | str) for dim in shape):
            continue
        if not all(isinstance(dim, int) for dim in shape) and variation(view, space.facts, around).of(appended):
            continue
        made = body.outputs[1 + j].producer()
        assert made is not None
        own = appended.producer()
        if own is None or own.graph is not body or appended in body.outputs:
            appended = Builder(space, body, before=made, scope=f"{node.name}/appended").op(std.Identity, appended)
        appended.type, appended.shape = space.facts.type(appended), stated(shape)
        body.outputs.pop(1 + j)
        body.outputs.append(appended)
        detach(made)
        body.inputs.pop(2 + j)
        node.attributes.pop("body")
        operands = [value for i, value in enumerate(node.inputs) if i != 2 + j]
        assert node.graph is not None
        emitter = Builder(space, node.graph, before=node, scope=node.name or node.op_type)
        loop = emitter.node(std.Loop, operands, len(node.outputs), body=body)
        loop.metadata_props.update(node.metadata_props)
        rest = [value for i, value in enumerate(node.outputs) if i != j]
        for old, new in zip(rest, loop.outputs[: len(rest)], strict=True):
            replace(old, new, space)
        for reader, _ in list(sequence.uses()):
            _read(reader, loop.outputs[-1], space)
            detach(reader)
        detach(node)
        space.facts.forget(*loop.outputs)
        return loop
    return None


def _appended(parameter: ir.Value, update: ir.Value, space: Workspace) -> ir.Value | None:
    """The tensor that a step appends to a sequence; `None` where it does anything else."""
    if not isinstance(space.facts.type(parameter), ir.SequenceType):
        return None
    made = std.SequenceInsert.of(update.producer(), space.facts)
    if made is None or made.sequence is not parameter or made.operand(2) is not None:
        return None
    if len(parameter.uses()) != 1 or parameter.is_graph_output() or update.uses():
        return None
    return made.tensor


def _join(node: ir.Node, space: Workspace) -> bool:
    """Lets a Loop carry what has been joined so far in place of sequences of tensors of different shapes."""
    view = std.Loop.of(node, space.facts)
    if view is None:
        return False
    body, modified = view.body, False
    for j, initial in enumerate(view.carried):
        parameter, update, final = body.inputs[2 + j], body.outputs[1 + j], node.outputs[j]
        appended, readers = _appended(parameter, update, space), [reader for reader, _ in final.uses()]
        shape = None if appended is None else space.facts.shape(appended)
        views = [view for view in map(space.facts.view, readers) if isinstance(view, std.ConcatFromSequence)]
        axes = {view.axis for view in views if not view.new_axis}
        if appended is None or shape is None or final.is_graph_output() or len(axes) != 1:
            continue
        (axis,) = {axis % len(shape) for axis in axes}
        if any(view.new_axis for view in views) or len(views) < len(readers):
            continue
        first = _first(initial, appended, axis, node, space)
        if first is None:
            continue
        node.replace_input_with(2 + j, first)
        old = update.producer()
        assert old is not None
        dims = [None if i == axis else dim for i, dim in enumerate(shape)]
        for value in (parameter, final):
            value.type, value.shape = space.facts.type(appended), stated(dims)
            space.facts.forget(value)
        space.facts.enter(node)
        joined = Builder(space, body, before=old, scope=old.name or "").op(std.Concat, parameter, appended, axis=axis)
        body.outputs[1 + j] = joined
        detach(old)
        for reader in readers:
            replace(reader.outputs[0], final, space)
            detach(reader)
        modified = True
    return modified


def _first(value: ir.Value | None, appended: ir.Value, axis: int, node: ir.Node, space: Workspace) -> ir.Value | None:
    """What is joined before the first step; `None` where it is not known."""
    maker, shape, dtype = _maker(value, space), space.facts.shape(appended), space.facts.dtype(appended)
    assert node.graph is not None
    e = Builder(space, node.graph, before=node, scope=node.name or node.op_type)
    if std.SequenceConstruct.matches(maker):
        return e.concat([x for x in maker.inputs if x is not None], axis)
    sizes = [0 if i == axis else dim for i, dim in enumerate(shape or ())]
    known = [dim for dim in sizes if isinstance(dim, int)]
    if not std.SequenceEmpty.matches(maker) or dtype is None or len(known) < len(sizes):
        return None
    return e.constant(np.zeros(known), dtype).value


def _maker(value: ir.Value | None, space: Workspace) -> ir.Node | None:
    """The node that makes a sequence."""
    while (copied := std.Identity.of(value.producer() if value is not None else None, space.facts)) is not None:
        value = copied.data
    return None if value is None else value.producer()


def _begins_empty(value: ir.Value | None, space: Workspace) -> bool:
    return std.SequenceEmpty.matches(_maker(value, space))


def _is_read_only(sequence: ir.Value) -> bool:
    kinds = (std.ConcatFromSequence, std.SequenceAt, std.SequenceLength)
    readers = [node for node, _ in sequence.uses()]
    return not sequence.is_graph_output() and all(any(kind.matches(node) for kind in kinds) for node in readers)


def _read(reader: ir.Node, stacked: ir.Value, space: Workspace) -> None:
    """Gives a reader's readers what it takes of the tensors, which stand along axis 0."""
    assert reader.graph is not None
    e = Builder(space, reader.graph, before=reader, scope=reader.name or reader.op_type)
    view = space.facts.view(reader)
    if isinstance(view, std.SequenceAt):
        place = view.operand(1)
        found = e.op(std.Gather, stacked, place, axis=0)
    elif isinstance(view, std.SequenceLength):
        found = e.squeeze(e.size(stacked, 0), 0).value
    else:
        assert isinstance(view, std.ConcatFromSequence)
        rank = space.facts.rank(stacked)
        assert rank is not None
        axis = view.axis % (rank if view.new_axis else rank - 1)
        found = e.move_axis(stacked, 0, axis, rank)
        if not view.new_axis:
            sizes = [e.size(found, i) for i in range(rank)]
            sizes[axis : axis + 2] = [e.op(std.Mul, *sizes[axis : axis + 2])]
            allow = {"allowzero": 1} if e.opset >= 14 else {}
            found = e.op(std.Reshape, found, e.concat(sizes, 0), **allow)
    replace(reader.outputs[0], found, space)
