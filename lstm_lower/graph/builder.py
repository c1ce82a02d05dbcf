"""Adding nodes to a graph: the builder, and expressions whose arithmetic it emits.

A `Builder` puts nodes at a place: before or behind a node, at a graph's end, or in a body. Each node's outputs get the
types that follow from its operands. An `Expr` is a value with Python's operators, in which rules are written; an
operation goes to the innermost body that one of its operands belongs to, so that a formula inside a body may freely use
values from outside.

Operands may be expressions or plain values. What is made of expressions alone, constants among them, is an expression;
what is made of a plain value is one, and stands where the builder does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import detach, end_reading, redirect
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.operator_versions import opset_of
from lstm_lower.graph.values import Array, Dim, Shape, stated

# The end of an axis in a slice, whatever its size.
END = int(np.iinfo(np.int64).max)

Scalar = int | float | bool


T = TypeVar("T", "Expr", ir.Value)

# By operator what takes a node of the newest form out of a builder's place, where an older `ai.onnx` has another form:
# it changes the node, or returns what stands for its outputs. `passes/opset/rewrites.py` fills it.
OLDER_FORMS: dict[str, Callable[[ir.Node, Builder], Sequence[Expr | None] | None]] = {}


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The shared state of all that works on one model.

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
        """Without a graph each builder places its constants where it works."""
        self.graph = graph
        self.values: dict[tuple[Any, ...], ir.Value] = {}

    def place(self, user: Builder) -> Builder:
        """Emits at the start of the graph, behind the constants that stand there already."""
        assert self.graph is not None
        last = next((value.producer() for value in reversed(self.values.values())), None)
        before = next(iter(self.graph), None) if last is None else None
        return Builder(user.space, self.graph, before=before, after=last, scope=user.scope, stands_for=user.stands_for)


class Builder:
    """Emits nodes right before or right behind an anchor node, or at the end of a graph.

    Attributes:
        space: what is shared by all that works on the model.
        graph: the graph that nodes are emitted into.
        scope: what names of nodes begin with.
        root: the outermost builder, where constants are shared.
        depth: the number of bodies around.
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
        outer: Builder | None = None,
    ) -> None:
        self.space = space
        self.graph = graph
        self.scope = scope
        self.root: Builder = self if outer is None else outer.root
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.emitted: list[ir.Node] = []
        self._constants = constants
        self._before = before
        self._after = after
        self.stands_for = stands_for or provenance.sources(before or after)

    @classmethod
    def before(cls, node: ir.Node, space: Workspace, constants: Constants | None = None) -> Builder:
        """Emits before a node, under names that begin with its own."""
        assert node.graph is not None
        return cls(space, node.graph, before=node, scope=node.name or node.op_type, constants=constants)

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
        """Facts about the model's values."""
        return self.space.facts

    @property
    def names(self) -> Names:
        """Gives out unique names."""
        return self.space.names

    @property
    def opset(self) -> int:
        """The version of `ai.onnx` that nodes are written for."""
        return self.space.opset

    def wrap(self, value: ir.Value) -> Expr:
        """An expression for an existing value that is visible here."""
        return Expr(self, value)

    def operand(self, view: std.Standard, index: int = 0) -> Expr:
        """An operand of a node."""
        value = view.operand(index)
        assert value is not None
        return Expr(self, value)

    def optional(self, view: std.Standard, index: int) -> Expr | None:
        """An operand of a node that may be left out."""
        value = view.operand(index)
        return None if value is None else Expr(self, value)

    def output(self, view: std.Standard, index: int = 0) -> Expr:
        """An output of a node."""
        return Expr(self, view.node.outputs[index])

    def node(
        self,
        op: type[std.Standard],
        inputs: Sequence[Expr | ir.Value | None],
        outputs: int = 1,
        *,
        like: ir.Value | None = None,
        **attributes: Any,
    ) -> ir.Node:
        """Emits a node of one of ONNX's own operators here, in a form of the opset's; its outputs get types and shapes.

        `like` is a value of the only output's type and shape: of many nodes that are alike, these are inferred once.
        """
        node = self._unplaced(op, inputs, outputs, attributes)
        self._place_declared(node, like)
        return node

    def _unplaced(
        self, op: type[std.Standard], inputs: Sequence[Expr | ir.Value | None], outputs: int, attributes: dict[str, Any]
    ) -> ir.Node:
        name = self.names.fresh(f"{self.scope}/{op.op_type}")
        values = [ir.Value(name=self.names.part(name, index, outputs)) for index in range(outputs)]
        attrs = [_attribute(key, value) for key, value in attributes.items()]
        return ir.Node(op.domain, op.op_type, _plain(inputs), attrs, outputs=values, name=name)

    def _place_declared(self, node: ir.Node, like: ir.Value | None) -> None:
        self.place(node)
        if like is not None:
            self.facts.alike(node.outputs[0], like)
        for value in node.outputs:
            self.declare(value)

    def _newest(
        self,
        op: type[std.Standard],
        inputs: Sequence[Expr | ir.Value | None],
        outputs: int,
        *,
        like: ir.Value | None = None,
        **attributes: Any,
    ) -> Sequence[ir.Value | None]:
        """The outputs of a node in its newest form, or of what says the same in the opset."""
        node = self._unplaced(op, inputs, outputs, attributes)
        older = OLDER_FORMS.get(op.op_type)
        results = None if older is None else older(node, self)
        if results is None:
            self._place_declared(node, like)
            return node.outputs
        end_reading(node)
        return _plain(results)

    def declare(self, value: ir.Value) -> None:
        """Declares what is known of a value's type and shape."""
        value.type = self.facts.type(value)
        shape = self.facts.shape(value)
        value.shape = None if shape is None else stated(shape)

    def again(self, node: ir.Node, inputs: Sequence[Expr | ir.Value | None], **changed: Any) -> ir.Node:
        """Emits a node of the same operator with other operands; `changed` attributes replace its own, `None` drops."""
        attributes = {**node.attributes, **changed}
        kept = {key: value for key, value in attributes.items() if value is not None}
        made = self.node(std.VIEWS[node.op_type], inputs, len(node.outputs), **kept)
        _inherit(made, node)
        return made

    def repeat(self, node: ir.Node, inputs: Sequence[Expr | ir.Value | None]) -> list[ir.Value]:
        """Emits a node of any operator again with other operands; returns its outputs."""
        name = self.names.fresh(f"{self.scope}/{node.op_type}")
        outputs = [ir.Value(name=self.names.part(name, index, index + 1)) for index in range(len(node.outputs))]
        attributes = [self._copied(attribute) for attribute in node.attributes.values()]
        made = ir.Node(
            node.domain, node.op_type, _plain(inputs), attributes, overload=node.overload, outputs=outputs, name=name
        )
        self.place(made)
        for value in outputs:
            self.declare(value)
        _inherit(made, node)
        return outputs

    def _copied(self, attribute: ir.Attr) -> ir.Attr:
        """An attribute for another node: a graph belongs to one."""
        if attribute.type != ir.AttributeType.GRAPH or attribute.is_ref():
            return attribute
        copier = Copier(captures=True, name=self.names.another)
        return ir.AttrGraph(attribute.name, copier.graph(attribute.as_graph()))

    @overload
    def op(self, op: type[std.Standard], *inputs: Expr | None, **attributes: Any) -> Expr: ...
    @overload
    def op(self, op: type[std.Standard], *inputs: Expr | ir.Value | None, **attributes: Any) -> ir.Value: ...
    def op(self, op: type[std.Standard], *inputs: Expr | ir.Value | None, **attributes: Any) -> Expr | ir.Value:
        """Emits a node with one output in its newest form; a plain value if an operand is one, else an expression.

        Where the opset is older than that form, what says the same in the opset is emitted instead.
        """
        target = self._innermost(inputs)
        (value,) = (target or self)._newest(op, inputs, 1, **attributes)
        assert value is not None
        return value if target is None else Expr(target, value)

    def ops(self, op: type[std.Standard], *inputs: Expr | None, outputs: int, **attributes: Any) -> list[Expr]:
        """Emits a node with several outputs, as `op` does, into the innermost builder of the operands' and this one."""
        target = self._innermost(inputs) or self
        return [Expr(target, value) for value in target._newest(op, inputs, outputs, **attributes) if value is not None]

    def _innermost(self, inputs: Sequence[Expr | ir.Value | None]) -> Builder | None:
        """The builder of what is made of expressions; `None` where a plain value is among the operands."""
        target = self
        for x in inputs:
            if isinstance(x, Expr):
                target = x.builder if x.builder.depth > target.depth else target
            elif x is not None:
                return None
        return target

    def place(self, *nodes: ir.Node) -> None:
        """Puts existing nodes that stand in no graph at the place where nodes are emitted."""
        for node in nodes:
            if node.attributes.data:
                self.facts.enter(node)
            if self.stands_for:
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

    def set_shape(self, x: T, shape: Sequence[Dim | None]) -> T:
        """States a shape where the caller knows more than follows from the operands."""
        (value,) = _plain([x])
        assert value is not None
        self.facts.tell(value, shape)
        known = self.facts.shape(value)
        assert known is not None
        value.shape = stated(known)
        return x

    def replace(self, old: ir.Value, new: Expr | ir.Value) -> None:
        """Lets every reader of `old` read `new`; an output of a graph keeps its name.

        Where `new` cannot stand as a graph's output itself (it is an input, belongs to another graph, or is an output
        already), an Identity does.
        """
        replace(old, new.value if isinstance(new, Expr) else new, self.space)

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> Expr:
        """A constant; equal ones are shared. It is added to the outermost graph and captured by loop bodies."""
        array: Array = np.asarray(value, dtype.numpy())
        root, shared = self.root, self.root.constants
        key = (dtype, array.shape, array.tobytes())
        if key not in shared.values:
            attribute = ir.AttrTensor("value", ir.Tensor(array, dtype=dtype))
            where = root if shared.graph is None else shared.place(root)
            shared.values[key] = where.node(std.Constant, [], value=attribute).outputs[0]
        return Expr(root, shared.values[key])

    def ints(self, *values: int) -> Expr:
        """An int64 vector constant."""
        return self.constant(list(values))

    def sizes(self, sizes: Sequence[int | Expr]) -> Expr:
        """An int64 vector of sizes, each known now or at run time."""
        if all(isinstance(size, int) for size in sizes):
            return self.ints(*[size for size in sizes if isinstance(size, int)])
        return self.concat([self.ints(size) if isinstance(size, int) else size for size in sizes], axis=0)

    def size(self, value: ir.Value, axis: int) -> Expr:
        """The size along an axis as an int64 tensor of shape [1]; a constant when it is known."""
        return self.sizes([self.wrap(value).size(axis)])

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Joins values along an axis; nothing is emitted for one."""
        return parts[0] if len(parts) == 1 else self.op(std.Concat, *parts, axis=axis)

    def unsqueeze(self, x: T, *axes: int) -> T:
        """Inserts axes of size 1; nothing is emitted without axes."""
        return self.op(std.Unsqueeze, x, self.ints(*axes)) if axes else x

    def squeeze(self, x: T, *axes: int) -> T:
        """Removes axes of size 1; nothing is emitted without axes."""
        return self.op(std.Squeeze, x, self.ints(*axes)) if axes else x

    def transpose(self, x: T, order: Sequence[int]) -> T:
        """Permutes the axes; nothing is emitted where they stand so already."""
        return x if list(order) == sorted(order) else self.op(std.Transpose, x, perm=list(order))

    def slice(self, x: T, start: int | Expr | T, end: int | Expr | T, axis: int, step: int = 1) -> T:
        """Elements `start` to `end` (exclusive) along an axis."""
        bounds = [self.ints(bound) if isinstance(bound, int) else bound for bound in (start, end)]
        steps = [] if step == 1 else [self.ints(step)]
        return self.op(std.Slice, x, *bounds, self.ints(axis), *steps)

    def reverse(self, x: T, axis: int) -> T:
        """The elements along an axis in reverse order."""
        return self.slice(x, -1, -END, axis, step=-1)

    def reduce(self, op: type[std.Reduction], x: T, axes: Sequence[int], *, keepdims: bool) -> T:
        """Reduces axes; nothing is emitted without axes."""
        if not axes:
            return x
        return self.op(op, x, self.ints(*axes), keepdims=int(keepdims))

    def move_axis(self, x: T, source: int, target: int, rank: int) -> T:
        """Moves one axis, the others keep their order; nothing is emitted when it stands there already."""
        order = [axis for axis in range(rank) if axis != source % rank]
        order.insert(target % rank, source % rank)
        return self.transpose(x, order)

    def fill(self, value: Scalar, sizes: Sequence[int | Expr] | Expr, dtype: ir.DataType) -> Expr:
        """A tensor of one value; its sizes one by one, or as a vector."""
        tensor = ir.Tensor(np.asarray([value], dtype.numpy()), dtype=dtype)
        if isinstance(sizes, Expr):
            return self.op(std.ConstantOfShape, sizes, value=tensor)
        result = self.op(std.ConstantOfShape, self.sizes(sizes), value=tensor)
        if all(isinstance(size, int) for size in sizes):
            return result
        return self.set_shape(result, [size if isinstance(size, int) else None for size in sizes])

    def zeros_like(self, other: Expr) -> Expr:
        """Zeros of another expression's shape and dtype."""
        shape = other.shape
        sizes = [dim for dim in shape or () if isinstance(dim, int)]
        known = shape is not None and len(sizes) == len(shape)
        return self.fill(0, sizes if known else other.sizes(), other.dtype)

    def where(self, condition: Expr, yes: Expr | Scalar, no: Expr | Scalar) -> Expr:
        """Elementwise choice."""
        typed = yes if isinstance(yes, Expr) else no
        assert isinstance(typed, Expr)
        return self.op(std.Where, condition, typed.like(yes), typed.like(no))

    def scan(
        self,
        body: Callable[..., tuple[Sequence[Expr], Sequence[Expr]]],
        *,
        states: Sequence[Expr],
        inputs: Sequence[Expr],
        reverse: bool = False,
    ) -> tuple[list[Expr], list[Expr]]:
        """Emits a Scan over axis 0.

        Args:
            body: called once with the states and the inputs of one step as expressions; returns the new states and
                the step's outputs.
            states: initial states.
            inputs: sequences, first axis is time.
            reverse: walk from the last step to the first; outputs stand at the step they belong to.

        Returns:
            Final states and stacked outputs.
        """
        inner = self.inner("body")
        step_states = [inner.parameter(state, "state", state.shape) for state in states]
        step_inputs = [inner.parameter(x, "input", None if x.shape is None else x.shape[1:]) for x in inputs]
        new_states, outputs = body(step_states, step_inputs)
        results = inner.results([*new_states, *outputs])
        graph = inner.graph
        graph.inputs.extend([x.value for x in [*step_states, *step_inputs]])
        graph.outputs.extend(results)
        attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(inputs)}
        if reverse:
            attributes["scan_input_directions"] = [1] * len(inputs)
            if outputs:
                attributes["scan_output_directions"] = [1] * len(outputs)
        all_outputs = self.ops(std.Scan, *states, *inputs, outputs=len(results), **attributes)
        return all_outputs[: len(states)], all_outputs[len(states) :]

    def branch(
        self, condition: Expr, then: Callable[[Builder], Sequence[Expr]], otherwise: Callable[[Builder], Sequence[Expr]]
    ) -> list[Expr]:
        """Emits an If whose branches give the same number of values.

        Args:
            condition: a bool scalar.
            then: called with the branch's builder; returns the values where the condition holds.
            otherwise: the same for where it does not.
        """
        graphs = []
        for name, emit in (("then", then), ("else", otherwise)):
            inner = self.inner(name)
            inner.graph.outputs.extend(inner.results(emit(inner)))
            graphs.append(inner.graph)
        count = len(graphs[0].outputs)
        return self.ops(std.If, condition, outputs=count, then_branch=graphs[0], else_branch=graphs[1])

    def results(self, exprs: Iterable[Expr]) -> list[ir.Value]:
        """Values fit to be this body's outputs: made by the body itself, and each one only once."""
        found: list[ir.Value] = []
        for expr in exprs:
            maker = expr.value.producer()
            own = maker is not None and maker.graph is self.graph and expr.value not in found
            found.append(expr.value if own else self.op(std.Identity, expr).value)
        return found

    def parameter(self, like: Expr, role: str, shape: Sequence[Dim] | None) -> Expr:
        """An input of the graph under construction."""
        value = ir.Value(name=self.names.fresh(f"{self.scope}/{role}"), type=ir.TensorType(like.dtype))
        if shape is not None:
            self.set_shape(value, shape)
        return Expr(self, value)

    def inner(self, role: str) -> Builder:
        """Emits into a new graph, a body or a branch."""
        scope = f"{self.scope}/{role}"
        graph = ir.Graph([], [], nodes=[], name=self.names.fresh(scope))
        return Builder(self.space, graph, scope=scope, stands_for=self.stands_for, outer=self)


def _function(op: type[std.Standard]) -> Callable[[Expr], Expr]:
    """The method behind a function of one operand."""
    return lambda x: x.builder.op(op, x)


def _operator(op: type[std.Standard]) -> Callable[[Expr, Expr | Scalar], Expr]:
    """The method behind one of Python's operators."""
    return lambda self, other: self.builder.op(op, self, self.like(other))


def _swapped(op: type[std.Standard]) -> Callable[[Expr, Scalar], Expr]:
    """The same with a number on the left."""
    return lambda self, other: self.builder.op(op, self.like(other), self)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A value of a graph under construction; operators emit nodes.

    Attributes:
        builder: the graph or loop body that the value belongs to.
        value: the value.
    """

    builder: Builder
    value: ir.Value

    @property
    def dtype(self) -> ir.DataType:
        """Element type.

        Raises:
            InvalidModelError: nothing in the model tells.
        """
        dtype = self.builder.facts.dtype(self.value)
        if dtype is None:
            raise InvalidModelError(f"'{self.value.name}' requires a known dtype, got an unknown one")
        return dtype

    @property
    def shape(self) -> Shape | None:
        """Dimensions: sizes, names or identities of open ones; `None` when the rank is unknown."""
        return self.builder.facts.shape(self.value)

    @property
    def entries(self) -> Shape | None:
        """The entries of an integer vector or scalar as far as they are known, see `Facts.entries`."""
        return self.builder.facts.entries(self.value)

    def like(self, other: Expr | Scalar) -> Expr:
        """The operand as an expression; a Python number becomes a constant of this dtype."""
        return other if isinstance(other, Expr) else self.builder.constant(other, self.dtype)

    __add__, __radd__ = _operator(std.Add), _swapped(std.Add)
    __sub__, __rsub__ = _operator(std.Sub), _swapped(std.Sub)
    __mul__, __rmul__ = _operator(std.Mul), _swapped(std.Mul)
    __truediv__, __rtruediv__ = _operator(std.Div), _swapped(std.Div)
    __pow__, __rpow__ = _operator(std.Pow), _swapped(std.Pow)
    # Of integers, with the divisor's sign.
    __mod__ = _operator(std.Mod)
    __matmul__ = _operator(std.MatMul)
    __lt__, __le__ = _operator(std.Less), _operator(std.LessOrEqual)
    __gt__, __ge__ = _operator(std.Greater), _operator(std.GreaterOrEqual)
    __and__, __or__ = _operator(std.And), _operator(std.Or)

    __neg__, __invert__ = _function(std.Neg), _function(std.Not)
    # Elementwise equality: `==` compares expressions, not their elements.
    equals = _operator(std.Equal)
    minimum, maximum = _operator(std.Min), _operator(std.Max)
    sqrt, exp, log = _function(std.Sqrt), _function(std.Exp), _function(std.Log)
    floor, abs = _function(std.Floor), _function(std.Abs)

    def cast(self, dtype: ir.DataType) -> Expr:
        """The same values in another dtype; nothing is emitted when it is the same."""
        return self if self.dtype == dtype else self.builder.op(std.Cast, self, to=int(dtype))

    def transpose(self, *order: int) -> Expr:
        """Permutes the axes; without arguments swaps the two of a matrix."""
        return self.builder.transpose(self, order or (1, 0))

    @property
    def mT(self) -> Expr:  # noqa: N802 (numpy's name)
        """The transposed matrix."""
        return self.transpose()

    def reduce(self, op: type[std.Reduction], axis: int | Sequence[int], *, keepdims: bool = True) -> Expr:
        """A reduction over axes, which stay with size 1."""
        axes = [axis] if isinstance(axis, int) else list(axis)
        return self.builder.reduce(op, self, axes, keepdims=keepdims)

    def sum(self, axis: int | Sequence[int], *, keepdims: bool = False) -> Expr:
        """Sum over axes."""
        return self.reduce(std.ReduceSum, axis, keepdims=keepdims)

    def reshape(self, *sizes: int) -> Expr:
        """Another shape for the same elements; -1 for the open size, 0 keeps the size at that place."""
        return self.builder.op(std.Reshape, self, self.builder.ints(*sizes))

    def unsqueeze(self, *axes: int) -> Expr:
        """Inserts axes of size 1."""
        return self.builder.unsqueeze(self, *axes)

    def squeeze(self, *axes: int) -> Expr:
        """Removes axes of size 1."""
        return self.builder.squeeze(self, *axes)

    def size(self, axis: int) -> int | Expr:
        """The size along an axis: an `int` when known, else an int64 tensor of shape [1]."""
        shape = self.shape
        dim = None if shape is None else shape[axis]
        if isinstance(dim, int):
            return dim
        return self.sizes().take(self.builder.ints(axis))

    def sizes(self) -> Expr:
        """All sizes, an int64 vector."""
        return self.builder.op(std.Shape, self)

    def take(self, places: int | Expr, *, axis: int = 0) -> Expr:
        """Elements along an axis, in whose place the axes of the places come: none for one place."""
        places = self.builder.constant(places, ir.DataType.INT64) if isinstance(places, int) else places
        return self.builder.op(std.Gather, self, places, axis=axis)

    def slice(self, start: int | Expr, end: int | Expr, *, axis: int) -> Expr:
        """Elements `start` to `end` (exclusive) along an axis."""
        return self.builder.slice(self, start, end, axis)

    def split(self, count: int, *, axis: int, size: int | Expr | None = None) -> list[Expr]:
        """Divides an axis into `count` equal parts, each of a given size or of what follows."""
        b, shape = self.builder, self.shape
        whole = None if shape is None else shape[axis]
        if size is None and isinstance(whole, int):
            size = whole // count
        if size is None:
            return b.ops(std.Split, self, outputs=count, axis=axis, num_outputs=count)
        # onnxruntime refuses a mere count for parts of size 0.
        parts = b.ops(std.Split, self, b.sizes([size] * count), outputs=count, axis=axis)
        if shape is not None and not isinstance(size, int):
            for part in parts:
                b.set_shape(part, [None if i == axis % len(shape) else dim for i, dim in enumerate(shape)])
        return parts


sigmoid, tanh = _function(std.Sigmoid), _function(std.Tanh)


def concat(parts: Sequence[Expr], axis: int) -> Expr:
    """Joins expressions along an axis."""
    return parts[0].builder.concat(parts, axis)


def detached(x: Expr) -> Expr:
    """The same values, through which no gradient flows."""
    result = x.builder.op(std.Identity, x)
    node = result.value.producer()
    assert node is not None
    node.metadata_props[std.STOPPED] = "true"
    return result


def replace(old: ir.Value, new: ir.Value, space: Workspace) -> None:
    """Lets every reader of `old` read `new`, see `Builder.replace`."""
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
            target = Builder(space, graph, scope=str(name)).op(std.Identity, new)
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


def _plain(inputs: Sequence[Expr | ir.Value | None]) -> list[ir.Value | None]:
    return [x.value if isinstance(x, Expr) else x for x in inputs]
