"""Loops in the one form that every runtime knows: forward, over axis 0.

onnxruntime walks a Scan backwards, and along any axis, at no cost, so lowering makes use of it. onnx's own reference
evaluator and some other runtimes implement only the plain form; for them the sequences are turned round outside the
loop.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.emit import Emitter, Workspace
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.values import stated
from lstm_lower.passes.infer import attribute

# The start and end of a slice that walks the whole axis backwards.
_LAST, _BEFORE_FIRST = -1, (-(2**63) + 1)


class ForwardScansPass(ir.passes.InPlacePass):
    """Rewrites Scans that run backwards or along another axis into forward ones over axis 0."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites."""
        space = Workspace.of(model)
        modified = False
        for container in [model.graph, *(function.graph for function in model.functions.values())]:
            for graph in [container, *container.subgraphs()]:
                for node in [node for node in graph if node.domain == "" and node.op_type == "Scan"]:
                    modified |= _rewrite(node, space)
        return ir.passes.PassResult(model, modified=modified)


def _rewrite(node: ir.Node, space: Workspace) -> bool:
    before = Builder.before(node, space)
    inputs = attribute(node, "num_scan_inputs", 0)
    states = len(node.inputs) - inputs
    outputs = len(node.outputs) - states
    input_forms = _forms(node, "input", inputs)
    output_forms = _forms(node, "output", outputs)
    if not any(axis or reverse for axis, reverse in [*input_forms, *output_forms]):
        return False
    for index, (axis, reverse) in enumerate(input_forms, start=states):
        value = node.inputs[index]
        assert value is not None
        turned = _turn(before.wrap(value), axis, reverse, to_front=True)
        node.replace_input_with(index, turned.value)
    assert node.graph is not None
    after = Builder(Emitter(space, node.graph, after=node, scope=before.scope, constants=before.emitter.constants))
    for output, (axis, reverse) in zip(node.outputs[states:], output_forms, strict=True):
        if axis or reverse:
            _turn_output(after, output, axis, reverse)
    for name in ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"):
        node.attributes.pop(name, None)
    return True


def _forms(node: ir.Node, side: str, count: int) -> list[tuple[int, bool]]:
    """Axis and direction of each scan input or output."""
    axes = attribute(node, f"scan_{side}_axes", None) or [0] * count
    directions = attribute(node, f"scan_{side}_directions", None) or [0] * count
    return [(int(axis), bool(direction)) for axis, direction in zip(axes, directions, strict=True)]


def _turn(x: Expr, axis: int, reverse: bool, *, to_front: bool) -> Expr:
    if axis and to_front:
        x = x.transpose(*_order(x, axis))
    if reverse:
        b = x.builder
        x = b.op(std.Slice, x, b.ints(_LAST), b.ints(_BEFORE_FIRST), b.ints(0), b.ints(-1))
    if axis and not to_front:
        order = _order(x, axis)
        x = x.transpose(*(order.index(position) for position in range(len(order))))
    return x


def _order(x: Expr, axis: int) -> list[int]:
    if x.shape is None:
        raise ValueError(f"the rank of '{x.value.name}' is not known, so its axis {axis} cannot be moved")
    rank = len(x.shape)
    return [axis % rank, *(other for other in range(rank) if other != axis % rank)]


def _turn_output(after: Builder, output: ir.Value, axis: int, reverse: bool) -> None:
    """Stacks the output in plain form under a new name; the turned one takes over the old name and all uses."""
    plain = ir.Value(name=after.names.fresh(f"{output.name}/plain"), type=output.type)
    if output.shape is not None:
        dims: list[Any] = list(output.shape.dims)
        plain.shape = stated([dims[axis], *(d for i, d in enumerate(dims) if i != axis % len(dims))])
    turned = _turn(after.wrap(plain), axis, reverse, to_front=False)
    name, output.name = output.name, plain.name
    output.replace_all_uses_with(turned.value, replace_graph_outputs=True)
    turned.value.name = name
    turned.value.shape = output.shape
    output.shape = plain.shape
    for node in after.nodes:
        for index, value in enumerate(node.inputs):
            if value is plain:
                node.replace_input_with(index, output)
