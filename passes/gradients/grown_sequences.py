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
from lstm_lower.graph.values import stated
from lstm_lower.passes.base import Pass
from lstm_lower.passes.gradients.steps import variation
from lstm_lower.passes.loops.views.loop import State
from lstm_lower.passes.loops.views.while_loop import WhileLoop, all_loops


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
        modified = False
        for loop in all_loops(model.graph, self.context.space):
            if isinstance(loop, WhileLoop):
                modified |= _stack(loop, model.graph)
                modified |= _join(loop)
        return ir.passes.PassResult(model, modified)


def _stack(loop: WhileLoop, around: ir.Graph) -> bool:
    """Makes stacked outputs of a Loop's sequences; whether there was one."""
    stacked = [(state, x) for state in loop.states if (x := _stackable(loop, state, around)) is not None]
    for state, appended in stacked:
        sequence = loop.stacked(appended).sequence
        loop.drop_state(state)
        for reader, _ in list(state.final.uses()):
            _read(reader, sequence, loop.space)
            detach(reader)
    if stacked:
        loop.commit()
    return bool(stacked)


def _stackable(loop: WhileLoop, state: State, around: ir.Graph) -> ir.Value | None:
    """The tensor that each step appends to a sequence, where it can be stacked."""
    appended, facts = _appended(state, loop.space), loop.facts
    if appended is None or not _begins_empty(state.initial, loop.space) or not _is_read_only(state.final):
        return None
    shape = facts.shape(appended)
    if shape is None or not all(isinstance(dim, int | str) for dim in shape):
        return None
    known = all(isinstance(dim, int) for dim in shape)
    return None if not known and variation(loop.view, facts, around).of(appended) else appended


def _appended(state: State, space: Workspace) -> ir.Value | None:
    """The tensor that a step appends to a sequence; `None` where it does anything else."""
    parameter, update = state.parameter, state.update
    if not isinstance(space.facts.type(parameter), ir.SequenceType):
        return None
    made = std.SequenceInsert.of(update.producer(), space.facts)
    if made is None or made.sequence is not parameter or made.operand(2) is not None:
        return None
    if len(parameter.uses()) != 1 or parameter.is_graph_output() or update.uses():
        return None
    return made.tensor


def _join(loop: WhileLoop) -> bool:
    """Lets a Loop carry what has been joined so far in place of sequences of tensors of different shapes."""
    modified, facts = False, loop.facts
    for state in loop.states:
        appended, readers = _appended(state, loop.space), [reader for reader, _ in state.final.uses()]
        shape = None if appended is None else facts.shape(appended)
        views = [view for view in map(facts.view, readers) if isinstance(view, std.ConcatFromSequence)]
        axes = {view.axis for view in views if not view.new_axis}
        if appended is None or shape is None or state.final.is_graph_output() or len(axes) != 1:
            continue
        (axis,) = {axis % len(shape) for axis in axes}
        if any(view.new_axis for view in views) or len(views) < len(readers):
            continue
        first = _first(loop, state, appended, axis)
        if first is None:
            continue
        dims = [None if i == axis else dim for i, dim in enumerate(shape)]
        for value in (state.parameter, state.final):
            value.type, value.shape = facts.type(appended), stated(dims)
            facts.forget(value)
        state.initial = first
        state.update = loop.inside(before=state.update.producer()).op(std.Concat, state.parameter, appended, axis=axis)
        for reader in readers:
            replace(reader.outputs[0], state.final, loop.space)
            detach(reader)
        modified = True
    if modified:
        loop.commit()
    return modified


def _first(loop: WhileLoop, state: State, appended: ir.Value, axis: int) -> ir.Value | None:
    """What is joined before the first step; `None` where it is not known."""
    maker, shape, dtype = _maker(state.initial, loop.space), loop.facts.shape(appended), loop.facts.dtype(appended)
    b = loop.before("first")
    if std.SequenceConstruct.matches(maker):
        return b.concat([x for x in maker.inputs if x is not None], axis)
    sizes = [0 if i == axis else dim for i, dim in enumerate(shape or ())]
    known = [dim for dim in sizes if isinstance(dim, int)]
    if not std.SequenceEmpty.matches(maker) or dtype is None or len(known) < len(sizes):
        return None
    return b.constant(np.zeros(known), dtype).value


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
