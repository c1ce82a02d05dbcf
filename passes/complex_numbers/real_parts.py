"""The pass that leaves real numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.dtypes import PARTS, dtype_name, is_complex, parts_of
from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_graphs, all_nodes, subgraphs_of
from lstm_lower.graph.values import stated
from lstm_lower.passes.base import Pass
from lstm_lower.passes.complex_numbers import by_parts
from lstm_lower.passes.complex_numbers.registry import Parts


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
        self.found: dict[ir.Value, ir.Value] = {}

    def graph(self, graph: ir.Graph) -> None:
        """Rewrites a graph: what is in it, its outputs, and then ends what nothing reads any more."""
        done = []
        for name, value in list(graph.initializers.items()):
            if is_complex(value.dtype) and value not in self.found:
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
        self.found[value] = new
        return new

    def _node(self, node: ir.Node, b: Builder) -> None:
        facts = self.space.facts
        known = [(facts.dtype(value), facts.shape(value)) for value in node.outputs]
        view = facts.view(node)
        rule = None if view is None else by_parts.of(type(view))
        results: Sequence[Expr]
        if isinstance(view, std.ControlFlow):
            results = self._control_flow(view, b)
        elif rule is None:
            got = next(dtype for x in (*node.inputs, *node.outputs) if is_complex(dtype := facts.dtype(x)))
            text = requires(node.op_type, node_label(node), "the node", "real numbers", dtype_name(got))
            raise UnsupportedOpError(text + "; write it with tf.math.real and imag of its operand")
        else:
            results = rule(view, Parts(b, self.found))
        for old, new, (dtype, shape) in zip(node.outputs, results, known, strict=True):
            if not is_complex(dtype):
                b.replace(old, new.value)
                continue
            if shape is not None and facts.shape(new.value) != (*shape, 2):
                b.set_shape(new, (*shape, 2))
            self.found[old] = new.value

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
        inputs = [None if x is None else self.found.get(x, x) for x in node.inputs]
        node.attributes.clear()
        name = self.space.names.fresh(str(node.name))
        made = ir.Node(
            node.domain, node.op_type, inputs, list(attributes.values()), num_outputs=len(node.outputs), name=name
        )
        made.metadata_props.update(node.metadata_props)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            new.name = self.space.names.fresh(str(old.name))
        b.place(made)
        for graph in graphs:
            self.graph(graph)
        for value in made.outputs:
            b.declare(value)
        return [b.wrap(value) for value in made.outputs]

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
        """Lets a graph return parts, each made by itself and no other output."""
        for index, old in enumerate(graph.outputs):
            if old not in self.found:
                continue
            new = self.found[old]
            maker = new.producer()
            if maker is None or maker.graph is not graph or new in graph.outputs:
                new = Builder(self.space, graph, scope=str(old.name)).op(std.Identity, new)
            old.name, new.name = self.space.names.fresh(f"{old.name}_complex"), old.name
            graph.outputs[index] = new
