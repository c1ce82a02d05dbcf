"""Sequences that a Loop grows by one tensor in every step are what its steps make: a tensor with an axis more."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Emitter, Workspace, replace
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.passes.base import Pass


class GrownSequencesPass(Pass):
    """Makes stacked outputs of Loops of sequences that they carry only to append to them.

    Precondition of one: it begins empty, each step appends one tensor and does nothing else with it, that has the same
    shape in every step, and behind the Loop its tensors are joined, counted, or read one by one.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts."""
        space = self.context.space
        modified = False
        for node in [node for node in all_nodes(model.graph) if std.Loop.matches(node)]:
            loop: ir.Node | None = node
            while loop is not None:
                loop = _converted(loop, space)
                modified |= loop is not None
        return ir.passes.PassResult(model, modified)


def _converted(node: ir.Node, space: Workspace) -> ir.Node | None:
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
        made = body.outputs[1 + j].producer()
        assert made is not None
        own = appended.producer()
        if own is None or own.graph is not body or appended in body.outputs:
            appended = Emitter(space, body, before=made, scope=f"{node.name}/appended").op(std.Identity, appended)
        shape = space.facts.shape(appended)
        appended.type, appended.shape = space.facts.type(appended), None if shape is None else stated(shape)
        del body.outputs[1 + j]
        body.outputs.append(appended)
        detach(made)
        del body.inputs[2 + j]
        node.attributes.pop("body")
        operands = [value for i, value in enumerate(node.inputs) if i != 2 + j]
        assert node.graph is not None
        emitter = Emitter(space, node.graph, before=node, scope=node.name or node.op_type)
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
    shape = space.facts.shape(made.tensor)
    if shape is None or not all(isinstance(dim, int | str) for dim in shape):
        return None
    return made.tensor


def _begins_empty(value: ir.Value | None, space: Workspace) -> bool:
    while (copied := std.Identity.of(value.producer() if value is not None else None, space.facts)) is not None:
        value = copied.data
    return value is not None and std.SequenceEmpty.matches(value.producer())


def _is_read_only(sequence: ir.Value) -> bool:
    kinds = (std.ConcatFromSequence, std.SequenceAt, std.SequenceLength)
    readers = [node for node, _ in sequence.uses()]
    return not sequence.is_graph_output() and all(any(kind.matches(node) for kind in kinds) for node in readers)


def _read(reader: ir.Node, stacked: ir.Value, space: Workspace) -> None:
    """Gives a reader's readers what it takes of the tensors, which stand along axis 0."""
    assert reader.graph is not None
    e = Emitter(space, reader.graph, before=reader, scope=reader.name or reader.op_type)
    view = space.facts.view(reader)
    if isinstance(view, std.SequenceAt):
        place = view.operand(1)
        found = e.op(std.Gather, stacked, place, axis=0)
    elif isinstance(view, std.SequenceLength):
        found = e.squeeze(e.size(stacked, 0), 0)
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
