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

from lstm_lower.checkpoints import messages, values
from lstm_lower.errors import InvalidInputError
from lstm_lower.extras import needed_by
from lstm_lower.tensorflow.comparison_graphs import all_nodes, widen
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.pipelines import is_source
from lstm_lower.tensorflow.files.views import View, data_inputs
from lstm_lower.tensorflow.graph import nodes_by_name, split_name
from lstm_lower.tensorflow.interface import Resolver
from lstm_lower.tensorflow.source_preparation import expose_sources, lift_frozen_weights
from lstm_lower.tensorflow.sources import Array, GraphSource
from lstm_lower.tensorflow.state import REFERENCES

# Letters of the reason that TensorFlow gives.
_REASON = 120


@dataclasses.dataclass(frozen=True)
class SparseFeed:
    """Inputs that together are a sparse tensor, by their public names; `None` for what is no input.

    Attributes:
        indices: of its entries, [N, rank].
        values: of its entries, [N].
        shape: its sizes, [rank].
    """

    indices: str | None
    values: str | None
    shape: str | None


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


class TensorFlowRefusedError(InvalidInputError):
    """TensorFlow does not run a graph.

    Attributes:
        reason: the part of its message that says what is wrong, in a few words.
    """

    def __init__(self, label: str, text: str) -> None:
        way = "" if "No OpKernel" in text else "; feeds may be given by --inputs FILE.npz, sizes by --dim and --shapes"
        super().__init__(f"{label}: a graph and feeds that TensorFlow runs are required, got {text:.500}{way}")
        # Before it stands where the node was made, behind it the node, its definition and what else there is.
        said = re.sub(r"^.*\bNode: '[^']*' ", "", text)
        self.reason = re.split(r" used by | \[\[|\{\{| ?; ?|: \[| \(defined", said)[0][:_REASON]


def original(source: GraphSource, feeds: Mapping[str, Array], outputs: Sequence[str] | None) -> Original:
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


def sparse_feeds(graph: Original) -> list[SparseFeed]:
    """The sparse tensors that are fed: operands of one op whose names in TensorFlow's registry say so.

    Raises:
        InvalidInputError: TensorFlow is not installed.
    """
    with needed_by("a comparison with TensorFlow"):
        from tensorflow.python.framework import op_def_registry
    view = View(graph.graph_def, OpTable(graph.graph_def.library.function, {}))
    publics = {placeholder: public for public, placeholder in graph.inputs.items()}
    found: dict[SparseFeed, None] = {}
    for node in graph.graph_def.node:
        op_def = op_def_registry.get(node.op)
        names = [] if op_def is None else [name for arg in op_def.input_arg for name in _numbered(arg, node)]
        operands = {name: publics.get(_fed(view, x)) for name, x in zip(names, data_inputs(node), strict=False)}
        for name in names:
            prefix, is_indices, number = name.partition("indices")
            if is_indices and f"{prefix}values{number}" in operands:
                spelled = [f"{before}shape{number}" for before in (prefix, f"{prefix}dense_", "output_")]
                shape = next((operands[x] for x in spelled if operands.get(x) is not None), None)
                sparse = SparseFeed(operands[name], operands[f"{prefix}values{number}"], shape)
                found |= {sparse: None} if sparse.indices or sparse.shape else {}
    return list(found)


def _fed(view: View, tensor: str) -> str:
    """The node that a tensor comes from, by way of ops that hand it on or convert its numbers."""
    name = view.origin(tensor)
    node = view.nodes.get(name)
    return _fed(view, node.input[0]) if node is not None and node.op == "Cast" else name


def _numbered(arg: Any, node: Any) -> list[str]:
    """Names of the operands of an argument, which is a list where an attribute says how many there are."""
    if not arg.number_attr:
        return [arg.name]
    return [f"{arg.name}{number}" for number in range(node.attr[arg.number_attr].i)]


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


def version() -> str:
    """The version of the TensorFlow that is installed."""
    with needed_by("a comparison with TensorFlow"):
        import tensorflow as tf
    return str(tf.__version__)


class Runner:
    """A graph in a session of TensorFlow's, which runs it from any state on any feeds.

    Attributes:
        graph: the graph.
    """

    def __init__(self, tf: Any, graph: Original, session: Any) -> None:
        self.graph = graph
        self._tf = tf
        self._session = session
        v1, own = tf.compat.v1, session.graph
        self._reads: dict[str, Any] = {}
        self._assigns: list[Any] = []
        self._placed: list[tuple[Any, str]] = []
        for name, nodes in graph.variables.items():
            for node in nodes:
                variable = own.get_tensor_by_name(f"{node}:0")
                dtype = tf.as_dtype(own.get_operation_by_name(node).get_attr("dtype")).base_dtype
                value = v1.placeholder(dtype)
                if variable.dtype == tf.resource:
                    self._assigns.append(tf.raw_ops.AssignVariableOp(resource=variable, value=value))
                    self._reads[name] = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
                else:
                    self._assigns.append(tf.raw_ops.Assign(ref=variable, value=value, validate_shape=False).op)
                    self._reads[name] = variable
                self._placed.append((value, name))
        self._targets = [own.get_operation_by_name(name) for name in graph.targets]
        self._constants = dict(self._fed(name, array) for name, array in graph.constants.items())

    def _fed(self, tensor: str, array: Array) -> tuple[Any, Array]:
        found = self._session.graph.get_tensor_by_name(f"{tensor}:0")
        return found, array.astype(found.dtype.base_dtype.as_numpy_dtype)

    def run(
        self, feeds: Mapping[str, Array], start: Mapping[str, Array], count: int
    ) -> list[tuple[dict[str, Array], dict[str, Array]]]:
        """Runs the graph, each time from the state that the run before left.

        Args:
            feeds: public name -> array; a graph in float64 takes the same values.
            start: name of a variable -> its first value.
            count: number of runs.

        Returns:
            The outputs of each run, and the variables after it.

        Raises:
            RefusedError: TensorFlow fails.
        """
        with _explained(self._tf, self.graph):
            first = {value: start[name].astype(value.dtype.as_numpy_dtype) for value, name in self._placed}
            # In one run: TensorFlow looks at the whole graph again in each run of something new.
            self._session.run(self._assigns, first)
            fed = self._constants | dict(self._fed(self.graph.inputs[name], array) for name, array in feeds.items())
            results = []
            for _ in range(count):
                outputs = dict(self._session.run([self.graph.outputs, self._targets], fed)[0])
                results.append((outputs, dict(self._session.run(self._reads))))
            return results


@contextlib.contextmanager
def opened(graph: Original) -> Iterator[Runner]:
    """Opens a session with a graph.

    Raises:
        RefusedError: TensorFlow does not know an op, or does not take the graph.
        InvalidInputError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with needed_by("a comparison with TensorFlow"):
        import tensorflow as tf
    v1 = tf.compat.v1
    with tf.Graph().as_default() as own, v1.Session(graph=own) as session:
        with _explained(tf, graph):
            message = v1.GraphDef.FromString(graph.graph_def.SerializeToString())
            v1.import_graph_def(message, name="")
            runner = Runner(tf, graph, session)
        yield runner


@contextlib.contextmanager
def _explained(tf: Any, graph: Original) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
        text = " ".join(getattr(error, "message", str(error)).split())
        raise TensorFlowRefusedError(graph.label, text) from error
