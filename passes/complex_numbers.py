"""Complex numbers as real ones with a last axis of two, their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.dtypes import PARTS, dtype_name, is_complex, parts_of
from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_graphs, all_nodes, subgraphs_of
from lstm_lower.graph.values import stated
from lstm_lower.passes.formulas.complex_numbers import Number, each, joined, product, quotient
from lstm_lower.passes.formulas.sizes import wide
from lstm_lower.passes.model_pass import Pass

# The facet `by_parts`: how an operator on complex numbers is computed from their real and imaginary parts.
# Complex numbers become real ones with a last axis of two, as ONNX's DFT has them. A rule takes an operator's view,
# with operands still complex, and `Parts`, and returns what stands for each output: parts where that is complex.


class Parts:
    """The parts of the complex numbers of a graph, and where a rule emits.

    Attributes:
        builder: emits in front of the node.
    """

    def __init__(self, builder: Builder, parts: dict[ir.Value, ir.Value]) -> None:
        self.builder = builder
        self._parts = parts

    def of(self, value: ir.Value) -> Expr:
        """Parts of complex numbers `[..., 2]`; of what is real a value as it is."""
        return self.builder.wrap(self._parts.get(value, value))

    def each(self, value: ir.Value) -> Number:
        """The real and the imaginary part."""
        return each(self.of(value))


Results = Sequence[Expr]

by_parts: std.Facet[Callable[[Any, Parts], Sequence[Expr]]] = std.Facet("computation by parts")


# Operators that lay out elements anew: each takes the two parts of an element along.
# Views count axes from the front, where the axis behind all others changes none.


def axes_of(view: std.Standard, what: str, axes: tuple[int, ...] | int | None) -> list[int]:
    """Axes as a list.

    Raises:
        UnsupportedOpError: they are known at run time only.
    """
    if axes is None:
        text = requires(view.op_type, node_label(view.node), what, "axes known before the run", "others")
        raise UnsupportedOpError(text + ": its numbers are complex")
    return [axes] if isinstance(axes, int) else list(axes)


def again(view: std.Standard, p: Parts, *operands: Expr | None, **changed: int | None) -> Results:
    """The same operator on parts; further operands as given."""
    values = [None if x is None else x.value for x in operands]
    node = p.builder.again(view.node, values, **changed)
    return [p.builder.wrap(value) for value in node.outputs]


def _behind(sizes: ir.Value, p: Parts, last: int) -> Expr:
    """A vector with one more entry."""
    return p.builder.concat([wide(p.builder.wrap(sizes)), p.builder.ints(last)], 0)


def _others(view: std.Standard, p: Parts, start: int = 1) -> list[Expr | None]:
    return [None if x is None else p.builder.wrap(x) for x in view.inputs[start:]]


@by_parts(std.Identity)
def _identity(view: std.Identity, p: Parts) -> Results:
    return again(view, p, p.of(view.data)) if view.stops else [p.of(view.data)]


@by_parts(std.Reshape)
def _reshape(view: std.Reshape, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.target, p, 2))


@by_parts(std.Expand)
def _expand(view: std.Expand, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.target, p, 2))


@by_parts(std.Tile)
def _tile(view: std.Tile, p: Parts) -> Results:
    return again(view, p, p.of(view.data), _behind(view.repeats, p, 1))


@by_parts(std.Transpose)
def _transpose(view: std.Transpose, p: Parts) -> Results:
    order = axes_of(view, "perm", view.perm)
    return [p.of(view.data).transpose(*order, len(order))]


@by_parts(std.Squeeze)
def _squeeze(view: std.Squeeze, p: Parts) -> Results:
    axes = axes_of(view, "axes", view.axes)
    return [p.of(view.data).squeeze(*axes)]


@by_parts(std.Unsqueeze)
def _unsqueeze(view: std.Unsqueeze, p: Parts) -> Results:
    return [p.of(view.data).unsqueeze(*axes_of(view, "axes", view.axes))]


@by_parts(std.Slice)
def _slice(view: std.Slice, p: Parts) -> Results:
    starts, ends, _, *steps = [*_others(view, p), None, None][:4]
    return again(view, p, p.of(view.data), starts, ends, p.builder.ints(*axes_of(view, "axes", view.axes)), *steps)


@by_parts(std.Gather)
def _gather(view: std.Gather, p: Parts) -> Results:
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, p.of(view.data), *_others(view, p), axis=axis)


@by_parts(std.GatherND, std.ReverseSequence)
def _leading(view: std.Moving, p: Parts) -> Results:
    """Operators that count axes from the front, as they are."""
    return again(view, p, p.of(view.data), *_others(view, p))


@by_parts(std.GatherElements)
def _gather_elements(view: std.GatherElements, p: Parts) -> Results:
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, p.of(view.data), _twice(p.builder, view.indices), axis=axis)


def _twice(b: Builder, indices: ir.Value) -> Expr:
    """Indices of elements, for either part of each."""
    wrapped = b.wrap(indices)
    return b.op(std.Expand, wrapped.unsqueeze(-1), b.concat([wrapped.sizes(), b.ints(2)], 0))


@by_parts(std.Split)
def _split(view: std.Split, p: Parts) -> Results:
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, p.of(view.data), *_others(view, p), axis=axis)


@by_parts(std.Concat)
def _concat(view: std.Concat, p: Parts) -> Results:
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, *[p.of(part) for part in view.parts], axis=axis)


@by_parts(std.Pad)
def _pad(view: std.Pad, p: Parts) -> Results:
    value = view.facts.constant(view.value)
    if view.mode == "constant" and view.value is not None and (value is None or value.any()):
        text = requires(view.op_type, node_label(view.node), "the value", "0, as its numbers are complex", "another")
        raise UnsupportedOpError(text)
    b, rank = p.builder, view.rank()
    axes = axes_of(view, "axes", view.axes if view.operand(3) is not None or rank is None else tuple(range(rank)))
    data, pads = p.of(view.data), wide(b.wrap(view.node.inputs[1]))  # type: ignore[arg-type]
    return [b.op(std.Pad, data, pads, None, b.ints(*axes), mode=view.mode)]


@by_parts(std.ScatterND)
def _scatter_nd(view: std.ScatterND, p: Parts) -> Results:
    _check_sum(view)
    return again(view, p, p.of(view.data), p.builder.wrap(view.indices), p.of(view.updates))


@by_parts(std.ScatterElements)
def _scatter_elements(view: std.ScatterElements, p: Parts) -> Results:
    _check_sum(view)
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, p.of(view.data), _twice(p.builder, view.indices), p.of(view.updates), axis=axis)


def _check_sum(view: std.Scatter) -> None:
    if view.reduction not in ("none", "add"):
        what = "none or add, of complex numbers"
        text = requires(view.op_type, node_label(view.node), "reduction", what, view.reduction)
        raise UnsupportedOpError(text)


@by_parts(std.Where)
def _where(view: std.Where, p: Parts) -> Results:
    return [p.builder.op(std.Where, p.builder.wrap(view.condition).unsqueeze(-1), p.of(view.yes), p.of(view.no))]


@by_parts(std.Shape)
def _shape(view: std.Shape, p: Parts) -> Results:
    sizes = p.of(view.data).sizes().slice(0, -1, axis=0)
    if view.bounds == slice(0, None):
        return [sizes]
    return [sizes.slice(view.bounds.start, 2**31 - 1 if view.bounds.stop is None else view.bounds.stop, axis=0)]


@by_parts(std.Size)
def _size(view: std.Size, p: Parts) -> Results:
    return [p.builder.op(std.Size, p.of(view.data)) / 2]


@by_parts(std.ConstantOfShape)
def _constant_of_shape(view: std.ConstantOfShape, p: Parts) -> Results:
    assert view.fill is not None
    parts = parts_of(view.fill.numpy())[0]
    value = p.builder.constant(parts, ir.DataType.from_numpy(parts.dtype))
    return [p.builder.op(std.Expand, value, _behind(view.target, p, 2))]


@by_parts(std.Constant)
def _constant(view: std.Constant, p: Parts) -> Results:
    array = view.facts.constant(view.output)
    assert array is not None
    parts = parts_of(array)
    return [p.builder.constant(parts, ir.DataType.from_numpy(parts.dtype))]


@by_parts(std.PartsOf, std.OfParts)
def _parts(view: std.PartsOf | std.OfParts, p: Parts) -> Results:
    return [p.of(view.data)]


# Arithmetic of complex numbers.


@by_parts(std.Neg, std.Add, std.Sub, std.Sum)
def _linear(view: std.Elementwise, p: Parts) -> Results:
    """Operators that do to one part what they do to the other; operands broadcast along all axes but the last."""
    return again(view, p, *(p.of(x) for x in view.inputs if x is not None))


@by_parts(std.Mul)
def _mul(view: std.Mul, p: Parts) -> Results:
    x, y = map(p.each, _two(view))
    return [joined(*product(x, y))]


@by_parts(std.Div)
def _div(view: std.Div, p: Parts) -> Results:
    x, y = map(p.each, _two(view))
    return [joined(*quotient(x, y))]


@by_parts(std.Reciprocal)
def _reciprocal(view: std.Reciprocal, p: Parts) -> Results:
    x = p.each(view.data)
    return [joined(*quotient((x[0].like(1), x[0].like(0)), x))]


def _two(view: std.Standard) -> list[ir.Value]:
    return [x for x in view.inputs if x is not None]


@by_parts(std.Exp)
def _exp(view: std.Exp, p: Parts) -> Results:
    real, imaginary = p.each(view.data)
    size, b = real.exp(), p.builder
    return [joined(size * b.op(std.Cos, imaginary), size * b.op(std.Sin, imaginary))]


@by_parts(std.Equal)
def _equal(view: std.Equal, p: Parts) -> Results:
    same = each(p.builder.op(std.Equal, *map(p.of, _two(view))))
    return [p.builder.op(std.And, *same)]


@by_parts(std.MatMul, std.Einsum)
def _bilinear(view: std.MatMul | std.Einsum, p: Parts) -> Results:
    """Operators that are linear in each of two operands."""
    operands = _two(view)
    if len(operands) == 1:
        return [joined(*(again(view, p, part)[0] for part in p.each(operands[0])))]
    (a, b), (c, d) = map(p.each, operands)
    times: Callable[[Expr, Expr], Expr] = lambda x, y: again(view, p, x, y)[0]  # noqa: E731
    return [joined(times(a, c) - times(b, d), times(a, d) + times(b, c))]


@by_parts(std.ReduceSum, std.ReduceMean)
def _reduction(view: std.ReduceSum | std.ReduceMean, p: Parts) -> Results:
    given = view.operand(1)
    if view.axes is None and given is not None and view.attribute("noop_with_empty_axes", 0):
        axes = p.builder.wrap(given)
        # What is counted from behind has one axis more behind it.
        return again(view, p, p.of(view.data), p.builder.where(axes < 0, axes - 1, axes))
    return [p.of(view.data).reduce(type(view), axes_of(view, "axes", view.axes), keepdims=view.keepdims)]


@by_parts(std.CumSum)
def _cumulative(view: std.CumSum, p: Parts) -> Results:
    (axis,) = axes_of(view, "axis", view.axis)
    return again(view, p, p.of(view.data), p.builder.constant(axis, ir.DataType.INT64))


@by_parts(std.Cast)
def _cast(view: std.Cast, p: Parts) -> Results:
    """Of what becomes complex the imaginary part is 0; of what is no longer, it is dropped, as in TensorFlow."""
    x = p.of(view.data)
    if not is_complex(view.to):
        return [each(x)[0].cast(view.to)]
    x = x.cast(PARTS[view.to])
    return [x if is_complex(view.dtype()) else joined(x, p.builder.zeros_like(x))]


# The pass that leaves real numbers alone.


class RealPartsPass(Pass):
    """Writes complex numbers as real ones with a last axis of two, the model's inputs and outputs too.

    Precondition: functions are inlined.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level.

        Raises:
            UnsupportedOpError: an operator has no such form.
        """
        if not any(map(_holds_complex, all_graphs(model))):
            return ir.passes.PassResult(model, modified=False)
        rewriting = _Rewriting(self.context.space)
        rewriting.inputs(model.graph)
        rewriting.graph(model.graph)
        return ir.passes.PassResult(model, modified=True)

    def ensures(self, model: ir.Model) -> None:
        """No complex number is left.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        for graph in all_graphs(model):
            if _holds_complex(graph):
                raise ir.passes.PostconditionError(f"'{graph.name}' requires real numbers, got complex ones")


def _holds_complex(graph: ir.Graph) -> bool:
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    return any(is_complex(value.dtype) for value in values)


class _Rewriting:
    """The rewriting of one model."""

    def __init__(self, space: Workspace) -> None:
        self.space = space
        self.parts: dict[ir.Value, ir.Value] = {}

    def graph(self, graph: ir.Graph) -> None:
        """Rewrites a graph: what is in it, its outputs, and then ends what nothing reads any more."""
        done = []
        for name, value in list(graph.initializers.items()):
            if is_complex(value.dtype) and value not in self.parts:
                del graph.initializers[name]
                graph.register_initializer(self._renamed(value))
        for node in list(graph):
            if self._concerns(node):
                self._node(node, Builder.before(node, self.space))
                done.append(node)
        self._outputs(graph)
        detach(*reversed(done))

    def _concerns(self, node: ir.Node) -> bool:
        """Whether there are complex numbers about a node, or within its graphs."""
        inner = [x for graph in subgraphs_of(node) for each in all_nodes(graph) for x in (*each.inputs, *each.outputs)]
        outputs = [x for graph in subgraphs_of(node) for x in graph.outputs]
        values = [*node.inputs, *node.outputs, *inner, *outputs]
        return any(is_complex(self.space.facts.dtype(value)) for value in values)

    def inputs(self, graph: ir.Graph) -> None:
        """Gives a graph other inputs for complex ones."""
        for index, value in enumerate(graph.inputs):
            if is_complex(self.space.facts.dtype(value)):
                graph.inputs[index] = new = self._renamed(value)
                if value.const_value is not None:
                    del graph.initializers[str(new.name)]
                    graph.register_initializer(new)

    def _renamed(self, value: ir.Value) -> ir.Value:
        """A value of real numbers that has the name of a complex one: an input, a parameter or an initializer."""
        facts, name = self.space.facts, value.name
        dtype, shape = facts.dtype(value), facts.shape(value)
        assert dtype is not None
        value.name = self.space.names.fresh(f"{name}_complex")
        new = ir.Value(name=name, type=ir.TensorType(PARTS[dtype]))
        if shape is not None:
            facts.tell(new, (*shape, 2))
            new.shape = stated((*shape, 2))
        if value.const_value is not None:
            new.const_value = ir.Tensor(parts_of(value.const_value.numpy()), name=name)
        self.parts[value] = new
        return new

    def _node(self, node: ir.Node, b: Builder) -> None:
        facts = self.space.facts
        declared = [(facts.dtype(value), facts.shape(value)) for value in node.outputs]
        view = facts.view(node)
        rule = None if view is None else by_parts.of(type(view))
        results: Sequence[Expr]
        if isinstance(view, std.ControlFlow):
            results = self._control_flow(view, b)
        elif rule is None:
            got = next(dtype for x in (*node.inputs, *node.outputs) if is_complex(dtype := facts.dtype(x)))
            text = requires(node.op_type, node_label(node), "the node", "real numbers", dtype_name(got))
            raise UnsupportedOpError(text + "; write it with the real and the imaginary part of its operand")
        else:
            results = rule(view, Parts(b, self.parts))
        for old, new, (dtype, shape) in zip(node.outputs, results, declared, strict=True):
            if not is_complex(dtype):
                b.replace(old, new.value)
                continue
            if shape is not None and facts.shape(new.value) != (*shape, 2):
                b.set_shape(new, (*shape, 2))
            self.parts[old] = new.value

    def _control_flow(self, view: std.ControlFlow, b: Builder) -> list[Expr]:
        """The same node with real numbers, its graphs rewritten."""
        node = view.node
        graphs = subgraphs_of(node)
        for graph in graphs:
            # What is known of these follows from the node's operands.
            self.inputs(graph)
        attributes = dict(node.attributes)
        if isinstance(view, std.Scan):
            attributes |= self._from_front(view)
        inputs = [None if x is None else self.parts.get(x, x) for x in node.inputs]
        node.attributes.clear()
        name = self.space.names.fresh(str(node.name))
        copy = ir.Node(
            node.domain, node.op_type, inputs, list(attributes.values()), num_outputs=len(node.outputs), name=name
        )
        copy.metadata_props.update(node.metadata_props)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name = self.space.names.fresh(str(old.name))
        b.place(copy)
        for graph in graphs:
            self.graph(graph)
        for value in copy.outputs:
            b.declare(value)
        return [b.wrap(value) for value in copy.outputs]

    def _from_front(self, scan: std.Scan) -> dict[str, ir.Attr]:
        """Axes of time counted from the front, where the parts' axis changes none."""
        sides = {
            "scan_input_axes": (scan.input_axes, scan.node.inputs[scan.states :]),
            "scan_output_axes": (scan.output_axes, scan.node.outputs[scan.states :]),
        }
        return {
            name: ir.AttrInt64s(name, [self._counted(scan, *pair) for pair in zip(axes, values, strict=True)])
            for name, (axes, values) in sides.items()
            if any(axis < 0 for axis in axes)
        }

    def _counted(self, scan: std.Scan, axis: int, value: ir.Value | None) -> int:
        if axis >= 0 or value is None or not is_complex(self.space.facts.dtype(value)):
            return axis
        rank = self.space.facts.rank(value)
        if rank is None:
            text = requires(scan.node.op_type, node_label(scan.node), str(value.name), "a known rank", "an open one")
            raise UnsupportedOpError(text)
        return axis + rank

    def _outputs(self, graph: ir.Graph) -> None:
        """Lets a graph return parts, each copy by itself and no other output."""
        for index, old in enumerate(graph.outputs):
            if old not in self.parts:
                continue
            new = self.parts[old]
            maker = new.producer()
            if maker is None or maker.graph is not graph or new in graph.outputs:
                new = Builder(self.space, graph, scope=str(old.name)).op(std.Identity, new)
            old.name, new.name = self.space.names.fresh(f"{old.name}_complex"), old.name
            graph.outputs[index] = new
