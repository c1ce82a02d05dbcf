"""Inlining: a GraphDef that calls functions becomes one that does not.

The bodies of control flow (`If`, `While` and their stateless forms) stay functions; what they call is not touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.tensorflow.graph import GraphDef, NodeDef, argument_sizes, label, op_def_of, split_name, tensor_name

CALLS = ("PartitionedCall", "StatefulPartitionedCall")

# The mark of control flow that TensorFlow turns into Switch, Merge and so on.
_LOWERED = "_lower_using_switch_merge"

# Deeper nesting than any tracing produces: a function that calls itself.
_MAX_DEPTH = 64


@dataclasses.dataclass
class Inlined:
    """The result of inlining.

    Attributes:
        graph_def: the graph without calls; it keeps the function library.
        tensors: full name of a call's output -> the tensor that takes its place.
        controls: name of a call -> nodes that run when the call has run.
    """

    graph_def: GraphDef
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)
    controls: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def tensor(self, name: str) -> str:
        """The tensor behind a name of the original graph."""
        return self.tensors.get(name, name)


def inline(graph_def: GraphDef) -> Inlined:
    """Inlines all calls of the main graph, nested ones too.

    Raises:
        InvalidModelError: a function is missing from the library.
        UnsupportedOpError: functions call each other without end.
    """
    result = Inlined(tf.compat.v1.GraphDef())
    result.graph_def.versions.CopyFrom(graph_def.versions)
    result.graph_def.library.CopyFrom(graph_def.library)
    functions = {function.signature.name: function for function in graph_def.library.function}
    _Inliner(functions, result).add(graph_def.node, depth=0)
    _rewire(result)
    for function in result.graph_def.library.function:
        _keep_structured(function.node_def)
    _keep_structured(result.graph_def.node)
    return result


@dataclasses.dataclass
class _Inliner:
    functions: dict[str, Any]
    result: Inlined

    def add(self, nodes: Iterable[NodeDef], depth: int) -> None:
        for node in nodes:
            name = self._callee(node)
            if name is None:
                made = self.result.graph_def.node.add()
                made.CopyFrom(node)
                if node.op == "Assert":
                    _silence(made)
                continue
            if depth > _MAX_DEPTH:
                raise UnsupportedOpError(f"{label(node)}: function '{name}' requires an end, got one that calls itself")
            self._inline(node, self.functions[name], depth)

    def _callee(self, node: NodeDef) -> str | None:
        if node.op in CALLS:
            name: str = node.attr["f"].func.name
        elif node.op in self.functions and op_def_of(node.op) is None:
            name = node.op
        else:
            return None
        if name not in self.functions:
            raise InvalidModelError(f"{label(node)}: function '{name}' requires to be in the library, got none")
        return name

    def _inline(self, call: NodeDef, function: Any, depth: int) -> None:
        prefix = f"{call.name}/"
        data = [name for name in call.input if not name.startswith("^")]
        controls = [name for name in call.input if name.startswith("^")]
        arguments = function.signature.input_arg
        if len(arguments) != len(data):
            what = f"function '{function.signature.name}' requires {len(arguments)} operands"
            raise InvalidModelError(f"{label(call)}: {what}, got {len(data)}")
        flat = {}
        for argument, value in zip(arguments, data, strict=True):
            flat[argument.name] = tensor_name(value)
            flat[f"^{argument.name}"] = f"^{split_name(value)[0]}"
        for node in function.node_def:
            flat[f"^{node.name}"] = f"^{prefix}{node.name}"
            flat |= self._outputs(node, prefix)
        own = {node.name for node in function.node_def}
        body = []
        for node in function.node_def:
            inlined = tf.compat.v1.NodeDef()
            inlined.CopyFrom(node)
            inlined.name = prefix + node.name
            # Where nodes are to lie; it names others of the function, which have other names here.
            inlined.attr.pop("_class", None)
            _bind_attributes(inlined, call)
            del inlined.input[:]
            inlined.input.extend(self._resolve(flat, name, node) for name in node.input)
            # What runs first in the function waits for what the call waits for.
            if not any(name.lstrip("^").partition(":")[0] in own for name in node.input):
                inlined.input.extend(controls)
            body.append(inlined)
        for index, argument in enumerate(function.signature.output_arg):
            self.result.tensors[f"{call.name}:{index}"] = self._resolve(flat, function.ret[argument.name], call)
        self.result.controls[call.name] = [prefix + name for name in function.control_ret.values()] + [
            split_name(value)[0] for value in data
        ]
        self.add(body, depth + 1)

    def _resolve(self, flat: dict[str, str], name: str, node: NodeDef) -> str:
        found = flat.get(name) or flat.get(f"{name}:0")
        if found is None:
            raise InvalidModelError(f"{label(node)}: its function requires '{name}', got none of that name")
        return found

    def _outputs(self, node: NodeDef, prefix: str) -> dict[str, str]:
        """Names of a node's outputs in a function, `node:argument:number`, and outside, `node:number`."""
        callee = self._callee(node)
        op_def = self.functions[callee].signature if callee is not None and node.op == callee else op_def_of(node.op)
        if op_def is None:
            raise UnsupportedOpError(f"{label(node)}: the op requires to be known to TensorFlow, got one that is not")
        names, position = {}, 0
        for argument, _, count in argument_sizes(node, op_def.output_arg):
            for number in range(count):
                names[f"{node.name}:{argument}:{number}"] = f"{prefix}{node.name}:{position}"
                position += 1
        return names


def _keep_structured(nodes: Iterable[NodeDef]) -> None:
    """Loops and branches stay such: TensorFlow's optimiser would make of marked ones those of TensorFlow 1."""
    for node in nodes:
        if _LOWERED in node.attr:
            del node.attr[_LOWERED]


def _silence(node: NodeDef) -> None:
    """Makes an assertion an op without effect, since a model checks nothing; its message is a string."""
    controls = [name for name in node.input if name.startswith("^")]
    del node.input[:]
    node.input.extend(controls)
    node.attr.clear()
    node.op = "NoOp"


def _bind_attributes(node: NodeDef, call: NodeDef) -> None:
    """Gives attributes that are parameters of the function the value that the call gives them."""
    for name, value in list(node.attr.items()):
        if value.WhichOneof("value") == "placeholder":
            node.attr[name].CopyFrom(call.attr[value.placeholder])


def _rewire(result: Inlined) -> None:
    """Points the readers of calls at what took the calls' place."""

    def follow(name: str) -> str:
        while name in result.tensors:
            name = result.tensors[name]
        return name

    def waited(name: str) -> list[str]:
        pending, found = [name], []
        while pending:
            candidate = pending.pop()
            if candidate in result.controls:
                pending += result.controls[candidate]
            elif candidate not in found:
                found.append(candidate)
        return found

    result.tensors = {name: follow(name) for name in result.tensors}
    result.controls = {name: waited(name) for name in result.controls}
    for node in result.graph_def.node:
        data = [tensor_name(name) for name in node.input if not name.startswith("^")]
        controls = [name[1:] for name in node.input if name.startswith("^")]
        if any(name in result.tensors for name in data) or any(name in result.controls for name in controls):
            del node.input[:]
            node.input.extend(result.tensor(name) for name in data)
            resolved = [after for name in controls for after in result.controls.get(name, [name])]
            node.input.extend(f"^{name}" for name in dict.fromkeys(resolved))
