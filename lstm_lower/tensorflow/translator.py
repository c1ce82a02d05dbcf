"""From regions to ONNX: each op by its handler, or by its definition and lowering rule.

Ordinary ops become ONNX's operators at once, so that shapes are known to what follows. Recurrent ops and the gradients
around them stay nodes of their own, which `lower` takes. Variables, lists and control flow have handlers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import set_operands
from lstm_lower.graph.values import Open, UnknownEntry
from lstm_lower.opdef import DOMAIN, OpDef, definition
from lstm_lower.ops.raw import RawOp
from lstm_lower.passes.rewriting import values_of
from lstm_lower.passes.rules.registry import RULES, Node
from lstm_lower.tensorflow.attributes import attributes_of, check_real
from lstm_lower.tensorflow.regions import Aliases, Op, Region
from lstm_lower.tensorflow.values import Flow, Guard, Handle, Resource, Text, Value

Handler = Callable[["Translator", Op, "Scope"], "list[Value] | Value | None"]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[str, Handler] = {}

# What the reference calls a family of them -> its ops.
HANDLED: dict[str, list[str]] = {}

# The ops among them that change a variable.
WRITES: set[str] = set()

# Larger constants are initializers.
_INLINE = 64


def handlers(family: str) -> Callable[..., Callable[[H], H]]:
    """The decorator that registers what is done with ops that are structure: `@handles(*ops, writes=False)`.

    Args:
        family: what the reference calls the ops; `writes` says that they change a variable.
    """
    listed = HANDLED.setdefault(family, [])

    def handles(*ops: str, writes: bool = False) -> Callable[[H], H]:
        def register(handler: H) -> H:
            HANDLERS.update(dict.fromkeys(ops, handler))
            WRITES.update(ops if writes else ())
            listed.extend(ops)
            return handler

        return register

    return handles


@dataclasses.dataclass(eq=False)
class Scope:
    """A region on its way.

    Attributes:
        builder: the graph, body or branch that it becomes.
        floor: the outermost one that may compute what depends on nothing of this region.
        outer: the region around.
        values: tensor name -> what it stands for.
        cells: what is in the cells that this region has changed.
        carry: of a loop's body that changes cells: makes the parameter that stands for what an iteration finds in one.
        side: of a branch, its condition and the side, 0 for the one where it holds.
    """

    builder: Builder
    floor: Builder
    outer: Scope | None = None
    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    cells: dict[Resource, Value] = dataclasses.field(default_factory=dict)
    carry: Callable[[Resource, Value], Value] | None = None
    side: Guard | None = None

    def read(self, cell: Resource) -> Value:
        """What is in a cell now."""
        if cell in self.cells:
            return self.cells[cell]
        if self.outer is None:
            raise InvalidModelError(f"'{cell.name}' must be made before it is read, got a reader before")
        found = self.outer.read(cell)
        if self.carry is not None:
            # An iteration may find what an earlier one has left.
            found = self.cells[cell] = self.carry(cell, found)
        return found

    def holds(self, cell: Resource) -> bool:
        """Whether a cell was made here or around."""
        return cell in self.cells or (self.outer is not None and self.outer.holds(cell))

    def home(self, cell: Resource) -> Scope:
        """The region that a cell was made in."""
        scope = self
        while scope.outer is not None and scope.outer.holds(cell):
            scope = scope.outer
        return scope

    def body(self) -> Scope:
        """The loop's body that it is a part of, or the graph."""
        scope = self
        while scope.outer is not None and scope.carry is None:
            scope = scope.outer
        return scope

    def find(self, name: str) -> Value | None:
        """What a tensor stands for here or around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


class Translator:
    """The translation of one graph.

    Attributes:
        model: the model under construction.
        space: what is shared by all that works on it.
        root: emits into its graph.
        aliases: names of tensors that stand for others.
        read: names of all tensors that something reads.
        variables: node name -> cell, of variables that the source knows.
        copies: tensor name -> cell, of reference variables' values. They share the variable's memory: who reads one
            after an assignment that it waits for finds the new value, as averages of weights after a step do.
        translated: how many ops have been emitted as what they are lowered to.
    """

    def __init__(self, opset: int, aliases: Aliases, read: Iterable[str]) -> None:
        graph = ir.Graph([], [], nodes=[], opset_imports={"": opset, DOMAIN: 1}, name="tensorflow")
        self.model = ir.Model(graph, ir_version=10)
        self.space = Workspace.of(self.model)
        self.root = Builder(self.space, graph, scope="graph")
        self.aliases = aliases
        # What leaves a branch has the branch's name outside and its own within.
        self.read = {stage for name in read for stage in aliases.chain(name)}
        self.variables: dict[str, Resource] = {}
        self.restored: dict[tuple[Resource, Scope], Resource] = {}
        self.origins: dict[ir.Value, ir.Value] = {}
        self.turns: dict[ir.Value, tuple[Expr, Expr]] = {}
        self.dims: dict[str, tuple[Expr, int]] = {}
        self._sizes: dict[Any, Expr] = {}
        self.copies: dict[str, Resource] = {}
        self.translated = 0
        # Name of an op -> the variables that are surely changed before it runs; ops around the current one.
        self._changed: dict[str, frozenset[Resource]] = {}
        self._around: frozenset[Resource] = frozenset()
        self._builders: dict[ir.Graph, Builder] = {graph: self.root}

    def origin(self, value: ir.Value) -> ir.Value:
        """The value that one which was handed on is a value of."""
        while value in self.origins:
            value = self.origins[value]
        return value

    def inner(self, outer: Builder, role: str, name: str) -> Builder:
        """Emits into a new body or branch."""
        outer.scope = name
        builder = outer.inner(role)
        self._builders[builder.graph] = builder
        return builder

    def parameter(self, body: Builder, like: Expr, role: str, shape: Sequence[Any] | None) -> Expr:
        """A further input of a body."""
        expr = body.parameter(like, role, shape)
        body.graph.inputs.append(expr.value)
        return expr

    def wrap(self, value: ir.Value) -> Expr:
        """The expression of a value."""
        graph = _graph_of(value)
        return Expr(self.root if graph is None else self._builders[graph], value)

    def innermost(self, values: Iterable[ir.Value]) -> Builder:
        """The outermost builder that sees some values."""
        return max([self.root, *(self.wrap(value).builder for value in values)], key=lambda b: b.depth)

    def depth_of(self, value: ir.Value) -> float:
        """How many bodies lie around a value; infinity in those that a rule has made."""
        graph = _graph_of(value)
        return math.inf if graph is not None and graph not in self._builders else self.wrap(value).builder.depth

    def run(self, region: Region, scope: Scope) -> None:
        """Translates a region's ops, in order."""
        for op in region.ops:
            self.op(op, scope)

    def op(self, op: Op, scope: Scope) -> None:
        """Translates one op and keeps what its outputs stand for.

        Raises:
            UnsupportedOpError: no conversion is known for it, or none of this use of it.
            InvalidModelError: it does not fit its definition.
        """
        scope.builder.scope = op.name
        handler = HANDLERS.get(op.op)
        around, self._around = self._around, self._changed_before(op)
        found = handler(self, op, scope) if handler is not None else self.computed(op, scope)
        if op.op in WRITES:
            cells = [x.cell for name in op.inputs if isinstance(x := self.value(name, scope), Handle)]
            self._around |= frozenset(cells)
        if self._around:
            self._changed[op.name] = self._around
        self._around = around
        outputs = found if isinstance(found, list) else [] if found is None else [found]
        for number, value in enumerate(outputs):
            scope.values[f"{op.name}:{number}"] = value

    def _changed_before(self, op: Op) -> frozenset[Resource]:
        """The variables that are changed before an op runs, since it waits for that."""
        if not self._changed:
            return self._around
        sources = [self.aliases.resolve(name).rpartition(":")[0] for name in op.reads()]
        return self._around.union(*(self._changed.get(name, ()) for name in (*sources, *op.waits())))

    def value(self, name: str, scope: Scope) -> Value:
        """What a tensor stands for.

        Raises:
            InvalidModelError: nothing makes it.
        """
        wanted = name
        while True:
            found = scope.find(name)
            if found is not None:
                return found
            if name not in self.aliases.names:
                raise InvalidModelError(f"'{wanted}' requires an op that makes it before it is read, got none")
            name = self.aliases.names[name]

    def tensor(self, name: str, scope: Scope, reader: object = "the graph") -> Expr:
        """The expression of a tensor of numbers; of a reference variable its value now.

        Raises:
            UnsupportedOpError: the tensor holds something else.
        """
        found = self.value(name, scope)
        if isinstance(found, Handle) and found.cell.reference:
            found = scope.read(found.cell)
        copied = self.copies.get(self.aliases.resolve(name)) if self._around else None
        if copied is not None and copied in self._around:
            found = scope.read(copied)
        if isinstance(found, Expr):
            return found
        what = found.what if isinstance(found, Text) else type(found).__name__
        raise UnsupportedOpError(f"{reader}: requires tensors of numbers, got '{name}', {what}")

    def inputs(self, op: Op, scope: Scope) -> list[Expr]:
        """The expressions of all inputs of an op."""
        return [self.tensor(name, scope, op) for name in op.inputs]

    def computed(self, op: Op, scope: Scope) -> list[Value]:
        """The outputs of an op that has a definition."""
        if any(isinstance(self.value(name, scope), Flow) for name in op.inputs):
            return [next(found for name in op.inputs if isinstance(found := self.value(name, scope), Flow))]
        found = definition(DOMAIN, op.op)
        if found is None or found not in RULES:
            raise UnsupportedOpError(f"{op}: no conversion is known for it")
        operands = self.inputs(op, scope)
        check_real(op, found, operands)
        return list(self.emit(found, operands, attributes_of(op, found), op.name, scope))

    def emit(
        self, found: type[OpDef], operands: list[Expr], attributes: Mapping[str, Any], name: str, scope: Scope
    ) -> list[Expr]:
        """Emits an op of ours: an ordinary one as what it is lowered to, others as a node.

        Raises:
            InvalidModelError: operands or attributes do not fit it.
            UnsupportedOpError: it cannot be lowered.
        """
        builder = scope.floor
        if found.draws(attributes):
            builder = scope.builder
        for operand in operands:
            builder = operand.builder if operand.builder.depth > builder.depth else builder
        builder.scope = name
        node = ir.Node(
            DOMAIN, found.op_type, [operand.value for operand in operands],
            [_attribute(key, value) for key, value in attributes.items()],
            num_outputs=1, name=name,
        )  # fmt: skip
        call = bind_node(node, found, self.space.facts)
        if not issubclass(found, RawOp):
            return self._kept(node, len(call.outputs), builder)
        self.translated += 1
        results = RULES[found].formula(_Viewed(node, call, builder, name, self.read), builder)
        set_operands(node, dict.fromkeys(range(len(node.inputs))))
        outputs = []
        for info, value in zip(call.outputs, values_of(results), strict=False):
            assert value is not None
            expr = builder.wrap(value) if info.dtype is None else builder.wrap(value).cast(info.dtype)
            outputs.append(expr if info.shape is None else builder.set_shape(expr, info.shape))
        return outputs

    def _kept(self, node: ir.Node, count: int, builder: Builder) -> list[Expr]:
        """A node that `lower` will take."""
        name = self.space.names.fresh(node.name or node.op_type)
        attributes = list(node.attributes.values())
        inputs = list(node.inputs)
        set_operands(node, dict.fromkeys(range(len(node.inputs))))
        outputs = [ir.Value(name=f"{name}:{number}") for number in range(count)]
        kept = ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=name)
        builder.place(kept)
        for value in outputs:
            value.type = self.space.facts.type(value)
        return [Expr(builder, value) for value in outputs]

    def outside(self, shape: Sequence[Any] | None, depth: int) -> tuple[Any, ...] | None:
        """What is known of a shape outside of the body, or the branch, that so many lie around."""
        return (
            None
            if shape is None
            else tuple(
                None if isinstance(dim, Open | UnknownEntry) and self.depth_of(dim.value) >= depth else dim
                for dim in shape
            )
        )

    def size(self, dim: Any) -> Expr | None:
        """A size as an int64 vector of one, computed outside of loops; `None` where nobody there knows it."""
        if isinstance(dim, int):
            return self.root.ints(dim)
        if dim not in self._sizes:
            place = self.dims.get(dim) if isinstance(dim, str) else None
            if isinstance(dim, Open):
                place = self.wrap(dim.value), dim.axis
            if place is None:
                return None
            if place[0].builder.depth:
                return self._broadcast_size(*place)
            b = place[0].builder
            self._sizes[dim] = place[0].sizes().take(b.ints(place[1]))
        return self._sizes[dim]

    def _broadcast_size(self, expr: Expr, axis: int) -> Expr | None:
        """The size that operands are broadcast to in a loop or branch, where theirs are known outside."""
        facts = self.space.facts
        view = facts.maker(expr.value)
        if not isinstance(view, std.Elementwise) or expr.shape is None:
            return None
        found: Expr | None = None
        for shape in map(facts.shape, view.node.inputs):
            place = None if shape is None else axis - len(expr.shape) + len(shape)
            if shape is None or place is None:
                return None
            if place < 0 or shape[place] == 1:
                continue
            size = self.size(shape[place])
            if size is None:
                return None
            if found is not None and found.value is not size.value:
                one = size.equals(1)
                size = size.builder.where(one, found, size)
            found = size
        return found

    def shape(self, expr: Expr) -> Expr:
        """A tensor's shape, an int64 vector; computed outside of loops where it is the same in each step."""
        sizes = None if expr.shape is None else [self.size(dim) for dim in expr.shape]
        if not expr.builder.depth or sizes is None or None in sizes:
            return expr.sizes()
        return self.root.concat([size for size in sizes if size is not None], 0) if sizes else self.root.ints()

    def constant(self, array: np.ndarray[Any, Any], dtype: ir.DataType, name: str) -> Expr:
        """A constant; a large one is an initializer."""
        if array.size <= _INLINE:
            return self.root.constant(array, dtype)
        value = ir.Value(
            name=self.space.names.fresh(name),
            type=ir.TensorType(dtype),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array, dtype=dtype, name=name),
        )
        self.model.graph.register_initializer(value)
        return Expr(self.root, value)


def _graph_of(value: ir.Value) -> ir.Graph | None:
    """The graph or body that a value belongs to."""
    node = value.producer()
    graph = value.graph if node is None else node.graph
    assert graph is None or isinstance(graph, ir.Graph)
    return graph


class _Viewed(Node):
    """A node that stands in no graph: which of its outputs are read is known by their names."""

    def __init__(self, node: ir.Node, call: Any, builder: Builder, name: str, read: set[str]) -> None:
        super().__init__(node, call, builder)
        self._name, self._read = name, read

    def used(self, output: str) -> bool:
        """Whether anything reads the output."""
        slots = self.call.op.output_slots(len(self.call.outputs), self.call.attributes)
        return any(slot.operand.name == output and f"{self._name}:{i}" in self._read for i, slot in enumerate(slots))


def _attribute(name: str, value: Any) -> ir.Attr:
    # Of an empty list onnx_ir asks what it is a list of, in the log.
    return ir.AttrInt64s(name, ()) if value in ((), []) else ir.convenience.convert_attribute(name, value)
