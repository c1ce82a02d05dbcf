"""Formulas: typed expressions whose arithmetic emits nodes, which lowering rules are written in.

An `Expr` stands for a value of the graph under construction. An operation goes to the innermost loop body that one of
its operands belongs to, so a formula inside a body may freely use values from outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph import standard as std
from lstm_lower.graph.emit import Constants, Emitter, Workspace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.values import Dim, Shape

Scalar = int | float | bool


class Builder:
    """Emits the nodes of one graph or loop body by formulas.

    Attributes:
        emitter: puts the nodes where they belong.
        root: the outermost builder, where constants are shared.
        depth: the number of bodies around.
    """

    def __init__(self, emitter: Emitter, outer: Builder | None = None) -> None:
        self.emitter = emitter
        self.root: Builder = self if outer is None else outer.root
        self.depth: int = 0 if outer is None else outer.depth + 1

    @classmethod
    def before(cls, node: ir.Node, space: Workspace, constants: Constants | None = None) -> Builder:
        """Emits before a node, under names that begin with its own."""
        assert node.graph is not None
        return cls(Emitter(space, node.graph, before=node, scope=node.name or node.op_type, constants=constants))

    @property
    def opset(self) -> int:
        """The version of `ai.onnx` that nodes are written for."""
        return self.emitter.opset

    @property
    def names(self) -> Names:
        """Gives out unique names."""
        return self.emitter.names

    @property
    def facts(self) -> Facts:
        """What is known of the values."""
        return self.emitter.facts

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes emitted so far, in order."""
        return self.emitter.emitted

    def wrap(self, value: ir.Value) -> Expr:
        """An expression for an existing value that is visible here."""
        return Expr(self, value)

    def set_shape(self, expr: Expr, shape: Sequence[Dim | None]) -> Expr:
        """States an expression's shape where the caller knows more than inference does."""
        self.emitter.state(expr.value, shape)
        return expr

    def op(self, op: type[std.Standard], *inputs: Expr | None, **attributes: Any) -> Expr:
        """Emits a node with one output into the innermost builder among the operands' and this one."""
        return self.ops(op, *inputs, outputs=1, **attributes)[0]

    def ops(self, op: type[std.Standard], *inputs: Expr | None, outputs: int, **attributes: Any) -> list[Expr]:
        """The same for a node with several outputs."""
        target = self._innermost(inputs)
        node = target.emitter.node(op, [None if x is None else x.value for x in inputs], outputs, **attributes)
        return [Expr(target, value) for value in node.outputs]

    def _innermost(self, inputs: Sequence[Expr | None]) -> Builder:
        return max([self, *(x.builder for x in inputs if x is not None)], key=lambda builder: builder.depth)

    def constant(self, value: Any, dtype: ir.DataType) -> Expr:
        """A constant; equal ones are shared. It is added to the outermost graph and captured by loop bodies."""
        return Expr(self.root, self.root.emitter.constant(value, dtype))

    def ints(self, *values: int) -> Expr:
        """An int64 vector constant."""
        return self.constant(list(values), ir.DataType.INT64)

    def sizes(self, sizes: Sequence[int | Expr]) -> Expr:
        """An int64 vector of sizes, each known now or at run time."""
        if all(isinstance(size, int) for size in sizes):
            return self.ints(*[size for size in sizes if isinstance(size, int)])
        return self.concat([self.ints(size) if isinstance(size, int) else size for size in sizes], axis=0)

    def concat(self, parts: Sequence[Expr], axis: int) -> Expr:
        """Joins expressions along an axis."""
        return parts[0] if len(parts) == 1 else self.op(std.Concat, *parts, axis=axis)

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
        graph = inner.emitter.graph
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
            inner.emitter.graph.outputs.extend(inner.results(emit(inner)))
            graphs.append(inner.emitter.graph)
        count = len(graphs[0].outputs)
        return self.ops(std.If, condition, outputs=count, then_branch=graphs[0], else_branch=graphs[1])

    def results(self, exprs: Iterable[Expr]) -> list[ir.Value]:
        """Values fit to be this body's outputs: made by the body itself, and each one only once."""
        found: list[ir.Value] = []
        for expr in exprs:
            maker = expr.value.producer()
            own = maker is not None and maker.graph is self.emitter.graph and expr.value not in found
            found.append(expr.value if own else self.op(std.Identity, expr).value)
        return found

    def parameter(self, like: Expr, role: str, shape: Sequence[Dim] | None) -> Expr:
        """An input of the graph under construction."""
        value = ir.Value(name=self.names.fresh(f"{self.emitter.scope}/{role}"), type=ir.TensorType(like.dtype))
        if shape is not None:
            self.emitter.state(value, shape)
        return Expr(self, value)

    def inner(self, role: str) -> Builder:
        """Emits into a new graph, a body or a branch."""
        scope = f"{self.emitter.scope}/{role}"
        graph = ir.Graph([], [], nodes=[], name=self.names.fresh(scope))
        stands_for = self.emitter.stands_for
        return Builder(Emitter(self.emitter.space, graph, scope=scope, stands_for=stands_for), outer=self)


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

    def __neg__(self) -> Expr:
        return self.builder.op(std.Neg, self)

    def __invert__(self) -> Expr:
        return self.builder.op(std.Not, self)

    def equals(self, other: Expr | Scalar) -> Expr:
        """Elementwise equality; `==` compares expressions, not their elements."""
        return self.builder.op(std.Equal, self, self.like(other))

    def minimum(self, other: Expr | Scalar) -> Expr:
        """Elementwise minimum."""
        return self.builder.op(std.Min, self, self.like(other))

    def maximum(self, other: Expr | Scalar) -> Expr:
        """Elementwise maximum."""
        return self.builder.op(std.Max, self, self.like(other))

    def sqrt(self) -> Expr:
        """Square root."""
        return self.builder.op(std.Sqrt, self)

    def exp(self) -> Expr:
        """Exponential function."""
        return self.builder.op(std.Exp, self)

    def log(self) -> Expr:
        """Natural logarithm."""
        return self.builder.op(std.Log, self)

    def floor(self) -> Expr:
        """The largest integers that are not above."""
        return self.builder.op(std.Floor, self)

    def abs(self) -> Expr:
        """Absolute value."""
        return self.builder.op(std.Abs, self)

    def cast(self, dtype: ir.DataType) -> Expr:
        """The same values in another dtype; nothing is emitted when it is the same."""
        return self if self.dtype == dtype else self.builder.op(std.Cast, self, to=int(dtype))

    def transpose(self, *order: int) -> Expr:
        """Permutes the axes; without arguments swaps the two of a matrix."""
        return self.builder.op(std.Transpose, self, perm=list(order or (1, 0)))

    @property
    def mT(self) -> Expr:  # noqa: N802 (numpy's name)
        """The transposed matrix."""
        return self.transpose()

    def reduce(self, op: type[std.Reduction], axis: int | Sequence[int], *, keepdims: bool = True) -> Expr:
        """A reduction over axes, which stay with size 1."""
        axes = [axis] if isinstance(axis, int) else list(axis)
        return Expr(self.builder, self.builder.emitter.reduce(op, self.value, axes, keepdims=keepdims))

    def sum(self, axis: int | Sequence[int], *, keepdims: bool = False) -> Expr:
        """Sum over axes."""
        return self.reduce(std.ReduceSum, axis, keepdims=keepdims)

    def reshape(self, *sizes: int) -> Expr:
        """Another shape for the same elements; -1 for the open size, 0 keeps the size at that place."""
        return self.builder.op(std.Reshape, self, self.builder.ints(*sizes))

    def unsqueeze(self, *axes: int) -> Expr:
        """Inserts axes of size 1."""
        return self.builder.op(std.Unsqueeze, self, self.builder.ints(*axes))

    def squeeze(self, *axes: int) -> Expr:
        """Removes axes of size 1."""
        return self.builder.op(std.Squeeze, self, self.builder.ints(*axes))

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
        b = self.builder
        return b.op(std.Slice, self, b.sizes([start]), b.sizes([end]), b.ints(axis))

    def split(self, count: int, *, axis: int, size: int | Expr | None = None) -> list[Expr]:
        """Divides an axis into `count` equal parts, each of a given size or of what follows."""
        b, shape = self.builder, self.shape
        whole = None if shape is None else shape[axis]
        if size is None and isinstance(whole, int):
            size = whole // count
        if size is None:
            # Opset 18 asks for the count, which earlier ones take from the number of outputs.
            return b.ops(std.Split, self, outputs=count, axis=axis, **({"num_outputs": count} if b.opset >= 18 else {}))
        # Sizes hold for all opsets, and onnxruntime refuses a mere count for parts of size 0.
        parts = b.ops(std.Split, self, b.sizes([size] * count), outputs=count, axis=axis)
        if shape is not None and not isinstance(size, int):
            for part in parts:
                b.set_shape(part, [None if i == axis % len(shape) else dim for i, dim in enumerate(shape)])
        return parts


def sigmoid(x: Expr) -> Expr:
    """The logistic function."""
    return x.builder.op(std.Sigmoid, x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return x.builder.op(std.Tanh, x)


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
