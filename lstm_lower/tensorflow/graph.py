"""GraphDefs at arm's length: tensor names, order, and nodes written as arithmetic."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from lstm_lower.errors import InvalidModelError

NodeDef = Any
GraphDef = Any
OpDefProto = Any


def split_name(name: str) -> tuple[str, int | None]:
    """Node and output number of an input as a NodeDef spells it; the number of a control input `^node` is `None`.

    Raises:
        InvalidModelError: what follows the node is no number.
    """
    if name.startswith("^"):
        return name[1:], None
    node, _, number = name.partition(":")
    try:
        return node, int(number or 0)
    except ValueError as error:
        raise InvalidModelError(f"an input requires the form node or node:number, got '{name:.80}'") from error


def tensor_name(name: str) -> str:
    """The full name, `node:0`, of an input as a NodeDef spells it."""
    node, number = split_name(name)
    return f"{node}:{number}"


def _short(name: str) -> str:
    """The spelling of an input in a NodeDef, without `:0`; Grappler writes broken control inputs for the longer one."""
    return name.removesuffix(":0")


def op_def_of(op: str) -> OpDefProto | None:
    """TensorFlow's definition of an op, or `None` when it knows none of that name."""
    return op_def_registry.get(op)


def label(node: NodeDef) -> str:
    """A node for messages: `MatMul 'dense/MatMul'`."""
    return f"{node.op} '{node.name}'"


def argument_sizes(node: NodeDef, arguments: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Name, dtype and number of tensors of each of an op's arguments (or results) on a node; dtype 0 when mixed."""
    sizes = []
    for argument in arguments:
        count = 1
        dtype = argument.type or (node.attr[argument.type_attr].type if argument.type_attr else 0)
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        sizes.append((argument.name, dtype, count))
    return sizes


def output_dtypes(node: NodeDef) -> list[int]:
    """The DataType of each output of a node."""
    op_def = op_def_of(node.op)
    if op_def is None:
        return []
    dtypes: list[int] = []
    for argument, (_, dtype, count) in zip(op_def.output_arg, argument_sizes(node, op_def.output_arg), strict=True):
        if argument.type_list_attr:
            dtypes += list(node.attr[argument.type_list_attr].list.type)
        else:
            dtypes += [dtype] * count
    return dtypes


class Graph:
    """The nodes of a GraphDef by name."""

    def __init__(self, graph_def: GraphDef) -> None:
        self.nodes: dict[str, NodeDef] = {}
        for node in graph_def.node:
            if node.name in self.nodes:
                raise InvalidModelError(f"{label(node)}: its name requires to be its own, got one that is taken")
            self.nodes[node.name] = node
        for node in graph_def.node:
            for name in node.input:
                if split_name(name)[0] not in self.nodes:
                    raise InvalidModelError(f"{label(node)}: its inputs require nodes of the graph, got '{name}'")

    def ancestors(self, roots: Iterable[str]) -> set[str]:
        """Names of the nodes that the roots need, by data or by control; roots included."""
        found: set[str] = set()
        stack = list(roots)
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack += [split_name(source)[0] for source in self.nodes[name].input]
        return found

    def order(self, names: set[str], late: Callable[[NodeDef], bool]) -> list[NodeDef]:
        """The named nodes, each after those of its inputs that are named too; `late` ones as late as possible.

        Raises:
            InvalidModelError: there is a cycle.
        """
        waiting = {name: {split_name(source)[0] for source in self.nodes[name].input} & names for name in names}
        readers: dict[str, list[str]] = {name: [] for name in names}
        for name, sources in waiting.items():
            for source in sources:
                readers[source].append(name)
        position = {name: index for index, name in enumerate(self.nodes)}
        ready = [(late(self.nodes[name]), position[name], name) for name in names if not waiting[name]]
        heapq.heapify(ready)
        ordered = []
        while ready:
            name = heapq.heappop(ready)[2]
            ordered.append(self.nodes[name])
            for reader in readers[name]:
                waiting[reader].discard(name)
                if not waiting[reader]:
                    heapq.heappush(ready, (late(self.nodes[reader]), position[reader], reader))
        if len(ordered) < len(names):
            raise InvalidModelError(f"the graph requires an order, got a cycle: {self._cycle(waiting)}")
        return ordered

    def _cycle(self, waiting: Mapping[str, set[str]]) -> str:
        stuck = {name for name, sources in waiting.items() if sources}
        path = [next(iter(stuck))]
        while path[-1] not in path[:-1]:
            path.append(next(source for source in waiting[path[-1]] if source in stuck))
        loop = path[path.index(path[-1]) :]
        return " <- ".join(loop)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a graph under construction; arithmetic on it writes nodes.

    Attributes:
        writer: what writes the nodes.
        name: its full name.
        dtype: its DataType.
    """

    writer: Writer
    name: str
    dtype: int

    def _binary(self, op: str, left: Tensor | float, right: Tensor | float) -> Tensor:
        operands = [x if isinstance(x, Tensor) else self.writer.constant(x, self.dtype) for x in (left, right)]
        return self.writer.op(op, operands, self.dtype, T=self.dtype)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._binary("AddV2", self, other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._binary("Sub", self, other)

    def __rsub__(self, other: float) -> Tensor:
        return self._binary("Sub", other, self)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._binary("Mul", self, other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._binary("RealDiv", self, other)

    def maximum(self, other: Tensor) -> Tensor:
        """Elementwise maximum."""
        return self._binary("Maximum", self, other)

    def sqrt(self) -> Tensor:
        """Square root."""
        return self.writer.op("Sqrt", [self], self.dtype, T=self.dtype)

    def abs(self) -> Tensor:
        """Absolute value."""
        return self.writer.op("Abs", [self], self.dtype, T=self.dtype)


class Writer:
    """Writes nodes into a GraphDef, under names of their own.

    Attributes:
        graph_def: the graph under construction.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.graph_def = tf.compat.v1.GraphDef()
        self._taken = set(taken)

    def fresh(self, hint: str) -> str:
        """A name that is not taken yet."""
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}_{number}"
        self._taken.add(name)
        return name

    def copy(self, node: NodeDef, inputs: Iterable[str]) -> None:
        """Adds a node with other inputs."""
        self._taken.add(node.name)
        copied = self.graph_def.node.add()
        copied.CopyFrom(node)
        del copied.input[:]
        copied.input.extend(_short(name) for name in inputs)

    def op(self, op: str, operands: Iterable[Tensor], dtype: int, name: str = "", /, **types: int) -> Tensor:
        """Adds a node with one output, under a name of its own unless one is given; the attributes are dtypes."""
        node = self.graph_def.node.add()
        node.op, node.name = op, name or self.fresh(f"lstm_lower/{op}")
        node.input.extend(_short(operand.name) for operand in operands)
        for attribute, value in types.items():
            node.attr[attribute].type = value
        return Tensor(self, f"{node.name}:0", dtype)

    def constant(self, value: Any, dtype: int, name: str = "") -> Tensor:
        """Adds a constant."""
        array = np.asarray(value, tf.dtypes.as_dtype(dtype).as_numpy_dtype)
        tensor = self.op("Const", [], dtype, name, dtype=dtype)
        self.graph_def.node[-1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
        return tensor

    def placeholder(self, dtype: int, shape: Any, name: str) -> Tensor:
        """Adds a placeholder; `shape` is a TensorShapeProto or `None`."""
        tensor = self.op("Placeholder", [], dtype, name, dtype=dtype)
        attribute = self.graph_def.node[-1].attr["shape"].shape
        if shape is None:
            attribute.unknown_rank = True
        else:
            attribute.CopyFrom(shape)
        return tensor
