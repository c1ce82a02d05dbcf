"""Refining shapes: what loops' surroundings know about sizes reaches their bodies, and comes out again.

Exporters declare most values of a body with open dimensions, and many models name none at all. Every other pass asks
about sizes: whether two shapes are equal, whether a broadcast changes anything, what a result costs.

Precondition: nodes in topological order. Shapes are inferred anew from operands, a body's parameters from the states
and sequences outside (a state keeps its shape from step to step), and merged with what is declared: a number tells
more than a name, a name more than nothing. Open dimensions of the model's inputs get names of their own, so that equal
sizes are known as equal; `forget_names` takes them away again.

Postcondition: no value is known less well than before. Nodes are the same as before.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import stated
from lstm_lower.passes.infer import attribute, broadcast, infer, inferred, shape_of
from lstm_lower.passes.loops.sizes import Dims, sizes_of
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.dependence import CONTROL_FLOW
from lstm_lower.passes.loops.views.loop import Loop, is_scan

# What names of open dimensions begin with; no exporter's do.
OPEN = "?"


class Refine(LoopPass):
    """Refines the shapes of the whole model."""

    name = "refine"

    def run(self, model: ir.Model) -> bool:
        """Refines the main graph and all loop bodies. Shapes are no change of the model: the answer is `False`."""
        if not any(node.op_type in CONTROL_FLOW for node in model.graph):
            return False
        name_open_dimensions(model.graph)
        refine_graph(model.graph, is_model=True)
        return False

    def rewrite(self, loop: Loop) -> bool:
        """Refines one loop."""
        _enter(loop.node)
        return False


def name_open_dimensions(graph: ir.Graph) -> None:
    """Names the dimensions that the graph's inputs leave open."""
    for value in graph.inputs:
        shape = shape_of(value)
        if shape is not None and None in shape:
            value.shape = stated(
                [f"{OPEN}{value.name}:{axis}" if dim is None else dim for axis, dim in enumerate(shape)]
            )


def forget_names(model: ir.Model) -> None:
    """Leaves open again what `name_open_dimensions` named."""
    if not any(_is_open(dim) for value in model.graph.inputs for dim in shape_of(value) or ()):
        return
    if not any(_is_open(dim) for value in model.graph.inputs for dim in shape_of(value) or ()):
        return
    for graph in model.graphs():
        for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
            shape = shape_of(value)
            if shape is not None and any(_is_open(dim) for dim in shape):
                value.shape = stated([None if _is_open(dim) else dim for dim in shape])


def _is_open(dim: Dim) -> bool:
    return isinstance(dim, str) and dim.startswith(OPEN)


def refine_graph(graph: ir.Graph, *, is_model: bool = False) -> None:
    """Refines the values that a graph's nodes make, bodies included."""
    for node in graph:
        if subgraphs_of(node):
            _enter(node)
        if all(map(_is_settled, node.outputs)):
            continue
        infer(node)
        for output, shape in zip(node.outputs, shapes_made(node), strict=False):
            # What the model declares of its own outputs is its interface.
            if not is_model or output.shape is None or not output.is_graph_output():
                sharpen(output, shape)


def _enter(node: ir.Node) -> None:
    """Tells a Scan's parameters their shapes, and refines the subgraphs."""
    if is_scan(node):
        body = node.attributes["body"].as_graph()
        count = int(attribute(node, "num_scan_inputs", 0))
        states = len(node.inputs) - count
        axes = attribute(node, "scan_input_axes", None) or [0] * count
        for parameter, outer, axis in zip(body.inputs, node.inputs, [None] * states + list(axes), strict=True):
            shape = shape_of(outer)
            if shape is not None and axis is not None:
                axis %= len(shape)
                shape = (*shape[:axis], *shape[axis + 1 :])
            sharpen(parameter, shape)
    for subgraph in subgraphs_of(node):
        refine_graph(subgraph)
    if is_scan(node):
        # A state keeps its shape, so that what makes it has that shape too.
        for parameter, update in zip(body.inputs[:states], body.outputs, strict=False):
            sharpen(update, shape_of(parameter))


def _is_settled(value: ir.Value) -> bool:
    shape = shape_of(value)
    return shape is not None and None not in shape and value.type is not None


def sharpen(value: ir.Value, shape: Dims | None) -> None:
    """Merges what was found out into a value's shape."""
    merged = merge(shape_of(value), shape)
    if merged is not None and merged != shape_of(value):
        value.shape = stated(merged)


def merge(declared: Dims | None, found: Dims | None) -> Dims | None:
    """The shape that two pieces of knowledge make together."""
    if declared is None or found is None:
        return found if declared is None else declared
    if len(declared) != len(found):
        # A wrong note; what the operands say counts.
        return found
    return tuple(_sharper(ours, theirs) for ours, theirs in zip(declared, found, strict=True))


def _sharper(declared: Dim, found: Dim) -> Dim:
    if isinstance(declared, int) or found is None:
        return declared
    return found if isinstance(found, int) or declared is None or _is_open(declared) else declared


def shapes_made(node: ir.Node) -> list[Dims | None]:
    """What follows from a node's operands about the shapes of its outputs, sizes that it reads as values included."""
    found = [shape for _, shape in inferred(node)]
    if node.domain != "":
        return found
    if node.op_type == "ConstantOfShape":
        return [merge(found[0], sizes_of(node.inputs[0]))]
    if node.op_type == "Expand":
        target, shape = sizes_of(node.inputs[1]), shape_of(node.inputs[0])
        return [merge(found[0], None if target is None else broadcast(shape, target))]
    if node.op_type == "Reshape":
        target, shape = sizes_of(node.inputs[1]), shape_of(node.inputs[0])
        if target is not None and shape is not None and not attribute(node, "allowzero", 0):
            return [merge(found[0], _reshaped(target, shape))]
    return found


def _reshaped(target: Dims, shape: Dims) -> Dims:
    dims = [
        shape[axis] if size == 0 and axis < len(shape) else (None if size in (0, -1) else size)
        for axis, size in enumerate(target)
    ]
    if list(target).count(-1) == 1:
        # The dimension left to be found out is the one left over, when all others have a partner.
        rest, unit = list(shape), [dim for index, dim in enumerate(dims) if target[index] != -1]
        for dim in unit:
            if dim in rest and dim is not None:
                rest.remove(dim)
            elif dim != 1:
                return tuple(dims)
        open_dims = [dim for dim in rest if dim != 1]
        if None not in rest and len(open_dims) <= 1:
            dims[list(target).index(-1)] = open_dims[0] if open_dims else 1
    return tuple(dims)
