"""Typed expressions that emit ONNX nodes: what lowering rules are written in.

An `Expr` stands for a value of the graph under construction. Arithmetic on expressions appends nodes to a `Builder`,
with dtypes and shapes inferred on the way. An operation goes to the innermost loop body that one of its operands
belongs to, so a formula inside a body may freely use values from outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph.names import Names
from lstm_lower.passes.infer import infer, shape_of

Scalar = int | float | bool

# The end of an axis in a slice, whatever its size.
END = int(np.iinfo(np.int64).max)


class Builder:
    """Collects the nodes of one graph or loop body under construction.

    Attributes:
        opset: version of `ai.onnx` that nodes are written for.
        nodes: emitted nodes in order.
        constants: emitted Constant nodes, of the outermost builder, apart so that equal ones can be shared.
    """

    def __init__(self, opset: int, names: Names, scope: str, outer: Builder | None = None) -> None:
        self.opset = opset
        self.names = names
        self.scope = scope
        self.nodes: list[ir.Node] = []
        self.root: Builder = self if outer is None else outer.root
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.constants: dict[tuple[Any, ...], ir.Value] = {}

    def wrap(self, value: ir.Value) -> Expr:
        """An expression for an existing value that is visible here."""
        return Expr(self, value)

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any] | None = None,
        outputs: int = 1,
    ) -> ir.Node:
        """Emits a node and infers its outputs' types."""
        name = self.names.fresh(f"{self.scope}/{op_type}")
        values = [ir.Value(name=name if outputs == 1 else f"{name}:{index}") for index in range(outputs)]
        attrs = [_attribute(key, value) for key, value in (attributes or {}).items()]
        node = ir.Node("", op_type, inputs, attrs, outputs=values, name=name)
        infer(node)
        self.nodes.append(node)
        return node

    def set_shape(self, expr: Expr, shape: Sequence[Dim]) -> Expr:
        """States an expression's shape where the caller knows more than inference does."""
        expr.value.shape = ir.Shape(shape)
        return expr

    def op(self, op_type: str, *inputs: Expr | None, **attributes: Any) -> Expr:
        """Emits a node with one output into the innermost builder among the operands' and this one."""
        target = self._innermost(inputs)
        node = target.node(op_type, [None if x is None else x.value for x in inputs], attributes)
        return Expr(target, node.outputs[0])

    def ops(self, op_type: str, *inputs: Expr | None, outputs: int, **attributes: Any) -> list[Expr]:
        """The same for a node with several outputs."""
        target = self._innermost(inputs)
        node = target.node(op_type, [None if x is None else x.value for x in inputs], attributes, outputs)
        return [Expr(target, value) for value in node.outputs]

    def _innermost(self, inputs: Sequence[Expr | None]) -> Builder:
        target = self
        for operand in inputs:
            if operand is not None and operand.builder.depth > target.depth:
                target = operand.builder
        return target

    def constant(self, value: Any, dtype: ir.DataType) -> Expr:
        """A constant; equal ones are shared. It stands in the outermost graph and is captured by loop bodies."""
        array = np.asarray(value, dtype.numpy())
        key = (dtype, array.shape, array.tobytes())
        root = self.root
        if key not in root.constants:
            name = root.names.fresh(f"{root.scope}/Constant")
            tensor = ir.Tensor(array, dtype=dtype, name=name)
            node = ir.Node(
                "",
                "Constant",
                [],
                [ir.AttrTensor("value", tensor)],
                outputs=[ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))],
                name=name,
            )
            root.constants[key] = node.outputs[0]
        return Expr(root, root.constants[key])

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
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def fill(self, value: Scalar, sizes: Sequence[int | Expr], dtype: ir.DataType) -> Expr:
        """A tensor of one value."""
        tensor = ir.Tensor(np.asarray([value], dtype.numpy()), dtype=dtype)
        result = self.op("ConstantOfShape", self.sizes(sizes), value=tensor)
        if any(not isinstance(size, int) for size in sizes):
            dims: list[Dim] = [size if isinstance(size, int) else None for size in sizes]
            return self.set_shape(result, dims)
        return result

    def zeros_like(self, other: Expr) -> Expr:
        """Zeros of another expression's shape and dtype."""
        shape = other.shape
        sizes = [dim for dim in shape if isinstance(dim, int)] if shape is not None else []
        if shape is not None and len(sizes) == len(shape):
            return self.fill(0, sizes, other.dtype)
        tensor = ir.Tensor(np.zeros(1, other.dtype.numpy()), dtype=other.dtype)
        return self.op("ConstantOfShape", self.op("Shape", other), value=tensor)

    def where(self, condition: Expr, yes: Expr | Scalar, no: Expr | Scalar) -> Expr:
        """Elementwise choice."""
        typed = yes if isinstance(yes, Expr) else no
        assert isinstance(typed, Expr)
        return self.op("Where", condition, typed.like(yes), typed.like(no))

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
        inner = Builder(self.opset, self.names, f"{self.scope}/body", outer=self)
        step_states = [inner.parameter(state, "state", state.shape) for state in states]
        step_inputs = [inner.parameter(x, "input", None if x.shape is None else x.shape[1:]) for x in inputs]
        new_states, outputs = body(step_states, step_inputs)
        results = inner.results([*new_states, *outputs])
        graph = ir.Graph(
            [x.value for x in [*step_states, *step_inputs]],
            results,
            nodes=inner.nodes,
            name=self.names.fresh(f"{self.scope}/body"),
        )
        attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(inputs)}
        if reverse:
            attributes["scan_input_directions"] = [1] * len(inputs)
            if outputs:
                attributes["scan_output_directions"] = [1] * len(outputs)
        all_outputs = self.ops("Scan", *states, *inputs, outputs=len(results), **attributes)
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
            inner = Builder(self.opset, self.names, f"{self.scope}/{name}", outer=self)
            values = inner.results(emit(inner))
            graphs.append(ir.Graph([], values, nodes=inner.nodes, name=self.names.fresh(f"{self.scope}/{name}")))
        count = len(graphs[0].outputs)
        return self.ops("If", condition, outputs=count, then_branch=graphs[0], else_branch=graphs[1])

    def results(self, exprs: Iterable[Expr]) -> list[ir.Value]:
        """Values fit to be this body's outputs: made by the body itself, and each one only once."""
        found: list[ir.Value] = []
        for expr in exprs:
            own = expr.builder is self and expr.value.producer() is not None and expr.value not in found
            found.append(expr.value if own else self.op("Identity", expr).value)
        return found

    def parameter(self, like: Expr, role: str, shape: Sequence[Dim] | None) -> Expr:
        """An input of the graph under construction."""
        value = ir.Value(
            name=self.names.fresh(f"{self.scope}/{role}"),
            type=ir.TensorType(like.dtype),
            shape=None if shape is None else ir.Shape(shape),
        )
        return Expr(self, value)


def _attribute(name: str, value: Any) -> ir.Attr:
    # onnx_ir's own conversion tests for every protocol in turn, which takes longer than making the node.
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if isinstance(value, list) and value and isinstance(value[0], int):
        return ir.AttrInt64s(name, value)
    return ir.convenience.convert_attribute(name, value)


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
        """Element type."""
        dtype = self.value.dtype
        if dtype is None:
            raise ValueError(f"the dtype of '{self.value.name}' is not known")
        return dtype

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Dimensions: sizes, names or `None`; `None` when the rank is unknown."""
        return shape_of(self.value)

    def like(self, other: Expr | Scalar) -> Expr:
        """The operand as an expression; a Python number becomes a constant of this dtype."""
        return other if isinstance(other, Expr) else self.builder.constant(other, self.dtype)

    def _binary(self, op_type: str, left: Expr | Scalar, right: Expr | Scalar) -> Expr:
        return self.builder.op(op_type, self.like(left), self.like(right))

    def __add__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Add", self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return self._binary("Add", other, self)

    def __sub__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Sub", self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return self._binary("Sub", other, self)

    def __mul__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Mul", self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return self._binary("Mul", other, self)

    def __truediv__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Div", self, other)

    def __rtruediv__(self, other: Scalar) -> Expr:
        return self._binary("Div", other, self)

    def __neg__(self) -> Expr:
        return self.builder.op("Neg", self)

    def __matmul__(self, other: Expr) -> Expr:
        return self.builder.op("MatMul", self, other)

    def __lt__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Less", self, other)

    def __gt__(self, other: Expr | Scalar) -> Expr:
        return self._binary("Greater", self, other)

    def minimum(self, other: Expr | Scalar) -> Expr:
        """Elementwise minimum."""
        return self._binary("Min", self, other)

    def maximum(self, other: Expr | Scalar) -> Expr:
        """Elementwise maximum."""
        return self._binary("Max", self, other)

    def cast(self, dtype: ir.DataType) -> Expr:
        """The same values in another dtype; nothing is emitted when it is the same."""
        return self if self.dtype == dtype else self.builder.op("Cast", self, to=int(dtype))

    def transpose(self, *order: int) -> Expr:
        """Permutes the axes; without arguments swaps the two of a matrix."""
        return self.builder.op("Transpose", self, perm=list(order or (1, 0)))

    @property
    def mT(self) -> Expr:  # noqa: N802 (numpy's name)
        """The transposed matrix."""
        return self.transpose()

    def sum(self, axis: int | Sequence[int], *, keepdims: bool = False) -> Expr:
        """Sum over axes."""
        axes = [axis] if isinstance(axis, int) else list(axis)
        return self.builder.op("ReduceSum", self, self.builder.ints(*axes), keepdims=int(keepdims))

    def reshape(self, *sizes: int) -> Expr:
        """Another shape for the same elements; -1 for the open size, 0 keeps the size at that place."""
        return self.builder.op("Reshape", self, self.builder.ints(*sizes))

    def unsqueeze(self, *axes: int) -> Expr:
        """Inserts axes of size 1."""
        return self.builder.op("Unsqueeze", self, self.builder.ints(*axes))

    def squeeze(self, *axes: int) -> Expr:
        """Removes axes of size 1."""
        return self.builder.op("Squeeze", self, self.builder.ints(*axes))

    def size(self, axis: int) -> int | Expr:
        """The size along an axis: an `int` when known, else an int64 tensor of shape [1]."""
        shape = self.shape
        dim = None if shape is None else shape[axis]
        if isinstance(dim, int):
            return dim
        return self.builder.op("Gather", self.builder.op("Shape", self), self.builder.ints(axis), axis=0)

    def slice(self, start: int | Expr, end: int | Expr, *, axis: int) -> Expr:
        """Elements `start` to `end` (exclusive) along an axis."""
        b = self.builder
        bounds = [b.ints(bound) if isinstance(bound, int) else bound for bound in (start, end)]
        return b.op("Slice", self, *bounds, b.ints(axis))

    def split(self, count: int, *, axis: int, size: int | Expr | None = None) -> list[Expr]:
        """Divides an axis into `count` equal parts, each of a given size or of what follows."""
        b, shape = self.builder, self.shape
        whole = None if shape is None else shape[axis]
        if size is None and isinstance(whole, int):
            size = whole // count
        if size is None:
            # Opset 18 asks for the count, which earlier ones take from the number of outputs.
            return b.ops("Split", self, outputs=count, axis=axis, **({"num_outputs": count} if b.opset >= 18 else {}))
        # Sizes hold for all opsets, and onnxruntime refuses a mere count for parts of size 0.
        parts = b.ops("Split", self, b.sizes([size] * count), outputs=count, axis=axis)
        if shape is not None and not isinstance(size, int):
            for part in parts:
                b.set_shape(part, [None if i == axis % len(shape) else dim for i, dim in enumerate(shape)])
        return parts


def sigmoid(x: Expr) -> Expr:
    """The logistic function."""
    return x.builder.op("Sigmoid", x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return x.builder.op("Tanh", x)


def concat(parts: Sequence[Expr], axis: int) -> Expr:
    """Joins expressions along an axis."""
    return parts[0].builder.concat(parts, axis)
