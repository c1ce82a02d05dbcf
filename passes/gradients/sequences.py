"""Static sequences: what is read of a sequence whose length is known is a tensor that went into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass

# Longer ones are not taken apart: the model would grow with them.
MOST_PARTS = 4096


class StaticSequencesPass(Pass):
    """Lets readers of static sequences and of optional values read the tensors in them.

    Static are sequences that are made of a known number of tensors, changed and read at known places. Others stay as
    they are.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Takes them apart."""
        nodes = [node for node in all_nodes(model.graph) if _concerns(node)]
        if not nodes:
            return ir.passes.PassResult(model, modified=False)
        known = _Known(self)
        for node in nodes:
            known.look_at(node)
        if known.modified:
            remove_unread(model.graph)
        return ir.passes.PassResult(model, known.modified)


def kinds() -> tuple[type[std.Standard], ...]:
    """The operators that are taken apart."""
    return tuple(_HANDLERS)


def _concerns(node: ir.Node) -> bool:
    return any(kind.matches(node) for kind in _HANDLERS)


class _Known:
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
                if _concerns(copy_):
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


_HANDLERS: dict[type[std.Standard], Callable[[_Known, Any], None]] = {
    std.Identity: _Known.identity,
    std.SequenceConstruct: _Known.construct,
    std.SequenceEmpty: _Known.empty,
    std.SequenceInsert: _Known.insert,
    std.SequenceErase: _Known.erase,
    std.SequenceAt: _Known.at,
    std.SequenceLength: _Known.length,
    std.SplitToSequence: _Known.split,
    std.ConcatFromSequence: _Known.concat,
    std.SequenceMap: _Known.map,
    std.MadeOptional: _Known.make_optional,
    std.OptionalHasElement: _Known.has_element,
    std.OptionalGetElement: _Known.get_element,
}
