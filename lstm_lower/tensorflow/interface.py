"""The inputs and outputs of an import: which tensors they are, and what they need of the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.tensorflow.graph import Graph, NodeDef, label, op_def_of, output_dtypes, split_name, tensor_name
from lstm_lower.tensorflow.inline import Inlined
from lstm_lower.tensorflow.sources import Source
from lstm_lower.tensorflow.state import REFERENCES, is_write

_RESOURCE = tf.resource.as_datatype_enum
_STRING = tf.string.as_datatype_enum

# Ops of checkpoints: what leads to them is bookkeeping, not part of a step.
_BOOKKEEPING = ("SaveV2", "RestoreV2", "MergeV2Checkpoints", "Save", "Restore", "SaveSlices", "RestoreSlice")


@dataclasses.dataclass
class Interface:
    """What is asked of the graph.

    Attributes:
        inputs: public name -> tensor, in order.
        outputs: public name -> tensor, in order.
        targets: nodes that must run though no output of theirs is asked for (assignments, groups of them).
        demanded: whether the inputs were named by the caller, who must then hear of those that nothing reads.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    targets: list[str]
    demanded: bool


def resolve(
    source: Source, inlined: Inlined, graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> Interface:
    """Finds the tensors that inputs and outputs name; by default the source's own, or the graph's ends.

    Raises:
        InvalidInputError: a name is not to be found, or is named twice.
        InvalidModelError: the graph has no outputs of its own to default to.
    """
    targets = [node.name for node in graph.nodes.values() if is_write(node)] if source.side_effects else []
    if outputs is not None:
        found, named_targets = _find_outputs(source, inlined, graph, outputs)
        targets += named_targets
    elif source.outputs is not None:
        found = {name: inlined.tensor(tensor) for name, tensor in source.outputs.items()}
    else:
        found, sinks = _ends(graph)
        targets += sinks
    if not found and not targets:
        raise InvalidModelError(f"{source.label}: at least one output is required, got a graph without any")
    needed = graph.ancestors([split_name(tensor)[0] for tensor in found.values()] + targets)
    if inputs is not None:
        return Interface(_find_inputs(source, graph, inputs), found, targets, demanded=True)
    if source.inputs is not None:
        return Interface(dict(source.inputs), found, targets, demanded=False)
    placeholders = {
        f"{node.name}:0": f"{node.name}:0"
        for node in graph.nodes.values()
        if node.op == "Placeholder" and node.name in needed and node.attr["dtype"].type != _RESOURCE
    }
    return Interface(placeholders, found, targets, demanded=False)


def _find_outputs(
    source: Source, inlined: Inlined, graph: Graph, names: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    found: dict[str, str] = {}
    targets: list[str] = []
    for name in names:
        tensor = inlined.tensor(_tensor_of(source.outputs, name))
        node = _node(graph, "output", name, tensor)
        if name in found:
            raise InvalidInputError(f"outputs requires names that differ, got '{name}' twice")
        if not output_dtypes(node) or (":" not in name and (is_write(node) or node.op == "NoOp")):
            targets.append(node.name)
            continue
        _check_number(node, "output", name, tensor)
        found[name] = tensor
    return found, targets


def _find_inputs(source: Source, graph: Graph, names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        tensor = _tensor_of(source.inputs, name)
        node = _node(graph, "input", name, tensor)
        _check_number(node, "input", name, tensor)
        if name in found or tensor in found.values():
            raise InvalidInputError(f"inputs requires names that differ, got '{name}' twice")
        found[name] = tensor
    return found


def _tensor_of(known: dict[str, str] | None, name: str) -> str:
    """The tensor that a name means: the source's own name of an argument or result first, then a tensor's."""
    found = (known or {}).get(name) or (known or {}).get(name.removesuffix(":0"))
    return found or tensor_name(name)


def _node(graph: Graph, kind: str, name: str, tensor: str) -> NodeDef:
    node = graph.nodes.get(split_name(tensor)[0])
    if node is None:
        raise InvalidInputError(f"{kind}s requires tensors of the graph, got '{name}', which it does not hold")
    return node


def _check_number(node: NodeDef, kind: str, name: str, tensor: str) -> None:
    number, count = split_name(tensor)[1], len(output_dtypes(node))
    if op_def_of(node.op) is not None and number is not None and number >= count:
        raise InvalidInputError(
            f"{kind}s requires tensors of the graph, got '{name}' of {label(node)}, which has {count}"
        )


def _ends(graph: Graph) -> tuple[dict[str, str], list[str]]:
    """The tensors that nothing reads, and the assignments of a step."""
    read = {tensor_name(name) for node in graph.nodes.values() for name in node.input if not name.startswith("^")}
    bookkeeping = {node.name for node in graph.nodes.values() if node.op in _BOOKKEEPING}
    ends: dict[str, str] = {}
    targets: list[str] = []
    for node in graph.nodes.values():
        if is_write(node):
            if not graph.ancestors([node.name]) & bookkeeping and not _is_initializer(graph, node):
                targets.append(node.name)
        elif node.op not in (*REFERENCES, "Const", "Placeholder", "NoOp", "VarHandleOp", *_BOOKKEEPING):
            ends |= {
                f"{node.name}:{number}": f"{node.name}:{number}"
                for number, dtype in enumerate(output_dtypes(node))
                if dtype not in (_RESOURCE, _STRING) and f"{node.name}:{number}" not in read
            }
    # Of a node with several outputs, one that is read shows that the others are by-products.
    used = {split_name(name)[0] for name in read}
    return {name: tensor for name, tensor in ends.items() if split_name(tensor)[0] not in used}, targets


def _is_initializer(graph: Graph, node: NodeDef) -> bool:
    """Whether an assignment only sets a variable to a first value: nothing fed and no variable goes into it."""
    if node.op not in ("Assign", "AssignVariableOp"):
        return False
    target = split_name(node.input[0])[0]
    value = graph.ancestors([split_name(node.input[1])[0]])
    others = {graph.nodes[name].op for name in value if name != target}
    return not others & {"Placeholder", "ReadVariableOp", "VarHandleOp", *REFERENCES}
