"""Emitting nodes: the one way in which anything is added to a graph.

An `Emitter` puts nodes at a place: before or behind a node, or at a graph's end. Each node's outputs get the types that
follow from its operands. Formulas in Python arithmetic are in `expressions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach, redirect
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.operator_versions import opset_of
from lstm_lower.graph.values import Array, Dim, stated

# The end of an axis in a slice, whatever its size.
END = int(np.iinfo(np.int64).max)


@dataclasses.dataclass(frozen=True)
class Workspace:
    """What everything that works on one model shares.

    Attributes:
        names: gives out unique names.
        facts: what is known of the model's values.
        opset: the model's version of `ai.onnx`, in whose forms nodes are written.
    """

    names: Names
    facts: Facts
    opset: int

    @classmethod
    def of(cls, model: ir.Model) -> Workspace:
        """A model's workspace."""
        return cls(Names.of(model), Facts.of(model), opset_of(model))

    def value(self, name: str, type_: ir.TypeProtocol | None, shape: Sequence[Dim | None] | None) -> ir.Value:
        """A new value that no node makes yet: a body's parameter, or an output of a node to come."""
        value = ir.Value(name=self.names.fresh(name), type=type_)
        if shape is not None:
            self.facts.tell(value, shape)
            value.shape = stated(shape)
        return value


class Constants:
    """Constants of one graph, equal ones only once."""

    def __init__(self, graph: ir.Graph | None) -> None:
        """Without a graph each emitter places its constants where it works."""
        self.graph = graph
        self.values: dict[tuple[Any, ...], ir.Value] = {}

    def place(self, user: Emitter) -> Emitter:
        """Emits at the start of the graph, behind the constants that stand there already."""
        assert self.graph is not None
        last = next((value.producer() for value in reversed(self.values.values())), None)
        before = next(iter(self.graph), None) if last is None else None
        return Emitter(user.space, self.graph, before=before, after=last, scope=user.scope, stands_for=user.stands_for)


class Emitter:
    """Emits nodes right before or right behind an anchor node, or at the end of a graph.

    Attributes:
        space: what is shared by all that works on the model.
        graph: the graph that nodes are emitted into.
        scope: what names of nodes begin with.
        emitted: the nodes emitted so far, in order.
        stands_for: the source nodes that what is emitted stands for: those of the node at which it is.
    """

    def __init__(
        self,
        space: Workspace,
        graph: ir.Graph,
        *,
        before: ir.Node | None = None,
        after: ir.Node | None = None,
        scope: str = "loop",
        constants: Constants | None = None,
        stands_for: provenance.Sources = (),
    ) -> None:
        self.space = space
        self.graph = graph
        self.scope = scope
        self.emitted: list[ir.Node] = []
        self._constants = constants
        self._before = before
        self._after = after
        self.stands_for = stands_for or provenance.sources(before or after)

    def go_before(self, node: ir.Node, scope: str) -> None:
        """Emits before another node of the graph from now on."""
        self._before, self._after = node, None
        if self._constants is not None and self._constants.graph is None:
            # They stand behind what is before that node.
            self._constants = None
        self.scope = scope
        self.emitted = []
        self.stands_for = provenance.sources(node)

    @property
    def constants(self) -> Constants:
        """Where constants are shared."""
        if self._constants is None:
            self._constants = Constants(None)
        return self._constants

    @property
    def facts(self) -> Facts:
        """What is known of the model's values."""
        return self.space.facts

    @property
    def names(self) -> Names:
        """Gives out unique names."""
        return self.space.names

    @property
    def opset(self) -> int:
        """The version of `ai.onnx` that nodes are written for."""
        return self.space.opset

    def node(
        self,
        op: type[std.Standard],
        inputs: Sequence[ir.Value | None],
        outputs: int = 1,
        *,
        like: ir.Value | None = None,
        **attributes: Any,
    ) -> ir.Node:
        """Emits a node of one of ONNX's own operators; its outputs get types and shapes.

        `like` is a value of the only output's type and shape: of many nodes that are alike, these are inferred once.
        """
        op_type = op.op_type
        name = self.names.fresh(f"{self.scope}/{op_type}")
        values = [ir.Value(name=self.names.part(name, index, outputs)) for index in range(outputs)]
        attrs = [_attribute(key, value) for key, value in attributes.items()]
        node = ir.Node(op.domain, op_type, inputs, attrs, outputs=values, name=name)
        self.place(node)
        if like is not None:
            self.facts.alike(values[0], like)
        for value in values:
            self.declare(value)
        return node

    def declare(self, value: ir.Value) -> None:
        """Declares what is known of a value's type and shape."""
        value.type = self.facts.type(value)
        shape = self.facts.shape(value)
        value.shape = None if shape is None else stated(shape)

    def again(self, node: ir.Node, inputs: Sequence[ir.Value | None], **changed: Any) -> ir.Node:
        """Emits a node of the same operator with other operands; `changed` attributes replace its own, `None` drops."""
        attributes = {**node.attributes, **changed}
        kept = {key: value for key, value in attributes.items() if value is not None}
        made = self.node(std.VIEWS[node.op_type], inputs, len(node.outputs), **kept)
        _inherit(made, node)
        return made

    def repeat(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> list[ir.Value]:
        """Emits a node of any operator again with other operands; returns its outputs."""
        name = self.names.fresh(f"{self.scope}/{node.op_type}")
        outputs = [ir.Value(name=self.names.part(name, index, index + 1)) for index in range(len(node.outputs))]
        attributes = list(node.attributes.values())
        made = ir.Node(
            node.domain, node.op_type, inputs, attributes, overload=node.overload, outputs=outputs, name=name
        )
        self.place(made)
        for value in outputs:
            self.declare(value)
        _inherit(made, node)
        return outputs

    def op(self, op: type[std.Standard], *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Emits a node with one output."""
        return self.node(op, inputs, 1, **attributes).outputs[0]

    def place(self, *nodes: ir.Node) -> None:
        """Puts existing nodes that stand in no graph at the place where nodes are emitted."""
        self.facts.enter(*[node for node in nodes if node.attributes.data])
        if self.stands_for:
            for node in nodes:
                provenance.record(node, self.stands_for)
        if self._before is not None:
            self.graph.insert_before(self._before, nodes)
        elif self._after is not None and nodes:
            self.graph.insert_after(self._after, nodes)
            self._after = nodes[-1]
        else:
            self.graph.extend(nodes)
        self.emitted += nodes

    def discard_unread(self, keep: Container[ir.Value | None] = ()) -> None:
        """Removes emitted nodes that nothing reads, but for those that make a value to keep."""
        for node in reversed(self.emitted):
            if node.graph is not None and not any(x.uses() or x.is_graph_output() or x in keep for x in node.outputs):
                detach(node)
        self.emitted = [node for node in self.emitted if node.graph is not None]

    def state(self, value: ir.Value, shape: Sequence[Dim | None]) -> ir.Value:
        """States a value's shape where the caller knows more than follows from the operands."""
        self.facts.tell(value, shape)
        known = self.facts.shape(value)
        assert known is not None
        value.shape = stated(known)
        return value

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Lets every reader of `old` read `new`; an output of a graph keeps its name.

        Where `new` cannot stand as a graph's output itself (it is an input, belongs to another graph, or is an output
        already), an Identity does.
        """
        replace(old, new, self.space)

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A constant; equal ones are shared."""
        array: Array = np.asarray(value, dtype.numpy())
        shared = self.constants
        key = (dtype, array.shape, array.tobytes())
        if key not in shared.values:
            attribute = ir.AttrTensor("value", ir.Tensor(array, dtype=dtype))
            where = self if shared.graph is None else shared.place(self)
            shared.values[key] = where.op(std.Constant, value=attribute)
        return shared.values[key]

    def ints(self, *values: int) -> ir.Value:
        """An int64 vector constant."""
        return self.constant(list(values))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size along an axis as an int64 tensor of shape [1]; a constant when it is known."""
        shape = self.facts.shape(value)
        dim = None if shape is None else shape[axis]
        if isinstance(dim, int):
            return self.ints(dim)
        return self.op(std.Gather, self.op(std.Shape, value), self.ints(axis), axis=0)

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Inserts axes of size 1; nothing is emitted without axes."""
        return self.op(std.Unsqueeze, value, self.ints(*axes)) if axes else value

    def squeeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Removes axes of size 1; nothing is emitted without axes."""
        return self.op(std.Squeeze, value, self.ints(*axes)) if axes else value

    def concat(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        """Joins values along an axis; nothing is emitted for one."""
        return parts[0] if len(parts) == 1 else self.op(std.Concat, *parts, axis=axis)

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Permutes the axes; nothing is emitted where they stand so already."""
        return value if list(order) == sorted(order) else self.op(std.Transpose, value, perm=list(order))

    def slice(self, value: ir.Value, start: int | ir.Value, end: int | ir.Value, axis: int, step: int = 1) -> ir.Value:
        """Elements `start` to `end` (exclusive) along an axis."""
        bounds = [self.ints(bound) if isinstance(bound, int) else bound for bound in (start, end)]
        steps = [] if step == 1 else [self.ints(step)]
        return self.op(std.Slice, value, *bounds, self.ints(axis), *steps)

    def reverse(self, value: ir.Value, axis: int) -> ir.Value:
        """The elements along an axis in reverse order."""
        return self.slice(value, -1, -END, axis, step=-1)

    def reduce(self, op: type[std.Reduction], value: ir.Value, axes: Sequence[int], *, keepdims: bool) -> ir.Value:
        """Reduces axes, in the form of the opset; nothing is emitted without axes."""
        if not axes:
            return value
        if self.opset >= op.axes_are_operand_since:
            return self.op(op, value, self.ints(*axes), keepdims=int(keepdims))
        return self.op(op, value, axes=list(axes), keepdims=int(keepdims))

    def move_axis(self, value: ir.Value, source: int, target: int, rank: int) -> ir.Value:
        """Moves one axis, the others keep their order; nothing is emitted when it stands there already."""
        order = [axis for axis in range(rank) if axis != source % rank]
        order.insert(target % rank, source % rank)
        return self.transpose(value, order)


def replace(old: ir.Value, new: ir.Value, space: Workspace) -> None:
    """Lets every reader of `old` read `new`, see `Emitter.replace`."""
    provenance.join(new.producer(), provenance.sources(old.producer()))
    graph = old.graph if old.is_graph_output() else None
    positions = [] if graph is None else [index for index, output in enumerate(graph.outputs) if output is old]
    known_better = space.facts.replaced(old, new)
    if known_better and new.producer() is not None and not new.is_graph_output():
        # Else it would be forgotten with the facts of this pass.
        new.shape = stated(space.facts.shape(new) or ())
    if graph is not None and positions:
        name = old.name
        old.name = space.names.fresh(f"{name}_replaced")
        target = new
        if new.graph is not graph or new.producer() is None or new.is_graph_output():
            target = Emitter(space, graph, scope=str(name)).op(std.Identity, new)
        target.name = name
        target.type = old.type if old.type is not None else target.type
        target.shape = old.shape if old.shape is not None else target.shape
        for index in positions:
            graph.outputs[index] = target
    redirect(old, new)


def _inherit(made: ir.Node, original: ir.Node) -> None:
    """Lets a node stand for what another one does, and have its marks."""
    made.metadata_props.update(original.metadata_props)
    provenance.inherit(made, original)


def _attribute(name: str, value: Any) -> ir.Attr:
    # onnx_ir's own conversion tests for every protocol in turn, which takes longer than making the node.
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if isinstance(value, list) and value and isinstance(value[0], int):
        return ir.AttrInt64s(name, value)
    return ir.convenience.convert_attribute(name, value)
