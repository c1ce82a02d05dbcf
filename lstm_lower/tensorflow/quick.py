"""Two methods of tf2onnx's graphs whose time grows with the number of nodes times that of outputs, made quicker.

A training step has an output for every weight. tf2onnx asks after each of its steps what the outputs depend on, output
by output, and visits every node to give an output its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from tf2onnx.graph import Graph

_replace_all_inputs = Graph.replace_all_inputs


@contextlib.contextmanager
def quick_graphs() -> Iterator[None]:
    """Puts the quicker methods, which do the same, in the place of tf2onnx's own."""
    with (
        mock.patch.object(Graph, "extract_sub_graph_nodes", _nodes_behind),
        mock.patch.object(Graph, "replace_all_inputs", _replace_among_readers),
    ):
        yield


def _replace_among_readers(graph: Any, old_input: str, new_input: str, ops: Sequence[Any] | None = None) -> None:
    """Replaces an input, looking only at the nodes that read it."""
    readers = None if ops is None else [node for node in ops if old_input in node.input]
    _replace_all_inputs(graph, old_input, new_input, ops=readers)


def _nodes_behind(
    graph: Any,
    outputs_name: Sequence[str],
    input_checker: Callable[[Any], bool] | None = None,
    remove_unused_inputs: bool = True,
) -> list[Any]:
    """The nodes that outputs depend on, in one walk for all of them.

    Args:
        graph: a graph of tf2onnx.
        outputs_name: names of tensors.
        input_checker: whether to go on to a node and what it depends on; for all when `None`.
        remove_unused_inputs: whether placeholders that nothing reads are left out.
    """
    names = [*outputs_name, *([] if remove_unused_inputs else [node.output[0] for node in graph.inputs])]
    found: dict[Any, None] = {}
    waiting = names[::-1]
    while waiting:
        node = graph.get_node_by_output(waiting.pop(), search_in_parent_graphs=False)
        # Optional inputs are empty names, and a subgraph's may belong to the graph around it.
        if not node or node in found or (input_checker is not None and input_checker(node) is False):
            continue
        found[node] = None
        waiting += [*node.input, *node.get_implicit_inputs()]
    return list(found)
