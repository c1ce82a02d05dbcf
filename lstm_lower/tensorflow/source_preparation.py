"""What a source goes through before it is imported: its weights and its input pipelines show."""

from __future__ import annotations

import re

from lstm_lower.checkpoints.messages import GraphDef, NodeDef, attribute
from lstm_lower.checkpoints.values import base_dtype, onnx_dtype, tensor_value
from lstm_lower.dtypes import is_floating
from lstm_lower.tensorflow.files.functions import OpTable, called, flat_body
from lstm_lower.tensorflow.files.pipelines import is_source
from lstm_lower.tensorflow.files.views import data_inputs
from lstm_lower.tensorflow.graph import label, split_name
from lstm_lower.tensorflow.sources import GraphSource, Variable
from lstm_lower.tensorflow.state import is_write
from lstm_lower.tensorflow.structure import CALLS

# Freezing turns a variable into a Const and each read of it into an Identity that keeps its name.
_READS = re.compile(r"(^|/)(read|ReadVariableOp)(_\d+)?$")


def lift_frozen_weights(source: GraphSource, *, read: bool) -> None:
    """Makes variables of a graph's constants that were some: of those that ops write to always.

    Args:
        source: the graph, to whose variables they are added.
        read: whether constants that are only read as variables are count, too.

    Raises:
        InvalidModelError: a constant is broken.
    """
    constants = {node.name: node for node in source.graph_def.node if node.op == "Const"}
    found: dict[str, bool] = {}
    for node in source.graph_def.node:
        if is_write(node.op):
            written = [split_name(name)[0] for name in node.input if not name.startswith("^")]
            # The variable itself, and the slots that follow it up to the first operand that was none.
            for position, name in enumerate(written):
                if name in constants and (position == 0 or name.startswith(f"{written[0]}/")):
                    found[name] = True
        elif read and node.op == "Identity" and _READS.search(node.name):
            found.setdefault(split_name(node.input[0])[0], True)
    for name in constants.keys() & found.keys():
        node = constants[name]
        dtype = onnx_dtype(node.attr["dtype"].type)
        if not is_floating(dtype):
            continue
        value = tensor_value(node.attr["value"].tensor, label(node))
        source.variables[name] = Variable(
            name, value, trainable=True, shape=value.shape, dtype=base_dtype(node.attr["dtype"].type)
        )


def expose_sources(source: GraphSource) -> None:
    """Puts the nodes of functions in their calls' places, where an input pipeline ends in them.

    Loops and branches keep their functions: what comes in there comes once for each iteration, or not at all.

    Raises:
        InvalidModelError: a function is broken.
    """
    table = OpTable(source.graph_def.library.function, source.op_defs)
    holding = _holding(table)
    # A function is written out once on each way down: one that calls itself is left to the import, which refuses it.
    pending = [(node, frozenset[str]()) for node in source.graph_def.node]
    found = []
    while pending:
        node, around = pending.pop()
        name = attribute(node, "f").func.name if node.op in CALLS else node.op
        if name not in holding or name in around:
            found.append(node)
            continue
        given = list(data_inputs(node))
        body = flat_body(table.functions[name], table, given, prefix=f"{node.name}/", attributes=node.attr)
        waited = [x for x in node.input if x.startswith("^")]
        for inner in body.nodes:
            inner.input.extend(waited)
            pending.append((inner, around | {name}))
        results = NodeDef(name=node.name, op="IdentityN" if body.results else "NoOp")
        results.input.extend([*body.results, *(f"^{x}" for x in body.controls), *waited])
        found.append(results)
    if len(found) > len(source.graph_def.node):
        made = GraphDef(node=found, versions=source.graph_def.versions, library=source.graph_def.library)
        source.graph_def = made


def _holding(table: OpTable) -> set[str]:
    """Names of the functions in which an input pipeline ends, or a function that they call."""
    nodes = {name: function.node_def for name, function in table.functions.items()}
    calls = {name: {op for node in listed for op in called(node)} for name, listed in nodes.items()}
    found = {name for name, ops in calls.items() if any(map(is_source, ops))}
    grown = True
    while grown:
        more = {name for name, ops in calls.items() if name not in found and ops & found}
        grown = bool(more)
        found |= more
    return found
