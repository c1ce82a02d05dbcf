"""Does what a model declares of its values agree with what follows from their operands?"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import declared_shape

# Views read the forms that operators have from this opset on; older models are verified once they are raised to it.
OLDEST_VIEWED = 13


def verify_declared(graph: ir.Graph, facts: Facts) -> None:
    """Compares the declared type of every value that a node makes with what is known of it.

    A name stands for any size, so that only numbers can contradict each other.

    Raises:
        InvalidModelError: the first contradiction found.
    """
    for node in all_nodes(graph):
        for value in node.outputs:
            for what, declared, known in _contradictions(value, facts):
                text = f"{what} {known}, which follows from the operands, got {declared} in the model's declarations"
                label = f"{node.op_type} '{node_label(node)}'"
                raise InvalidModelError(f"{label}: output '{value.name}' requires {text}")


def _contradictions(value: ir.Value, facts: Facts) -> Iterator[tuple[str, str, str]]:
    type_ = facts.type(value)
    if value.type is not None and type_ is not None and value.type != type_:
        undefined = isinstance(value.type, ir.TensorType) and value.type.dtype == ir.DataType.UNDEFINED
        if not undefined:
            yield "type", str(value.type), str(type_)
    declared, known = declared_shape(value), facts.shape(value)
    if declared is None or known is None:
        return
    pairs = zip(declared, known, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if len(declared) != len(known) or differ:
        yield "shape", format_shape(declared), format_shape(known)
