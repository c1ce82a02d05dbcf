"""What is known of the outputs of composite nodes: their definitions tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from lstm_lower import opdef
from lstm_lower.errors import LstmLowerError

if TYPE_CHECKING:
    from lstm_lower.graph.facts import Facts
    from lstm_lower.graph.inference import Inferred


def inferred(node: ir.Node, facts: Facts) -> Inferred | None:
    """Dtypes and shapes of a composite node's outputs; nothing where it does not fit its definition.

    The error for such a node is the verifier's.
    """
    from lstm_lower.graph.verify import bind_node

    definition = opdef.definition(node.domain, node.op_type)
    if definition is None:
        return None
    try:
        call = bind_node(node, definition, facts)
        infos = definition.output_infos(call, len(node.outputs))
    except LstmLowerError:
        return None
    return [(info.dtype, info.shape) for info in infos]
