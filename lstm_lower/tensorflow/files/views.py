"""A graph, or the body of a function, as one looks at it: which node makes a tensor, of which dtype and shape."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from lstm_lower.checkpoints import values
from lstm_lower.errors import InvalidModelError
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.variables import VARIABLES
from lstm_lower.tensorflow.sources import Shape, Variable

# Ops of TensorFlow 1's loops and branches.
ENTERS = ("Enter", "RefEnter")
EXITS = ("Exit", "RefExit")
NEXTS = ("NextIteration", "RefNextIteration")
SWITCHES = ("Switch", "RefSwitch")
MERGES = ("Merge", "RefMerge")

# Ops that hand one tensor on.
PASSING = ("Identity", "ReadVariableOp", "RefIdentity", *ENTERS, "StopGradient", "PreventGradient")

# Attributes in which ops of several results list their dtypes.
_TYPE_LISTS = ("component_types", "output_types", "dtypes", "Tout", "T")
_TYPES = ("dtype", "T", "DstT", "out_type", "output_type", "Tout", "element_dtype")

# More than any graph hands a tensor on.
_FAR = 32


class View:
    """Nodes by name, with what the graph knows of their results.

    Attributes:
        where: `""` for the graph itself, else the function.
        nodes: name -> node.
        arguments: a function's arguments: name -> dtype and shape.
    """

    def __init__(self, graph: Any, table: OpTable, variables: dict[str, Variable] | None = None) -> None:
        is_function = hasattr(graph, "signature")
        self.where: str = graph.signature.name if is_function else ""
        self.nodes = {node.name: node for node in (graph.node_def if is_function else graph.node)}
        self.arguments: dict[str, tuple[int, Shape | None]] = {}
        self._table = table
        # Functions are younger than the versions that it matters for.
        self._producer: int = sys.maxsize if is_function else graph.versions.producer
        self._variables = variables or {}
        for index, argument in enumerate(graph.signature.input_arg if is_function else ()):
            given = graph.arg_attr[index].attr if index in graph.arg_attr else {}
            self.arguments[argument.name] = (argument.type, _listed_shape(given, 0))

    def made_by(self, spelled: str) -> tuple[Any, int]:
        """The node that makes a tensor, or `None` for an argument, and the number of the output."""
        first, *rest = spelled.removeprefix("^").split(":")
        node = self.nodes.get(first)
        if node is None or not rest:
            return node, 0
        if len(rest) == 1 and rest[0].isdecimal():
            return node, int(rest[0][:9])
        index = int(rest[1][:9]) if len(rest) == 2 and rest[1].isdecimal() else 0
        try:
            return node, self._table.number(node, rest[0], index)
        except InvalidModelError:
            return node, index

    def shape(self, spelled: str) -> Shape | None:
        """The sizes of a tensor, as far as the graph says them."""
        for _ in range(_FAR):
            node, number = self.made_by(spelled)
            if node is None:
                return self.arguments.get(spelled.partition(":")[0], (0, None))[1]
            found = self._shape(node, number)
            if found is not None or node.op not in PASSING or not node.input:
                return found
            spelled = node.input[0]
        return None

    def _shape(self, node: Any, number: int) -> Shape | None:
        if node.name in self._variables:
            return self._variables[node.name].shape
        if node.op == "Const" and "value" in node.attr:
            return values.shape_of(node.attr["value"].tensor.tensor_shape)
        if node.op == "Placeholder":
            given = values.placeholder_shape(node, self._producer)
            return _listed_shape(node.attr, number) if given is None else given
        if node.op in ("PlaceholderWithDefault", *VARIABLES) and "shape" in node.attr:
            return values.shape_of(node.attr["shape"].shape)
        found = _listed_shape(node.attr, number)
        if found is None and "output_shapes" in node.attr and len(node.attr["output_shapes"].list.shape) > number:
            return values.shape_of(node.attr["output_shapes"].list.shape[number])
        return found

    def is_variable(self, node: Any) -> bool:
        """Whether a node stands for a variable."""
        return node.op in VARIABLES or node.name in self._variables

    def origin(self, spelled: str) -> str:
        """The node, or argument, whose result comes by way of ops that only hand it on."""
        for _ in range(_FAR):
            node, _ = self.made_by(spelled)
            if node is None or node.op not in PASSING or not node.input:
                break
            spelled = node.input[0]
        return spelled.partition(":")[0]

    def dtype(self, spelled: str) -> int:
        """The DataType of a tensor; 0 where its node does not say it."""
        node, number = self.made_by(spelled)
        if node is None:
            return self.arguments.get(spelled.partition(":")[0], (0, None))[0]
        for name in _TYPE_LISTS:
            listed = node.attr[name].list.type if name in node.attr else ()
            if len(listed) > number:
                return int(listed[number])
        declared = self._table.dtype(node, number)
        return declared or next(
            (int(node.attr[name].type) for name in _TYPES if name in node.attr and node.attr[name].type), 0
        )

    def type_text(self, spelled: str) -> str:
        """`float32[?, 494]`; `float32` where not even the rank is known."""
        dtype, shape = self.dtype(spelled), self.shape(spelled)
        name = values.dtype_text(dtype) if dtype else "?"
        return name if shape is None else f"{name}[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _listed_shape(attributes: Any, number: int) -> Shape | None:
    listed = attributes["_output_shapes"].list.shape if "_output_shapes" in attributes else ()
    return values.shape_of(listed[number]) if len(listed) > number else None


def data_inputs(node: Any) -> Iterator[str]:
    """The tensors that a node reads."""
    return (name for name in node.input if not name.startswith("^"))
