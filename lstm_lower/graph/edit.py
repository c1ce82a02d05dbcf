"""Taking graphs apart: what nodes read, and removing what nothing reads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import all_graphs, subgraphs_of

# The IR version in which initializers that are inputs, too, became defaults.
_OPTIONAL_INPUTS = 4


def captures(node: ir.Node) -> list[ir.Value]:
    """Values of outer scopes that a node's subgraphs read, each once, in order of first use."""
    outer: dict[ir.Value, None] = {}
    for graph in subgraphs_of(node):
        _captured_by(graph, outer)
    return list(outer)


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
    read = dict.fromkeys(node.inputs)
    read.pop(None, None)
    if subgraphs_of(node):
        read |= dict.fromkeys(captures(node))
    return list(read)  # type: ignore[arg-type]


def lone_reader(value: ir.Value) -> ir.Node | None:
    """The node that alone reads a value, once, in the graph in which it is made; `None` where there is none."""
    maker, readers = value.producer(), [node for node, _ in value.uses()]
    if maker is None or len(readers) != 1 or value.is_graph_output() or readers[0].graph is not maker.graph:
        return None
    return readers[0]


def remove_unread(graph: ir.Graph) -> int:
    """Removes nodes whose outputs nothing reads, also in subgraphs; returns how many."""
    kept = set(graph.outputs)
    removed, unread = 0, []
    for node in reversed(list(graph)):
        for output in node.outputs:
            if output.uses() or output in kept:
                for subgraph in subgraphs_of(node):
                    removed += remove_unread(subgraph)
                break
        else:
            end_reading(node)
            unread.append(node)
    graph.remove(unread)
    return removed + len(unread)


def detach(*nodes: ir.Node) -> None:
    """Takes nodes out of their graph and ends their reading, that of their subgraphs included.

    onnx_ir looks through all outputs of the graph in each removal, so that many nodes are better removed at once.
    """
    for node in nodes:
        end_reading(node)
    for graph, members in itertools.groupby(nodes, lambda node: node.graph):
        assert graph is not None
        graph.remove(members)


def end_reading(node: ir.Node) -> None:
    """Lets a node that is about to be removed read nothing any more, and empties its subgraphs."""
    for subgraph in subgraphs_of(node):
        subgraph.outputs.clear()
        for inner in subgraph:
            end_reading(inner)
        subgraph.remove(list(subgraph))
    set_operands(node, dict.fromkeys(range(len(node.inputs))))


def redirect(old: ir.Value, new: ir.Value) -> None:
    """Lets every node that reads `old` read `new`."""
    readers: dict[ir.Node, dict[int, ir.Value | None]] = {}
    for node, index in old.uses():
        readers.setdefault(node, {})[index] = new
    for node, changed in readers.items():
        set_operands(node, changed)


def set_operands(node: ir.Node, changed: Mapping[int, ir.Value | None]) -> None:
    """Gives a node other operands at some positions.

    onnx_ir's `replace_input_with` copies all operands for each one that it replaces: a node of 10,000 operands took
    seconds to be taken apart.
    """
    if len(node.inputs) == 1 or node.device_configurations:
        for index, value in changed.items():
            node.replace_input_with(index, value)
        return
    values = list(node.inputs)
    for index, new in changed.items():
        old, values[index] = values[index], new
        if old is not None:
            old._remove_usage(node, index)
        if new is not None:
            new._add_usage(node, index)
    node._inputs = tuple(values)


def fix_initializers(model: ir.Model) -> bool:
    """Takes initializers out of the inputs of a model of an IR version below 4, and raises it to 4.

    Every initializer had to be listed as an input then, and was a constant for all that: nothing else could be fed.
    Since version 4 one that is listed is the default of an input.

    Returns:
        Whether the model was so old.
    """
    if model.ir_version >= _OPTIONAL_INPUTS:
        return False
    model.ir_version = _OPTIONAL_INPUTS
    for graph in all_graphs(model):
        for value in [value for value in graph.inputs if value.is_initializer()]:
            graph.inputs.remove(value)
    return True


def name_outputs_of_calls(model: ir.Model) -> bool:
    """Names outputs that calls of a model's functions leave out.

    onnx_ir writes none of a node's last outputs that have no names; onnxruntime, and onnx's inference, refuse a call
    with fewer outputs than its function has.

    Returns:
        Whether there were any.
    """
    unnamed: list[ir.Value] = []
    for node in (node for graph in all_graphs(model) for node in graph) if model.functions else ():
        function = model.functions.get(node.op_identifier())
        if function is not None:
            node.resize_outputs(max(len(node.outputs), len(function.outputs)))
            unnamed += [value for value in node.outputs if not value.name]
    if unnamed:
        names = Names.of(model)
        for value in unnamed:
            value.name = names.fresh("unread")
    return bool(unnamed)


def set_outputs(node: ir.Node, values: Sequence[ir.Value]) -> None:
    """Gives a node other outputs: of those that it has and of values that no node makes, which onnx_ir has no way for.

    Raises:
        ValueError: an output that it has no longer is read.
    """
    for value in node.outputs:
        if value not in values:
            if value.uses() or value.is_graph_output():
                raise ValueError(f"'{value.name}' of '{node.name}' is read")
            value._producer, value._index = None, None
    for position, value in enumerate(values):
        value._producer, value._index = node, position
    node._outputs = tuple(values)
