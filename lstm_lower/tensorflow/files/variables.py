"""The variables of a graph: what the graph, its collections and a checkpoint know of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

from lstm_lower import dims
from lstm_lower.checkpoints import messages, values
from lstm_lower.checkpoints.bundle import Checkpoint, box_shape, full_names
from lstm_lower.dtypes import is_floating
from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.tensorflow.sources import Shape, Variable

VARIABLES = ("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp")

# Where a saver's op lists the names of what it saves, which slices it saves, and what.
_SAVERS = {"SaveV2": (1, 2, 3), "SaveSlices": (1, 2, 3), "Save": (1, None, 2)}

# Ops that hand a variable or its value on.
_PASSING = ("Identity", "ReadVariableOp", "RefIdentity", "DisableCopyOnRead")


def graph_variables(graph_def: Any, collections: Any, checkpoint: Checkpoint | None) -> dict[str, Variable]:
    """The variables of a graph by node.

    Args:
        graph_def: the graph.
        collections: name -> CollectionDef, of a MetaGraphDef; empty for a bare graph.
        checkpoint: where their values are, if anywhere.

    Raises:
        InvalidModelError: a record of variables is damaged.
        InvalidInputError: the checkpoint is of other variables.
    """
    nodes = {node.name: node for node in graph_def.node if node.op in VARIABLES}
    trained = _trained(graph_def, nodes, collections)
    reading = {} if checkpoint is None else _Reading(checkpoint, graph_def, nodes, collections).found()
    found = {}
    for name, node in nodes.items():
        dtype = values.base_dtype(messages.attribute(node, "dtype").type)
        shape = values.shape_of(node.attr["shape"].shape) if "shape" in node.attr else None
        value = reading.get(name)
        if value is not None:
            shape = value.check(name, dtype, shape)
        found[name] = Variable(name, None, name in trained, shape, dtype)
        if value is not None:
            found[name] = Variable(name, value.read, name in trained, shape, dtype, value.key, value.box)
    return found


def check_found(variables: Collection[Variable], checkpoint: Checkpoint) -> None:
    """Makes sure that a checkpoint which was asked for is one of these variables.

    Raises:
        InvalidInputError: it has the value of none.
    """
    names = [variable.name for variable in variables if not variable.has_value]
    if names and not any(variable.has_value for variable in variables):
        got = f"{checkpoint.path} without any: neither {some(names)}"
        raise InvalidInputError(f"checkpoint requires values of the graph's variables, got {got}")


def variable_defs(collections: Any, key: str) -> Iterator[Any]:
    """The VariableDefs of a collection.

    Raises:
        InvalidModelError: one is damaged.
    """
    if key in collections:
        for content in collections[key].bytes_list.value:
            yield messages.parse(messages.VariableDef, content, f"collection {key}")


def _node_of(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _trained(graph_def: Any, nodes: dict[str, Any], collections: Any) -> set[str]:
    """Names of the variables that are trained."""
    if "trainable_variables" in collections:
        return {_node_of(record.variable_name) for record in variable_defs(collections, "trainable_variables")}
    if "variables" in collections:
        return set()
    # What an optimizer's op updates first is what it trains; the others are its slots.
    updated = {
        _node_of(node.input[0])
        for node in graph_def.node
        if node.op.removeprefix("Resource").removeprefix("Sparse").startswith("Apply") and node.input
    }
    updated &= nodes.keys()
    return updated or {name for name, node in nodes.items() if _is_float(messages.attribute(node, "dtype").type)}


def _is_float(dtype: int) -> bool:
    found = values.onnx_dtype(dtype)
    return is_floating(found)


class _Value:
    """A variable's place in a checkpoint: a tensor, or a slice of one."""

    def __init__(self, checkpoint: Checkpoint, key: str, box: tuple[slice, ...] | None) -> None:
        self.checkpoint = checkpoint
        self.key = key
        self.box = box
        self.stored = checkpoint.tensors[key]

    def read(self) -> values.Array:
        whole = self.checkpoint.read(self.key)
        return whole if self.box is None else whole[self.box].copy()

    def check(self, name: str, dtype: int, shape: Shape | None) -> Shape:
        """The sizes of the value, which the variable must be able to take."""
        sizes = self.stored.shape if self.box is None else box_shape(self.box)
        check_fits(self.checkpoint, name, (dtype, shape), (self.stored.dtype, sizes))
        return sizes


Type = tuple[int, Shape | None]


def check_fits(checkpoint: Checkpoint, name: str, wanted: Type, stored: Type) -> None:
    """Compares dtype and shape of a variable with those of its value.

    Raises:
        InvalidInputError: the checkpoint holds something else under the variable's name.
    """
    if not dims.agree(wanted[1], stored[1]) or wanted[0] not in (0, stored[0]):
        what, got = _type_text(wanted), _type_text(stored)
        raise InvalidInputError(f"checkpoint requires {what} for variable '{name}', got {got} in {checkpoint.path}")


def _type_text(type_: Type) -> str:
    return f"{values.dtype_text(type_[0])} of shape {'any' if type_[1] is None else list(type_[1])}"


class _Reading:
    """Finds the variables of a graph in a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, graph_def: Any, nodes: dict[str, Any], collections: Any) -> None:
        self.checkpoint = checkpoint
        self.graph_def = graph_def
        self.nodes = nodes
        self.collections = collections

    def found(self) -> dict[str, _Value]:
        """Variable -> its value: under its own name, or under the one that the graph's saver, or a record, gives it."""
        found: dict[str, _Value] = {}
        for search in (self._named, self._saved, self._sliced, self._objects):
            for name, value in search():
                if name in self.nodes:
                    found.setdefault(name, value)
        return found

    def _value(self, key: str, box: Callable[[tuple[int, ...]], tuple[slice, ...]] | None = None) -> _Value | None:
        stored = self.checkpoint.tensors.get(key)
        if stored is None:
            return None
        return _Value(self.checkpoint, key, None if box is None else box(stored.shape))

    def _saved(self) -> Iterator[tuple[str, _Value]]:
        by_name = {node.name: node for node in self.graph_def.node}
        for node in self.graph_def.node:
            if node.op not in _SAVERS:
                continue
            at, slices_at, first = _SAVERS[node.op]
            tensors = [name for name in node.input if not name.startswith("^")]
            names = _texts(by_name, tensors, at)
            slices = [""] * len(names) if slices_at is None else _texts(by_name, tensors, slices_at)
            if not len(names) == len(slices) == len(tensors) - first:
                continue
            for key, spec, tensor in zip(names, slices, tensors[first:], strict=True):
                value = self._value(key, functools.partial(_box_of_text, spec) if spec else None)
                if value is not None:
                    yield _origin(by_name, tensor), value

    def _named(self) -> Iterator[tuple[str, _Value]]:
        for name in self.nodes:
            value = self._value(name)
            if value is not None:
                yield name, value

    def _sliced(self) -> Iterator[tuple[str, _Value]]:
        for record in variable_defs(self.collections, "variables"):
            if not record.HasField("save_slice_info_def"):
                continue
            info = record.save_slice_info_def
            value = self._value(info.full_name, functools.partial(_box_of_sizes, info.var_offset, info.var_shape))
            if value is not None:
                yield _node_of(record.variable_name), value

    def _objects(self) -> Iterator[tuple[str, _Value]]:
        for name, key in full_names(self.checkpoint):
            value = self._value(key)
            if value is not None:
                yield name, value


def _texts(by_name: dict[str, Any], inputs: list[str], position: int) -> list[str]:
    """The texts of a constant operand; none where it is no constant."""
    node = by_name.get(_node_of(inputs[position])) if position < len(inputs) else None
    if node is None or node.op != "Const":
        return []
    found = values.tensor_value(messages.attribute(node, "value").tensor, f"Const '{node.name}'")
    return [text.decode("utf-8", "backslashreplace") for text in found.ravel() if isinstance(text, bytes)]


def _origin(by_name: dict[str, Any], tensor: str) -> str:
    """The node whose value comes through ops that only hand it on."""
    name = _node_of(tensor)
    for _ in range(16):
        node = by_name.get(name)
        if node is None or node.op not in _PASSING or not node.input:
            break
        name = _node_of(node.input[0])
    return name


def _box_of_sizes(offsets: Any, sizes: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    if not len(offsets) == len(sizes) == len(shape):
        raise InvalidModelError(f"a slice of a variable requires rank {len(shape)}, got {list(offsets)}, {list(sizes)}")
    box = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
    if any(not 0 <= part.start <= part.stop <= size for part, size in zip(box, shape, strict=True)):
        raise InvalidModelError(f"a slice of a variable must lie in {list(shape)}, got {list(offsets)}, {list(sizes)}")
    return box


def _box_of_text(spec: str, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """A slice as savers write it: the whole's sizes, then where it begins and how long it is, `10 4 0,5:-`."""
    try:
        parts = [part.split(",") for part in spec.rpartition(" ")[2].split(":")]
        offsets = [0 if part == ["-"] else int(part[0]) for part in parts]
        sizes = [whole if part == ["-"] else int(part[1]) for part, whole in zip(parts, shape, strict=True)]
    except (ValueError, IndexError) as error:
        raise InvalidModelError(f"a slice of a variable requires the form '10 4 0,5:-', got '{spec:.80}'") from error
    return _box_of_sizes(offsets, sizes, shape)
