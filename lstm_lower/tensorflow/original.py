"""A graph run by TensorFlow itself, to compare an import with."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by
from lstm_lower.tensorflow.exposed import expose_sources
from lstm_lower.tensorflow.files import messages, values
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.pipelines import is_source
from lstm_lower.tensorflow.frozen import lift_frozen_weights
from lstm_lower.tensorflow.graph import nodes_by_name, split_name
from lstm_lower.tensorflow.interface import Resolver
from lstm_lower.tensorflow.sources import Array, Source
from lstm_lower.tensorflow.state import REFERENCES
from lstm_lower.tensorflow.widening import all_nodes, widen

# Letters of the reason that TensorFlow gives.
_REASON = 120


@dataclasses.dataclass(frozen=True)
class Original:
    """The part of a graph that some outputs need, cut at its inputs.

    Attributes:
        graph_def: that part; its variables are ops of variables even where the source had something else there.
        inputs: public name -> placeholder.
        outputs: public name -> tensor.
        targets: nodes that must run.
        variables: name of a variable -> the nodes that stand for it.
        constants: captured tensor -> its value.
        label: the source for messages.
    """

    graph_def: Any
    inputs: dict[str, str]
    outputs: dict[str, str]
    targets: list[str]
    variables: dict[str, list[str]]
    constants: dict[str, Array]
    label: str


class RefusedError(InvalidInputError):
    """TensorFlow does not run a graph.

    Attributes:
        reason: the part of its message that says what is wrong, in a few words.
    """

    def __init__(self, label: str, text: str) -> None:
        super().__init__(f"{label}: a graph and feeds that TensorFlow runs are required, got {text:.500}")
        # Before it stands where the node was made, behind it the node, its definition and what else there is.
        said = re.sub(r"^.*\bNode: '[^']*' ", "", text)
        self.reason = re.split(r" used by | \[\[|\{\{| ?; ?|: \[| \(defined", said)[0][:_REASON]


def original(source: Source, feeds: Mapping[str, Array], outputs: Sequence[str] | None) -> Original:
    """Cuts the part out of a source that TensorFlow is to run.

    Args:
        source: what was imported.
        feeds: the imported model's inputs of data, as they are fed: public name -> array.
        outputs: what was imported of it, as `from_tensorflow` takes it.

    Raises:
        InvalidInputError, InvalidModelError: as `from_tensorflow`'s.
    """
    lift_frozen_weights(source, read=False)
    expose_sources(source)
    graph_def = source.graph_def
    nodes = nodes_by_name(graph_def.node)
    table = OpTable(graph_def.library.function, source.op_defs)
    resolver = Resolver(source, nodes, table)
    interface = resolver.resolve(list(feeds), outputs)
    placeholders = {tensor: f"input/{number}" for number, tensor in enumerate((interface.inputs or {}).values())}
    kept = _needed(nodes, [*interface.outputs.values(), *interface.targets], placeholders)
    cut = messages.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for tensor, array in zip(placeholders, feeds.values(), strict=True):
        node = cut.node.add(name=placeholders[tensor], op="Placeholder")
        node.attr["dtype"].type = _number(array)
        node.attr["shape"].shape.unknown_rank = True
    for node in graph_def.node:
        if node.name in kept:
            cut.node.append(_copy(node, kept, placeholders))
    variables: dict[str, list[str]] = {}
    for node in cut.node:
        if node.name in source.variables:
            _as_variable(node, source.variables[node.name].dtype)
            variables.setdefault(source.variables[node.name].name, []).append(node.name)
    inputs = {public: placeholders[tensor] for public, tensor in (interface.inputs or {}).items()}
    results = {public: placeholders.get(tensor, tensor) for public, tensor in interface.outputs.items()}
    constants = {name: value for name, value in source.constants.items() if name in kept}
    return Original(cut, inputs, results, interface.targets, variables, constants, source.label)


def _needed(nodes: Mapping[str, Any], roots: Sequence[str], placeholders: Mapping[str, str]) -> set[str]:
    """Names of the nodes that TensorFlow runs, but for those that are only waited for and bring data."""
    cut = {split_name(tensor)[0] for tensor in placeholders}
    found: set[str] = set()
    pending = [name for name in roots if name not in placeholders]
    while pending:
        source, number = split_name(pending.pop())
        waits = number is None and (source in cut or is_source(nodes[source].op))
        if not waits and source not in found and f"{source}:{number}" not in placeholders:
            found.add(source)
            pending += nodes[source].input
    return found


def _number(array: Array) -> int:
    return values.tensorflow_dtype(ir.DataType.from_numpy(array.dtype))


def _copy(node: Any, kept: set[str], placeholders: Mapping[str, str]) -> Any:
    """The node, reading from placeholders where the graph is cut, wherever it ran."""
    copied = messages.NodeDef(name=node.name, op=node.op)
    for name in node.input:
        source, number = split_name(name)
        if number is None:
            # A source may be there for another tensor of it, and need not be waited for.
            copied.input.extend([name] if source in kept else [])
        else:
            copied.input.append(placeholders.get(f"{source}:{number}", name))
    for key, value in node.attr.items():
        if not key.startswith("_"):
            copied.attr[key].CopyFrom(value)
    return copied


def _as_variable(node: Any, dtype: int) -> None:
    """Makes a variable of what freezing or a function put in its place: a constant, or an argument."""
    if node.op in (*REFERENCES, "VarHandleOp"):
        return
    is_argument = node.attr["dtype"].type == values.RESOURCE
    node.op = "VarHandleOp" if is_argument else "VariableV2"
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.unknown_rank = True
    node.attr["shared_name"].s = node.name.encode()


def widened(graph: Original) -> Original:
    """The same graph in float64 wherever it was float32."""
    graph_def = messages.GraphDef()
    graph_def.CopyFrom(graph.graph_def)
    widen(graph_def)
    constants = {name: _wide(array) for name, array in graph.constants.items()}
    return dataclasses.replace(graph, graph_def=graph_def, constants=constants)


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def reseeded(graph: Original) -> Original | None:
    """The same graph with other draws of random numbers; `None` where it has no draws that a seed decides."""
    graph_def = messages.GraphDef()
    graph_def.CopyFrom(graph.graph_def)
    drawing = [node for node in all_nodes(graph_def) if "seed" in node.attr or "seed2" in node.attr]
    for number, node in enumerate(drawing):
        node.attr["seed"].i, node.attr["seed2"].i = 87654321, number + 1
    return dataclasses.replace(graph, graph_def=graph_def) if drawing else None


def run(
    graph: Original, feeds: Mapping[str, Array], start: Mapping[str, Array], count: int
) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """Runs a graph in a session of its own.

    Args:
        graph: the graph; one in float64 takes the same values.
        feeds: public name -> array.
        start: name of a variable -> its first value.
        count: number of runs.

    Returns:
        The outputs of each run, and the variables after the last.

    Raises:
        RefusedError: TensorFlow does not know an op, or fails.
        InvalidInputError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with needed_by("a comparison with TensorFlow"):
        import tensorflow as tf
    v1 = tf.compat.v1
    with _explained(tf, graph), tf.Graph().as_default() as own, v1.Session(graph=own) as session:
        message = v1.GraphDef.FromString(graph.graph_def.SerializeToString())
        v1.import_graph_def(message, name="")

        def fitted(tensor: str, array: Array) -> tuple[Any, Array]:
            found = own.get_tensor_by_name(f"{tensor}:0")
            return found, array.astype(found.dtype.base_dtype.as_numpy_dtype)

        reads, assigns, first = {}, [], {}
        for name, nodes in graph.variables.items():
            for node in nodes:
                variable = own.get_tensor_by_name(f"{node}:0")
                is_resource = variable.dtype == tf.resource
                dtype = tf.as_dtype(own.get_operation_by_name(node).get_attr("dtype")).base_dtype
                value = v1.placeholder(dtype)
                if is_resource:
                    assigns.append(tf.raw_ops.AssignVariableOp(resource=variable, value=value))
                    reads[name] = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
                else:
                    assigns.append(tf.raw_ops.Assign(ref=variable, value=value, validate_shape=False).op)
                    reads[name] = variable
                first[value] = start[name].astype(dtype.as_numpy_dtype)
        # In one run: TensorFlow looks at the whole graph again in each run of something new.
        session.run(assigns, first)
        fed = dict(fitted(graph.inputs[name], array) for name, array in feeds.items())
        fed |= dict(fitted(name, array) for name, array in graph.constants.items())
        targets = [own.get_operation_by_name(name) for name in graph.targets]
        results = [dict(session.run([graph.outputs, targets], fed)[0]) for _ in range(count)]
        return results, session.run(reads)


@contextlib.contextmanager
def _explained(tf: Any, graph: Original) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
        text = " ".join(getattr(error, "message", str(error)).split())
        raise RefusedError(graph.label, text) from error
