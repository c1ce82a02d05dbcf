"""Calls of functions in which data comes in are written out, so that the graph can be cut there by name."""

from __future__ import annotations

from lstm_lower.tensorflow.files.functions import OpTable, called, flat_body
from lstm_lower.tensorflow.files.messages import GraphDef, NodeDef, attribute
from lstm_lower.tensorflow.files.pipelines import is_source
from lstm_lower.tensorflow.files.views import data_inputs
from lstm_lower.tensorflow.sources import Source
from lstm_lower.tensorflow.structure import CALLS


def expose_sources(source: Source) -> None:
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
