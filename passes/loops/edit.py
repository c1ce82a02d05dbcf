"""Editing a graph: emitting nodes at a place, replacing values, removing what nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.infer import infer, shape_of

__all__ = ["END", "Editor", "captures", "detach", "operands", "remove_unread", "subgraphs_of", "substitute"]

# "To the end" in a Slice.
END = int(np.iinfo(np.int64).max)


class Editor:
    """Emits nodes right before or right after an anchor node, or at the end of a graph.

    Attributes:
        opset: version of `ai.onnx` that nodes are written for.
        emitted: the nodes emitted so far, in order.
    """

    def __init__(
        self,
        graph: ir.Graph,
        names: Names,
        opset: int,
        *,
        before: ir.Node | None = None,
        after: ir.Node | None = None,
        scope: str = "loop",
    ) -> None:
        self.graph = graph
        self.names = names
        self.opset = opset
        self.scope = scope
        self.emitted: list[ir.Node] = []
        self._before = before
        self._after = after
        self._constants: dict[tuple[Any, ...], ir.Value] = {}

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: int = 1,
        **attributes: Any,
    ) -> ir.Node:
        """Emits a node and infers the types of its outputs."""
        name = self.names.fresh(f"{self.scope}/{op_type}")
        values = [ir.Value(name=name if outputs == 1 else f"{name}:{index}") for index in range(outputs)]
        attrs = [
            value if isinstance(value, ir.Attr) else ir.convenience.convert_attribute(key, value)
            for key, value in attributes.items()
        ]
        node = ir.Node("", op_type, inputs, attrs, outputs=values, name=name)
        infer(node)
        self.place(node)
        return node

    def place(self, node: ir.Node) -> None:
        """Puts an existing node that stands in no graph at the editing place."""
        if self._before is not None:
            self.graph.insert_before(self._before, node)
        elif self._after is not None:
            self.graph.insert_after(self._after, node)
            self._after = node
        else:
            self.graph.append(node)
        self.emitted.append(node)

    def discard_unread(self) -> None:
        """Removes emitted nodes that nobody reads."""
        for node in reversed(self.emitted):
            if node.graph is not None and not any(x.uses() or x.is_graph_output() for x in node.outputs):
                detach(node)

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Emits a node with one output."""
        return self.node(op_type, inputs, 1, **attributes).outputs[0]

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A Constant at the editing place; equal ones are shared."""
        array = np.asarray(value, dtype.numpy())
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            tensor = ir.Tensor(array, dtype=dtype)
            self._constants[key] = self.op("Constant", value=ir.AttrTensor("value", tensor))
        return self._constants[key]

    def ints(self, *values: int) -> ir.Value:
        """An int64 vector constant."""
        return self.constant(list(values))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size along an axis as an int64 tensor of shape [1]; a constant when it is known."""
        shape = shape_of(value)
        dim = None if shape is None else shape[axis]
        if isinstance(dim, int):
            return self.ints(dim)
        return self.op("Gather", self.op("Shape", value), self.ints(axis), axis=0)

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Inserts axes of size 1; nothing is emitted without axes."""
        return self.op("Unsqueeze", value, self.ints(*axes)) if axes else value

    def slice(self, value: ir.Value, start: int | ir.Value, end: int | ir.Value, axis: int, step: int = 1) -> ir.Value:
        """Elements `start` to `end` (exclusive) along an axis."""
        bounds = [self.ints(bound) if isinstance(bound, int) else bound for bound in (start, end)]
        steps = [] if step == 1 else [self.ints(step)]
        return self.op("Slice", value, *bounds, self.ints(axis), *steps)

    def reverse(self, value: ir.Value, axis: int) -> ir.Value:
        """The elements along an axis in reverse order."""
        reversed_value = self.slice(value, -1, -END, axis, step=-1)
        reversed_value.shape = value.shape
        return reversed_value

    def move_axis(self, value: ir.Value, source: int, target: int, rank: int) -> ir.Value:
        """Moves one axis, the others keep their order; nothing is emitted when it stands there already."""
        source, target = source % rank, target % rank
        if source == target:
            return value
        order = [axis for axis in range(rank) if axis != source]
        order.insert(target, source)
        return self.op("Transpose", value, perm=order)


def captures(node: ir.Node) -> list[ir.Value]:
    """Values of outer scopes that a node's subgraphs read, each once, in order of first use."""
    found: dict[ir.Value, None] = {}
    for graph in subgraphs_of(node):
        _captured_by(graph, found)
    return list(found)


def _captured_by(graph: ir.Graph, found: dict[ir.Value, None]) -> None:
    own: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    inner: dict[ir.Value, None] = {}
    for node in graph:
        inner.update((value, None) for value in node.inputs if value is not None)
        for subgraph in subgraphs_of(node):
            _captured_by(subgraph, inner)
        own.update(node.outputs)
    inner.update((value, None) for value in graph.outputs)
    found.update((value, None) for value in inner if value not in own)


def operands(node: ir.Node) -> list[ir.Value]:
    """Everything a node reads: its inputs and what its subgraphs capture."""
    explicit = [value for value in node.inputs if value is not None]
    if subgraphs_of(node):
        explicit += captures(node)
    return list(dict.fromkeys(explicit))


def substitute(old: ir.Value, new: ir.Value, names: Names) -> None:
    """Lets every reader of `old` read `new`; an output of the main graph keeps its name.

    Where `new` cannot stand as a graph's output itself (it is an input, belongs to another graph, or is an output
    already), an Identity does.
    """
    graph = old.graph if old.is_graph_output() else None
    positions = [] if graph is None else [index for index, output in enumerate(graph.outputs) if output is old]
    if graph is not None and positions:
        name = old.name
        old.name = names.fresh(f"{name}_replaced")
        free = new.graph is graph and new.producer() is not None and not new.is_graph_output()
        if not free:
            node = ir.Node("", "Identity", [new], name=names.fresh(f"{name}/Identity"))
            infer(node)
            graph.append(node)
            target = node.outputs[0]
        else:
            target = new
        target.name = name
        if old.type is not None:
            target.type = old.type
        if old.shape is not None:
            target.shape = old.shape
        for index in positions:
            graph.outputs[index] = target
    for user, index in list(old.uses()):
        user.replace_input_with(index, new)


def remove_unread(graph: ir.Graph, keep: Iterable[ir.Value] = ()) -> int:
    """Removes nodes whose outputs nobody reads, also in subgraphs; returns how many.

    Args:
        graph: the graph.
        keep: values to count as read besides the graph's outputs.
    """
    kept = {*keep, *graph.outputs}
    removed = 0
    for node in reversed(list(graph)):
        if any(output in kept or output.uses() for output in node.outputs):
            for subgraph in subgraphs_of(node):
                removed += remove_unread(subgraph)
            continue
        detach(node)
        removed += 1
    return removed


def detach(node: ir.Node) -> None:
    """Takes a node out of its graph and ends its reading, that of its subgraphs included."""
    for subgraph in subgraphs_of(node):
        subgraph.outputs.clear()
        for inner in reversed(list(subgraph)):
            detach(inner)
    graph = node.graph
    assert graph is not None
    graph.remove(node)
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
