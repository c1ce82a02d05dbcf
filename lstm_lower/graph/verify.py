"""The verifier: is this graph well formed, and does every composite node fit its definition?

It runs before lowering, where it turns a malformed model into one clear error, and after each pass in tests and under
`--verify-each`, where it catches a faulty pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidModelError, LstmLowerWarning, some, warn
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.graph.values import Partial, declared_shape, stated

# Compares what a model declares of its values, and what passes have kept of them, with what follows from operands.


class WrongShapeWarning(LstmLowerWarning):
    """A model declares an output with a shape that it cannot have; the result has the right one, if it is known."""


def verify_declared(graph: ir.Graph, facts: Facts, *, correcting: bool = False) -> bool:
    """Compares the declared type of every value that a node makes with what is known of it.

    A name stands for any size, so that only numbers can contradict each other.

    Args:
        graph: a model's main graph.
        facts: what is known of the model's values.
        correcting: whether wrong shapes are put right. Nothing depends on them (runtimes warn at most), and onnx's own
            inference declares some; of a wrong one of the graph's own outputs, as exporters of PyTorch wrote them, the
            user is told.

    Warns:
        WrongShapeWarning: the shape of one of the graph's outputs was put right, or does not tell which one of several
            ranks it has.

    Returns:
        Whether a shape was wrong.

    Raises:
        InvalidModelError: the first contradiction found.
    """
    corrected = False
    for node in all_nodes(graph):
        for value in node.outputs:
            if value.type is None and value.shape is None:
                continue
            if correcting and value in graph.outputs and facts.shape(value) is None and value in facts.alternatives:
                declared = format_shape(declared_shape(value) or ())
                shapes = some([format_shape(shape) for shape in facts.alternatives[value].shapes])
                text = f"output '{value.name}' is declared with shape {declared}, but it is made with one of {shapes}; "
                text += "axes of a Squeeze, or known sizes declared as numbers, tell which"
                warn(text, WrongShapeWarning)
            for what, declared, actual in _contradictions(value.type, declared_shape(value), value, facts):
                if correcting and what == "shape":
                    value.shape = stated(facts.shape(value) or ())
                    corrected = True
                    if value in graph.outputs:
                        text = f"output '{value.name}' is declared with shape {declared}, but it is made with {actual}"
                        warn(text, WrongShapeWarning)
                    continue
                text = f"{what} {actual}, which follows from the operands, got {declared} in the model's declarations"
                label = f"{node.op_type} '{node_label(node)}'"
                raise InvalidModelError(f"{label}: output '{value.name}' requires {text}")
    return corrected


def open_negative_sizes(model: ir.Model) -> bool:
    """Leaves sizes open that are declared to be negative, as some exporters mean it; onnx's inference aborts on them.

    Returns:
        Whether there were any.
    """
    opened = False
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        values = list(root.inputs)
        for node in all_nodes(root):
            values.extend(node.outputs)
            for inner in subgraphs_of(node):
                values.extend(inner.inputs)
        for value in values:
            shape = value.shape
            if shape is not None and any(isinstance(dim, int) and dim < 0 for dim in shape.dims):
                value.shape = stated(declared_shape(value) or ())
                opened = True
    return opened


def open_states(graph: ir.Graph, facts: Facts) -> bool:
    """Leaves sizes of a Loop's states open that the body declares otherwise than they are before the first step.

    Exporters give a state that each step overwrites any tensor to begin with.

    Args:
        graph: a model's main graph.
        facts: what is known of the model's values.

    Returns:
        Whether there were any.
    """
    opened = False
    for node in all_nodes(graph):
        loop = std.Loop.of(node, facts)
        for initial, state in () if loop is None else zip(loop.carried, loop.body.inputs[2:], strict=False):
            declared, actual = declared_shape(state), None if initial is None else facts.shape(initial)
            if declared is None or actual is None:
                continue
            if len(declared) != len(actual):
                state.shape, opened = None, True
                continue
            unlike = [
                isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(declared, actual, strict=True)
            ]
            if any(unlike):
                state.shape = stated([None if other else size for size, other in zip(declared, unlike, strict=True)])
                opened = True
    return opened


def verify_kept(graph: ir.Graph, kept: Facts, facts: Facts) -> None:
    """Compares what passes have kept of values with what is found out anew.

    Raises:
        InvalidModelError: the first contradiction found.
    """
    for node in all_nodes(graph):
        for value in node.outputs:
            for what, before, now in _contradictions(*kept.kept(value), value, facts):
                text = f"'{value.name}' of {node.op_type} '{node_label(node)}' requires {what} {now}, got {before}"
                raise InvalidModelError(f"{text}, which was known before")


def _contradictions(
    type_: ir.TypeProtocol | None, shape: Partial | None, value: ir.Value, facts: Facts
) -> Iterator[tuple[str, str, str]]:
    found = facts.type(value)
    if type_ is not None and found is not None and type_ != found:
        undefined = isinstance(type_, ir.TensorType) and type_.dtype == ir.DataType.UNDEFINED
        if not undefined:
            yield "type", str(type_), str(found)
    actual = facts.shape(value)
    if shape is None or actual is None:
        return
    pairs = zip(shape, actual, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if len(shape) != len(actual) or differ:
        yield "shape", format_shape(shape), format_shape(actual)


def verify(model: ir.Model) -> Facts:
    """Verifies a whole model: its structure, every composite node against its definition, declared types against facts.

    Returns:
        What was found out of the model's values.

    Raises:
        InvalidModelError: the first fault found.
    """
    verify_structure(model)
    facts = Facts.of(model)
    verify_types(model, facts)
    return facts


def verify_types(model: ir.Model, facts: Facts, *, correcting: bool = False) -> bool:
    """Verifies every composite node of a well-formed model against its definition, and declared types against facts.

    Args:
        model: the model.
        facts: what is known of its values.
        correcting: whether wrong declared shapes of inner values are put right instead, see `verify_declared`, and
            negative sizes and those of states that begin otherwise (`open_states`) are left open.

    Returns:
        Whether there were any.

    Raises:
        InvalidModelError: the first fault found.
    """
    opened = correcting and open_negative_sizes(model)
    if correcting and facts.opset >= std.OLDEST_VIEWED:
        opened |= open_states(model.graph, facts)
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        for node, definition in composite_nodes(graph):
            # In a function's body an attribute may stand for the caller's, who is yet to come.
            if not any(attribute.is_ref() for attribute in node.attributes.values()):
                bind_node(node, definition, facts)
    if facts.opset >= std.OLDEST_VIEWED:
        return verify_declared(model.graph, facts, correcting=correcting) or opened
    return opened
