"""Sequences as tensors: what is read of a sequence or of an optional value becomes a tensor that went into it.

Where a Loop grows a sequence by tensors of one shape, they are what its steps make: a tensor with an axis more. Where
they differ in shape and are joined behind the Loop, the Loop carries what has been joined so far. What is made of a
known number of tensors, changed and read at known places, is taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace, replace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.loops.views.loop import State, behind_identity
from lstm_lower.passes.loops.views.variation import variation
from lstm_lower.passes.loops.views.while_loop import WhileLoop, all_loops
from lstm_lower.passes.model_pass import Pass

# Longer ones are not taken apart: the model would grow with them.
MOST_PARTS = 4096


class SequencesToTensorsPass(Pass):
    """Lets readers of sequences and of optional values read the tensors in them.

    Precondition of a sequence that a Loop grows and that becomes a stacked output: it begins empty, each step appends
    one tensor and does nothing else with it, that has the same shape in every step, and behind the Loop its tensors are
    joined, counted, or read one by one. Of one whose tensors have any shapes: it begins with known tensors, and is only
    joined behind the Loop, along an axis of the tensors'. Others are taken apart that are made of a known number of
    tensors, changed and read at known places. All others stay as they are.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts those that Loops grow, and takes others apart."""
        modified = False
        for loop in all_loops(model.graph, self.context.space):
            if isinstance(loop, WhileLoop):
                modified |= _stack(loop, model.graph)
                modified |= _join(loop)
        contents = _Contents(self)
        facts, concerned = self.context.space.facts, kinds()
        for node in [node for node in all_nodes(model.graph) if isinstance(facts.view(node), concerned)]:
            contents.look_at(node)
        if contents.modified:
            remove_unread(model.graph)
        return ir.passes.PassResult(model, modified or contents.modified)


def kinds() -> tuple[type[std.Standard], ...]:
    """The operators that are taken apart."""
    return tuple(_HANDLERS)


def _stack(loop: WhileLoop, around: ir.Graph) -> bool:
    """Makes stacked outputs of a Loop's sequences; whether there was one."""
    stacked = [(state, x) for state in loop.states if (x := _stackable(loop, state, around)) is not None]
    for state, appended in stacked:
        sequence = loop.stacked(appended).sequence
        loop.write()
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
    if appended is None or not std.SequenceEmpty.matches(_maker(state)) or not _is_read_only(state.final):
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
        facts.forget(state.parameter)
        state.initial, state.final = first, loop.space.value(loop.scope("joined"), None, None)
        for value in (state.parameter, state.final):
            value.type, value.shape = facts.type(appended), stated(dims)
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
    maker, shape, dtype = _maker(state), loop.facts.shape(appended), loop.facts.dtype(appended)
    b = loop.before("first")
    if std.SequenceConstruct.matches(maker):
        return b.concat([x for x in maker.inputs if x is not None], axis)
    sizes = [0 if i == axis else dim for i, dim in enumerate(shape or ())]
    known = [dim for dim in sizes if isinstance(dim, int)]
    if not std.SequenceEmpty.matches(maker) or dtype is None or len(known) < len(sizes):
        return None
    return b.constant(np.zeros(known), dtype).value


def _maker(state: State) -> ir.Node | None:
    """The node that makes the sequence that a Loop begins with."""
    return behind_identity(state.initial).producer()


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
            found = reshape_to(e.wrap(found), e.concat(sizes, 0)).value
    replace(reader.outputs[0], found, space)


class _Contents:
    """What is in sequences and optional values, as far as it is known.

    Attributes:
        parts: sequence -> its tensors.
        modified: whether a reader has been given a tensor, or a node has been emitted.
    """

    def __init__(self, owner: Pass) -> None:
        self.space = owner.context.space
        self.parts: dict[ir.Value, list[ir.Value]] = {}
        self.modified = False
        # Value of an optional type -> what is in it, if anything is.
        self.optional: dict[ir.Value, ir.Value | None] = {}

    def look_at(self, node: ir.Node) -> None:
        """Finds out what a node makes, or gives its readers that."""
        view = self.space.facts.view(node)
        handler = next((handler for kind, handler in _HANDLERS.items() if isinstance(view, kind)), None)
        if view is not None and handler is not None:
            handler(self, view)

    def emitter(self, node: ir.Node) -> Builder:
        """Emits before a node, what nobody may read in the end."""
        assert node.graph is not None
        self.modified = True
        return Builder(self.space, node.graph, before=node, scope=node.name or node.op_type)

    def read(self, node: ir.Node, value: ir.Value) -> None:
        """Gives the readers of a node a value."""
        replace(node.outputs[0], value, self.space)
        self.modified = True

    def identity(self, op: std.Identity) -> None:
        """A copy of a sequence or of an optional value."""
        if op.data in self.parts:
            self.parts[op.output] = self.parts[op.data]
        if op.data in self.optional:
            self.optional[op.output] = self.optional[op.data]

    def construct(self, op: std.SequenceConstruct) -> None:
        """All operands."""
        self.parts[op.output] = [value for value in op.inputs if value is not None]

    def empty(self, op: std.SequenceEmpty) -> None:
        """Nothing."""
        self.parts[op.output] = []

    def insert(self, op: std.SequenceInsert) -> None:
        """One more."""
        parts = self.parts.get(op.sequence)
        if parts is None:
            return
        # Behind the last one, too, there is a place.
        at = len(parts) if op.operand(2) is None else op.position(len(parts) + 1)
        given = op.constant(2)
        if given is not None and int(given.reshape(-1)[0]) < 0:
            at = op.position(len(parts))
        if at is not None:
            self.parts[op.output] = [*parts[:at], op.tensor, *parts[at:]]

    def erase(self, op: std.SequenceErase) -> None:
        """One less."""
        parts = self.parts.get(op.sequence)
        if parts is None:
            return
        at = len(parts) - 1 if op.operand(1) is None else op.position(len(parts))
        if at is not None:
            self.parts[op.output] = [*parts[:at], *parts[at + 1 :]]

    def at(self, op: std.SequenceAt) -> None:
        """One of them."""
        parts = self.parts.get(op.sequence)
        at = None if parts is None else op.position(len(parts))
        if parts is not None and at is not None:
            self.read(op.node, parts[at])

    def length(self, op: std.SequenceLength) -> None:
        """Their number."""
        parts = self.parts.get(op.sequence)
        if parts is not None:
            self.read(op.node, self.emitter(op.node).constant(len(parts)).value)

    def split(self, op: std.SplitToSequence) -> None:
        """Parts of a tensor."""
        axis, shape, given = op.axis, op.shape(), op.operand(1)
        size = None if shape is None or axis is None else shape[axis]
        e = self.emitter(op.node)
        sizes: ir.Value
        if given is not None and op.rank(1) == 1:
            length = (op.shape(1) or (None,))[0]
            if axis is None or not isinstance(length, int) or length > MOST_PARTS:
                return
            count, sizes = length, given
        else:
            each = 1 if given is None else _number(op.constant(1))
            if axis is None or not isinstance(size, int) or each is None or size > MOST_PARTS * each:
                return
            count = -(-size // each)
            sizes = e.ints(*[min(each, size - each * i) for i in range(count)]).value
        if not count:
            self.parts[op.output] = []
            return
        parts = e.node(std.Split, [op.data, sizes], count, axis=axis).outputs
        squeezed = given is None and not op.keepdims
        self.parts[op.output] = [e.squeeze(part, axis) if squeezed else part for part in parts]

    def concat(self, op: std.ConcatFromSequence) -> None:
        """All of them joined."""
        parts = self.parts.get(op.sequence)
        if parts:
            e = self.emitter(op.node)
            joined = [e.unsqueeze(part, op.axis) if op.new_axis else part for part in parts]
            self.read(op.node, e.op(std.Concat, *joined, axis=op.axis))

    def map(self, op: std.SequenceMap) -> None:
        """The body for each of them."""
        first, *others = op.inputs
        lists = {value: self.parts.get(value) for value in op.inputs if value is not None}
        sequences = [isinstance(self.space.facts.type(value), ir.SequenceType) for value in others]
        if first is None or lists[first] is None:
            return
        if any(
            is_list and value is not None and lists[value] is None
            for value, is_list in zip(others, sequences, strict=True)
        ):
            return
        made: list[list[ir.Value]] = [[] for _ in op.node.outputs]
        e = self.emitter(op.node)
        for step, element in enumerate(lists[first] or []):
            given: dict[ir.Value, ir.Value | None] = {op.body.inputs[0]: element}
            for value, parameter, is_list in zip(others, op.body.inputs[1:], sequences, strict=True):
                parts = None if value is None else lists[value]
                given[parameter] = parts[step] if is_list and parts is not None else value
            copier = Copier(given, captures=True, name=self.space.names.another)
            copies = copier.nodes(list(op.body))
            e.place(*copies)
            for output, found in zip(op.body.outputs, made, strict=True):
                copy = copier.values.get(output, output)
                assert copy is not None
                found.append(copy)
            for copy_ in copies:
                self.look_at(copy_)
        self.parts.update(zip(op.node.outputs, made, strict=True))

    def make_optional(self, op: std.MadeOptional) -> None:
        """What is in it."""
        self.optional[op.output] = op.operand(0)

    def has_element(self, op: std.OptionalHasElement) -> None:
        """Whether there is anything in it."""
        value = op.operand(0)
        if (
            value is not None
            and value not in self.optional
            and not isinstance(self.space.facts.type(value), ir.TensorType)
        ):
            return
        found = value is not None and self.optional.get(value, value) is not None
        self.read(op.node, self.emitter(op.node).constant(np.asarray(found), ir.DataType.BOOL).value)

    def get_element(self, op: std.OptionalGetElement) -> None:
        """The tensor or the sequence in it."""
        value = op.operand(0)
        if value is None:
            return
        found = self.optional.get(value, value)
        if found is not None and isinstance(self.space.facts.type(found), ir.TensorType):
            self.read(op.node, found)
        elif found is not None and found in self.parts:
            self.parts[op.output] = self.parts[found]


def _number(array: Any) -> int | None:
    return None if array is None or array.size != 1 or array.reshape(-1)[0] < 1 else int(array.reshape(-1)[0])


_HANDLERS: dict[type[std.Standard], Callable[[_Contents, Any], None]] = {
    std.Identity: _Contents.identity,
    std.SequenceConstruct: _Contents.construct,
    std.SequenceEmpty: _Contents.empty,
    std.SequenceInsert: _Contents.insert,
    std.SequenceErase: _Contents.erase,
    std.SequenceAt: _Contents.at,
    std.SequenceLength: _Contents.length,
    std.SplitToSequence: _Contents.split,
    std.ConcatFromSequence: _Contents.concat,
    std.SequenceMap: _Contents.map,
    std.MadeOptional: _Contents.make_optional,
    std.OptionalHasElement: _Contents.has_element,
    std.OptionalGetElement: _Contents.get_element,
}
