"""What lives in TensorFlow, graphs and functions, as sources; the only part of reading that needs it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from lstm_lower.checkpoints import messages
from lstm_lower.checkpoints.bundle import open_checkpoint
from lstm_lower.errors import InvalidInputError
from lstm_lower.tensorflow.files.variables import check_found, graph_variables
from lstm_lower.tensorflow.sources import Array, GraphSource, Variable, unique


def open_live(source: Any, specs: Sequence[Any] | None, checkpoint: Path | None) -> GraphSource:
    """Opens a graph, a concrete function, or a `tf.function`, which is traced.

    Raises:
        InvalidInputError: `specs` or `checkpoint` is not what it needs.
    """
    if hasattr(source, "get_concrete_function"):
        source = _trace(source, specs)
    if hasattr(source, "structured_input_signature") and hasattr(source, "graph"):
        if checkpoint is not None:
            raise InvalidInputError(
                "checkpoint requires a graph or a file as the source, got a function, which has values"
            )
        return from_function(source, _keras_paths())
    return _from_graph(source, checkpoint)


def _trace(function: Any, specs: Sequence[Any] | None) -> Any:
    try:
        return function.get_concrete_function(*(specs or ()))
    except TypeError as error:
        raise InvalidInputError(
            f"specs requires one tf.TensorSpec for each argument of the function: {error}"
        ) from error


def _from_graph(graph: Any, checkpoint: Path | None) -> GraphSource:
    graph_def = messages.as_ours(messages.GraphDef, graph.as_graph_def(add_shapes=True))
    # TensorFlow keeps, for a file, what its collections hold as texts; here they are the objects themselves.
    collections = messages.MetaGraphDef().collection_def
    for key in ("variables", "trainable_variables"):
        for variable in graph.get_collection(key):
            record = messages.VariableDef(variable_name=variable.name)
            collections[key].bytes_list.value.append(record.SerializeToString())
    opened = None if checkpoint is None else open_checkpoint(checkpoint)
    variables = graph_variables(graph_def, collections, opened)
    if opened is not None:
        check_found(variables.values(), opened)
    named = {key: [thing.name for thing in graph.get_collection(key)] for key in ("train_op", "losses")}
    return GraphSource(
        graph_def, "the graph", variables=variables, op_defs=_op_defs(graph_def),
        train_ops=named["train_op"], losses=named["losses"],
    )  # fmt: skip


def _op_defs(graph_def: Any) -> dict[str, Any]:
    bodies: Iterable[Any] = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    names = {node.op for nodes in bodies for node in nodes}
    known = {name: op_def_registry.get(name) for name in sorted(names)}
    return {name: messages.as_ours(messages.OpDefProto, found) for name, found in known.items() if found is not None}


def _keras_paths() -> dict[int, str]:
    """Identity of a handle -> the path of the variable of Keras 3 that holds it; Keras keeps no way back to them."""
    keras: Any = sys.modules.get("keras")
    kind = getattr(keras, "Variable", None)
    if kind is None or keras.backend.backend() != "tensorflow":
        return {}
    variables = (each for each in gc.get_objects() if issubclass(type(each), kind))
    held: Iterator[tuple[Any, Any]] = ((vars(each).get("_value"), vars(each).get("_path")) for each in variables)
    return {id(value.handle): str(path) for value, path in held if hasattr(value, "handle")}


def from_function(function: Any, names: Mapping[int, str]) -> GraphSource:
    """A concrete function as a source.

    Args:
        function: the function.
        names: identity of a variable's handle -> its name; others have TensorFlow's.

    Raises:
        InvalidInputError: its variables do not live any more.
    """
    graph = function.graph
    handles = {id(variable.handle): variable for variable in _held(function)}
    trainable = {id(variable.handle) for variable in function.trainable_variables}
    variables: dict[str, Variable] = {}
    constants: dict[str, Array] = {}
    captured = set()
    taken: set[str] = set()
    for outer, inner in graph.captures:
        node = inner.op.name
        captured.add(inner.name)
        if id(outer) in handles:
            variable = handles[id(outer)]
            name = unique(names.get(id(outer), variable.name.removesuffix(":0")), taken)
            variables[node] = _variable(name, np.asarray(variable.numpy()), id(outer) in trainable, variable.dtype)
        elif inner.dtype == tf.resource:
            # A function that only passes a variable's handle on, to an optimizer's op, does not know the variable.
            value = _read(outer)
            if value is not None:
                name = unique(names.get(id(outer), node), taken)
                variables[node] = _variable(name, value.numpy(), False, value.dtype)  # noqa: FBT003
        elif hasattr(outer, "numpy") and outer.dtype != tf.variant:
            constants[node] = np.asarray(outer.numpy())
    inputs: dict[str, str] = {}
    arguments: set[str] = set()
    for tensor in graph.inputs:
        if tensor.name not in captured:
            inputs[unique(_argument_name(tensor), arguments)] = tensor.name
    # Behind its results stand those that gradients outside of it have read.
    outputs = dict(zip(_output_names(function.structured_outputs), (x.name for x in function.outputs), strict=False))
    graph_def = messages.as_ours(messages.GraphDef, graph.as_graph_def(add_shapes=True))
    name = function.name.decode() if isinstance(function.name, bytes) else function.name
    return GraphSource(
        graph_def, f"function '{name}'", inputs, outputs, variables, constants, side_effects=True, suffix="",
        op_defs=_op_defs(graph_def),
    )  # fmt: skip


def _held(function: Any) -> Sequence[Any]:
    """The variables of a function, which live as long as the object that they belong to."""
    try:
        return tuple(function.variables)
    except AssertionError as error:
        what = "a function whose variables live: keep what holds them, such as what tf.saved_model.load returns"
        raise InvalidInputError(f"source requires {what}, got one without") from error


def _variable(name: str, value: Array, trainable: bool, dtype: Any) -> Variable:
    return Variable(name, value, trainable, np.shape(value), dtype.base_dtype.as_datatype_enum)


def _read(handle: Any) -> Any:
    """The value behind a resource handle, or `None` when it is no variable's."""
    data = getattr(handle, "_handle_data", None)
    if data is None or len(data.shape_and_type) != 1 or not hasattr(handle, "numpy"):
        return None
    try:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=data.shape_and_type[0].dtype)
    except tf.errors.OpError:
        return None


def _argument_name(tensor: Any) -> str:
    """The user's name of an argument, which the graph may have changed to keep names unique."""
    try:
        name: bytes = tensor.op.get_attr("_user_specified_name")
    except ValueError:
        return str(tensor.op.name)
    return name.decode()


def _output_names(structure: Any) -> list[str]:
    """Names of a function's results, in their order: keys or fields, else `output_0`, `output_1`, ..."""
    if hasattr(structure, "_asdict"):
        return list(structure._fields)
    flat = [result for result in tf.nest.flatten(structure) if result is not None]
    if isinstance(structure, Mapping) and len(structure) == len(flat):
        return sorted(str(key) for key in structure)
    return [f"output_{number}" for number in range(len(flat))]
