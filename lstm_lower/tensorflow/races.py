"""Variables that a graph reads and writes in no order, so that each run of TensorFlow's may have another result."""

from __future__ import annotations

import dataclasses
from typing import Any

from lstm_lower.checkpoints.values import RESOURCE
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.views import NEXTS, PASSING, View, data_inputs
from lstm_lower.tensorflow.graph import split_name
from lstm_lower.tensorflow.original import Original
from lstm_lower.tensorflow.state import is_write


@dataclasses.dataclass(frozen=True)
class Race:
    """An assignment, and what reads or writes the same variable, of which neither waits for the other.

    Attributes:
        variable: the variable's name.
        writer: the node that assigns.
        other: the other node.
    """

    variable: str
    writer: str
    other: str


def races(graph: Original) -> list[Race]:
    """The races of a graph, outside of its functions, whose bodies TensorFlow orders itself."""
    view = View(graph.graph_def, OpTable(graph.graph_def.library.function, {}))
    before = _before(view)
    place = {name: number for number, name in enumerate(view.nodes)}

    def unordered(one: str, other: str) -> bool:
        return not (before[one] >> place[other] & 1 or before[other] >> place[one] & 1)

    found = []
    for variable, names in graph.variables.items():
        writers, readers = _users(view, names)
        for writer in writers:
            found += [Race(variable, writer, x) for x in (*writers, *readers) if x != writer and unordered(writer, x)]
    return found


def affected(graph: Original, found: list[Race]) -> set[tuple[str, str]]:
    """The outputs and variables, as kind and name, that depend on a race."""
    view = View(graph.graph_def, OpTable(graph.graph_def.library.function, {}))
    before, place = _before(view), {name: number for number, name in enumerate(view.nodes)}
    raced = sum(1 << place[name] for name in {x for race in found for x in (race.writer, race.other)})

    def depends(name: str) -> bool:
        return bool(before[name] & raced or raced >> place[name] & 1)

    outputs = {("output", public) for public, tensor in graph.outputs.items() if depends(split_name(tensor)[0])}
    variables = {
        ("variable", variable)
        for variable, names in graph.variables.items()
        if any(depends(writer) for writer in _users(view, names)[0])
    }
    return outputs | variables


def _users(view: View, names: list[str]) -> tuple[list[str], list[str]]:
    """What writes a variable, and what reads it.

    An op that hands its value on may hand on the variable's own memory: who reads that reads the variable.
    """
    handles, values = set(names), set[str]()
    writers: dict[str, None] = {}
    readers: dict[str, None] = {}
    # Nodes may stand in any order, and a variable is handed on a few times.
    grown = True
    while grown:
        before = len(handles) + len(values)
        for node in view.nodes.values():
            read = {split_name(x)[0] for x in data_inputs(node)}
            if read & handles and (node.op.startswith("Ref") or (node.op in PASSING and _is_resource(node))):
                handles.add(node.name)
            elif read & handles and is_write(node.op):
                writers[node.name] = None
            elif read & (handles | values) and node.op in PASSING and node.op != "ReadVariableOp":
                values.add(node.name)
            elif read & (handles | values):
                readers[node.name] = None
        grown = len(handles) + len(values) > before
    return list(writers), list(readers)


def _is_resource(node: Any) -> bool:
    return bool(node.attr["T"].type == RESOURCE)


def _before(view: View) -> dict[str, int]:
    """What has to run before each node, a bit for each; of loops what comes before their iterations."""
    place = {name: number for number, name in enumerate(view.nodes)}
    found: dict[str, int] = {}
    for root in view.nodes:
        pending = [(root, False)]
        entered = set[str]()
        while pending:
            name, done = pending.pop()
            if name in found:
                continue
            node = view.nodes[name]
            inner = [split_name(x)[0] for x in node.input]
            inner = [x for x in inner if x in place and view.nodes[x].op not in NEXTS]
            if not done and name not in entered:
                entered.add(name)
                pending.append((name, True))
                pending += [(x, False) for x in inner if x not in found and x not in entered]
            elif done:
                bits = 0
                for x in inner:
                    bits |= found.get(x, 0) | 1 << place[x]
                found[name] = bits
    return found
