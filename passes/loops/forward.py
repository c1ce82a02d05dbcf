"""Loops in the one form that every runtime knows: forward, over axis 0.

onnxruntime walks a Scan backwards, and along any axis, at no cost, so lowering makes use of it. onnx's own reference
evaluator and some other runtimes implement only the plain form; for them the sequences are turned round outside the
loop.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.subgraphs import all_nodes, with_inner
from lstm_lower.passes.base import Pass


class ForwardScansPass(Pass):
    """Rewrites Scans that run backwards or along another axis into forward ones over axis 0.

    A Scan along another axis of a sequence whose rank is not known stays as it is.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites."""
        space = self.context.space
        modified = False
        for container in [model.graph, *(function.graph for function in model.functions.values())]:
            for graph in list(with_inner(container)):
                for node in list(graph):
                    scan = std.Scan.of(node, space.facts)
                    modified |= scan is not None and _rewrite(graph, scan, space)
        return ir.passes.PassResult(model, modified=modified)


class LeadingStepsPass(Pass):
    """Rewrites Scans along another axis into ones along axis 0, whichever way they run and whatever they make.

    onnxruntime's Scan (1.32, on CPUs) ends the process where it walks along another axis of an empty sequence; along
    axis 0 it says that there are no steps. A sequence whose rank is not known stays as it is.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        # Without any, nothing has to be known of the model.
        found = [
            node for node in all_nodes(model.graph) if std.Scan.matches(node) and "scan_input_axes" in node.attributes
        ]
        modified = False
        for node in found:
            scan, graph = std.Scan.of(node, self.context.space.facts), node.graph
            modified |= (
                scan is not None and graph is not None and _rewrite(graph, scan, self.context.space, walked=True)
            )
        return ir.passes.PassResult(model, modified)


def _rewrite(graph: ir.Graph, scan: std.Scan, space: Workspace, *, walked: bool = False) -> bool:
    """Puts all of a Scan in plain form, or no more than the axes that are walked along."""
    node, states = scan.node, scan.states
    inputs = list(zip(node.inputs[states:], scan.input_axes, scan.input_directions, strict=True))
    outputs = list(zip(node.outputs[states:], scan.output_axes, scan.output_directions, strict=True))
    if walked:
        inputs = [(value, axis, 0) for value, axis, _ in inputs]
        outputs = [(value, 0, 0) for value, *_ in outputs]
    sequences = [*inputs, *outputs]
    if not any(axis or reverse for _, axis, reverse in sequences):
        return False
    if any(axis and value is not None and space.facts.rank(value) is None for value, axis, _ in sequences):
        return False
    e = Builder(space, graph, before=node, scope=node.name or "forward")
    turned = [_plain(e, value, axis, reverse) for value, axis, reverse in inputs if value is not None]
    plain: dict[str, None] = {"scan_input_axes": None}
    if not walked:
        plain |= dict.fromkeys(("scan_input_directions", "scan_output_axes", "scan_output_directions"))
    made = list(e.again(node, [*node.inputs[:states], *turned], **plain).outputs)
    for old, new in zip(node.outputs[:states], made[:states], strict=True):
        e.replace(old, new)
    for (old, axis, reverse), new in zip(outputs, made[states:], strict=True):
        e.replace(old, _turned(e, new, axis, reverse))
    # It belongs to the new node.
    node.attributes.pop("body")
    detach(node)
    return True


def _plain(e: Builder, sequence: ir.Value, axis: int, reverse: int) -> ir.Value:
    """A sequence with time on axis 0, in the order of the walk."""
    sequence = _moved(e, sequence, axis, 0) if axis else sequence
    return e.reverse(sequence, 0) if reverse else sequence


def _turned(e: Builder, sequence: ir.Value, axis: int, reverse: int) -> ir.Value:
    """A sequence in plain form as it is to be laid out."""
    sequence = e.reverse(sequence, 0) if reverse else sequence
    return _moved(e, sequence, 0, axis) if axis else sequence


def _moved(e: Builder, sequence: ir.Value, source: int, target: int) -> ir.Value:
    rank = e.facts.rank(sequence)
    assert rank is not None
    return e.move_axis(sequence, source, target, rank)
