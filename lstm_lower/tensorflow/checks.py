"""What an import refuses before it converts anything: each fault as one error that names its nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.tensorflow.graph import Graph, GraphDef, NodeDef, label, op_def_of, output_dtypes, split_name
from lstm_lower.tensorflow.state import REFERENCES

if TYPE_CHECKING:
    from lstm_lower.tensorflow.finish import Plan
    from lstm_lower.tensorflow.interface import Interface

VARIABLES = ("VarHandleOp", *REFERENCES)

_LOOPS = ("Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond")
_BRANCHES = ("Switch", "RefSwitch", "Merge", "RefMerge")
_STRING = tf.string.as_datatype_enum


def check_constants(graph_def: GraphDef) -> None:
    """Verifies that constants hold what they say; TensorFlow's optimiser ends the process where they do not.

    Raises:
        InvalidModelError: a constant has two dtypes, or its bytes do not fill its shape.
    """
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            if node.op == "Const":
                _check_constant(node)


def _check_constant(node: NodeDef) -> None:
    tensor, dtype = node.attr["value"].tensor, node.attr["dtype"].type
    if tensor.dtype != dtype:
        raise InvalidModelError(f"{label(node)}: value requires dtype {dtype}, as the node has it, got {tensor.dtype}")
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    count, given = math.prod(sizes), len(tensor.tensor_content)
    if min(sizes, default=0) < 0 or (given and given != count * tf.as_dtype(dtype).size):
        raise InvalidModelError(f"{label(node)}: value requires data of {sizes}, got {given} bytes")


def check_nodes(graph: Graph, needed: set[str], interface: Interface) -> None:
    """Refuses nodes that no import can take, all of them at once.

    Raises:
        UnsupportedOpError: unknown ops, control flow of TensorFlow 1, string tensors.
        InvalidInputError: an input is a constant.
    """
    for public, tensor in interface.inputs.items():
        node = graph.nodes[split_name(tensor)[0]]
        if node.op == "Const":
            raise InvalidInputError(
                f"input '{public}' requires a placeholder, a variable or a computed tensor, got {label(node)}, which "
                "would stay unconnected; weights='inputs' makes inputs of a frozen graph's weights"
            )
    # A cut may leave out what would be refused here.
    inside = {split_name(tensor)[0] for tensor in interface.inputs.values()}
    reasons = [
        f"{label(graph.nodes[name])}: {reason}"
        for name in graph.nodes
        if name in needed and name not in inside and (reason := _refusal(graph.nodes[name])) is not None
    ]
    if reasons:
        raise UnsupportedOpError("\n".join(reasons))


def _refusal(node: NodeDef) -> str | None:
    if op_def_of(node.op) is None:
        return "TensorFlow knows no such op"
    if node.op in _LOOPS:
        return "it is part of a loop of TensorFlow 1; trace it with control flow v2"
    if node.op in _BRANCHES:
        return "it is part of a branch of TensorFlow 1; trace it with control flow v2"
    if node.op not in ("Assert", "NoOp") and _STRING in output_dtypes(node):
        return "string tensors have no place in a training graph"
    return None


def input_type(graph_def: GraphDef, node: NodeDef, tensor: str) -> tuple[int, Any]:
    """Dtype and shape (a TensorShapeProto, or `None`) of a tensor that becomes an input.

    Raises:
        InvalidInputError: the node makes no such tensor.
        InvalidModelError: TensorFlow does not load the graph.
    """
    number, dtypes = split_name(tensor)[1] or 0, output_dtypes(node)
    if not 0 <= number < len(dtypes):
        raise InvalidInputError(f"an input requires a tensor that {label(node)} is known to make, got '{tensor}'")
    if node.op in ("Placeholder", *VARIABLES):
        shape = node.attr["shape"].shape
        # Old graphs say "any shape" with an empty one and no flag; so does a placeholder without the attribute.
        known = "shape" in node.attr and not shape.unknown_rank
        return int(node.attr["dtype"].type), shape if known else None
    try:
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            found = graph.get_tensor_by_name(tensor).shape
    except (ValueError, TypeError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidModelError(f"the graph requires to be one that TensorFlow loads, got: {reason}") from error
    return dtypes[number], found.as_proto() if found.rank is not None else None


def check_values(plan: Plan, weights: str) -> None:
    """Variables that are to be constants of the model must have values.

    Raises:
        InvalidInputError: some have none; all are named.
    """
    missing = [name for name, value in plan.values.items() if value is None]
    if weights == "initializers" and missing:
        raise InvalidInputError(
            f"weights='initializers' requires values of the variables, got a source without values of "
            f"{', '.join(missing)}; use weights='inputs', a SavedModel or a function"
        )


def check_connected(
    graph_def: GraphDef, asked: Mapping[str, str], fed: Mapping[str, str], outputs: Mapping[str, str]
) -> None:
    """Every input that the caller named must lead to an output.

    Raises:
        InvalidInputError: nothing asked for depends on some inputs; all are named.
    """
    reached = Graph(graph_def).ancestors(split_name(tensor)[0] for tensor in outputs.values())
    lost = [name for name in asked if split_name(fed[name])[0] not in reached]
    if lost:
        raise InvalidInputError(
            f"inputs requires tensors that an output depends on, got {', '.join(repr(name) for name in lost)}, "
            "which none does"
        )
