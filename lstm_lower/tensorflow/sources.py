"""Where a TensorFlow graph comes from: GraphDefs, their files, SavedModels, concrete and traced functions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google.protobuf.message
import google.protobuf.text_format
import numpy as np
import tensorflow as tf

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.tensorflow.graph import GraphDef

Array = np.ndarray[Any, Any]


@dataclasses.dataclass
class Variable:
    """State that outlives a run.

    Attributes:
        name: TensorFlow's name of it, or a number behind it where two share a name.
        value: its value now, or `None` where the source holds none.
        trainable: whether an optimizer would train it.
    """

    name: str
    value: Array | None = None
    trainable: bool = True


@dataclasses.dataclass
class Source:
    """A graph and what belongs to it.

    Attributes:
        graph_def: the graph with its function library.
        label: the source for messages.
        inputs: public name -> tensor, in order; `None` when the source does not say.
        outputs: the same for outputs.
        variables: node that stands for a variable's resource -> variable.
        constants: node that stands for a captured tensor -> its value.
        side_effects: whether every assignment of the graph belongs to a run; otherwise only those that an output
            depends on do.
        suffix: what public names of tensors end in: `:0` where the source knows tensors by their full names.
    """

    graph_def: GraphDef
    label: str
    inputs: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    variables: dict[str, Variable] = dataclasses.field(default_factory=dict)
    constants: dict[str, Array] = dataclasses.field(default_factory=dict)
    side_effects: bool = False
    suffix: str = ":0"


def open_source(source: Any, *, signature: str | None, specs: Sequence[Any] | None) -> Source:
    """Opens any of the sources that `from_tensorflow` takes.

    Raises:
        InvalidModelError: a file is broken, or a SavedModel has no such signature.
        InvalidInputError: `source`, `signature` or `specs` is not what the source needs.
    """
    if signature is not None and not isinstance(source, (str, os.PathLike)):
        raise InvalidInputError("signature requires a SavedModel as the source, got " + type(source).__name__)
    if hasattr(source, "get_concrete_function") and not isinstance(source, (str, os.PathLike)):
        return _from_function(_trace(source, specs))
    if specs is not None:
        raise InvalidInputError(f"specs requires a tf.function as the source, got {type(source).__name__}")
    if isinstance(source, tf.compat.v1.GraphDef):
        return Source(source, "the GraphDef")
    if isinstance(source, tf.Graph) and not hasattr(source, "structured_outputs"):
        return Source(source.as_graph_def(), "the graph")
    if hasattr(source, "structured_input_signature") and hasattr(source, "graph"):
        return _from_function(source)
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source), signature)
    raise InvalidInputError(
        "source requires a GraphDef, a .pb or .pbtxt file, a SavedModel, a ConcreteFunction or a tf.function, "
        f"got {type(source).__name__}"
    )


def _trace(function: Any, specs: Sequence[Any] | None) -> Any:
    try:
        return function.get_concrete_function(*(specs or ()))
    except TypeError as error:
        raise InvalidInputError(
            f"specs requires one tf.TensorSpec for each argument of the function: {error}"
        ) from error


def _from_path(path: Path, signature: str | None) -> Source:
    if path.is_file() and path.name in ("saved_model.pb", "saved_model.pbtxt"):
        path = path.parent
    if path.is_dir():
        return _from_saved_model(path, signature)
    if signature is not None:
        raise InvalidInputError(f"signature requires a SavedModel as the source, got the file {path}")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    graph_def = tf.compat.v1.GraphDef()
    try:
        if path.suffix in (".pbtxt", ".txt"):
            google.protobuf.text_format.Parse(path.read_text(encoding="utf-8"), graph_def)
        else:
            graph_def.ParseFromString(path.read_bytes())
    except (google.protobuf.message.DecodeError, google.protobuf.text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"{path}: a GraphDef is required, got a file that is none ({error})") from error
    if not graph_def.node:
        raise InvalidModelError(f"{path}: a GraphDef is required, got a file without any node")
    return Source(graph_def, str(path))


def _from_saved_model(path: Path, signature: str | None) -> Source:
    if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise InvalidModelError(f"{path}: a SavedModel is required, got a folder without saved_model.pb")
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidModelError(f"{path}: a SavedModel is required, got one that does not load: {reason}") from error
    names = sorted(loaded.signatures)
    if signature is None:
        usual = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        signature = usual if usual in names else names[0] if len(names) == 1 else None
    if signature is None or signature not in names:
        got = "none" if signature is None else f"'{signature}'"
        raise InvalidInputError(f"signature requires one of {', '.join(names) or 'none at all'} of {path}, got {got}")
    source = _from_function(loaded.signatures[signature])
    # The variables live as long as what holds them.
    source.label = f"{path} ({signature})"
    return source


def _from_function(function: Any) -> Source:
    graph = function.graph
    handles = {id(variable.handle): variable for variable in function.variables}
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
            name = _unique(variable.name.removesuffix(":0"), taken)
            variables[node] = Variable(name, np.asarray(variable.numpy()), id(outer) in trainable)
        elif inner.dtype == tf.resource:
            # A function that only passes a variable's handle on, to an optimizer's op, does not know the variable.
            value = _read(outer)
            if value is not None:
                variables[node] = Variable(_unique(node, taken), value, trainable=False)
        elif hasattr(outer, "numpy"):
            constants[node] = np.asarray(outer.numpy())
    inputs: dict[str, str] = {}
    for tensor in graph.inputs:
        if tensor.name not in captured:
            inputs[_unique(_argument_name(tensor), set(inputs))] = tensor.name
    outputs = dict(zip(_output_names(function.structured_outputs), (x.name for x in function.outputs), strict=True))
    return Source(
        graph.as_graph_def(add_shapes=True), f"function '{function.name}'", inputs, outputs, variables, constants,
        side_effects=True, suffix="",
    )  # fmt: skip


def _read(handle: Any) -> Array | None:
    """The value behind a resource handle, or `None` when it is no variable's."""
    data = getattr(handle, "_handle_data", None)
    if data is None or len(data.shape_and_type) != 1 or not hasattr(handle, "numpy"):
        return None
    try:
        return np.asarray(tf.raw_ops.ReadVariableOp(resource=handle, dtype=data.shape_and_type[0].dtype).numpy())
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


def _unique(name: str, taken: set[str]) -> str:
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique
