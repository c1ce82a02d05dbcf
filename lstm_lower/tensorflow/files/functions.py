"""Functions of a library as graphs: a FunctionDef names tensors by output argument, a GraphDef by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstm_lower import budget
from lstm_lower.checkpoints.messages import AttrValue, DataType, GraphDef, NodeDef
from lstm_lower.declarations import AttributeDeclaration
from lstm_lower.errors import InvalidModelError
from lstm_lower.opdef import DOMAIN, definition

FunctionDef = Any

# Ops of more than one output that have no definition, being structure: what they mean depends on where they stand.
_STRUCTURAL = {
    "Merge": ("output", "value_index"),
    "RefMerge": ("output", "value_index"),
    "RefSwitch": ("output_false", "output_true"),
    "Switch": ("output_false", "output_true"),
    "TensorArrayConcat": ("value", "lengths"),
    "TensorArrayConcatV2": ("value", "lengths"),
    "TensorArrayConcatV3": ("value", "lengths"),
    "TensorArrayGradV3": ("grad_handle", "flow_out"),
    "TensorArrayGradWithShape": ("grad_handle", "flow_out"),
    "TensorArrayV3": ("handle", "flow"),
    "TensorListConcat": ("tensor", "lengths"),
    "TensorListConcatV2": ("tensor", "lengths"),
    "TensorListPopBack": ("output_handle", "tensor"),
}

# Ops of pictures, whose nodes do not say what a graph without a list of ops leaves open.
_OF_BYTES = ("DecodeJpeg", "DecodeAndCropJpeg", "DecodeBmp", "DecodeGif")
_UINT8: int = DataType.Value("DT_UINT8")


@dataclasses.dataclass(frozen=True)
class Argument:
    """One result of an op, of one tensor or several.

    Attributes:
        name: TensorFlow's name.
        count: the attribute whose number says how many tensors it is of; `None` for one.
        types: the attribute whose list of dtypes says so.
        default: how many where the node does not give that attribute; `None` where none is known.
        dtype: their DataType, or the attribute that says it; 0 where neither is known.
    """

    name: str
    count: str | None = None
    types: str | None = None
    default: int | None = 1
    dtype: int | str = 0

    def size(self, node: Any) -> int | None:
        """How many tensors it is of on a node; `None` where that is not known."""
        if self.count is not None and self.count in node.attr:
            return int(node.attr[self.count].i)
        if self.types is not None and self.types in node.attr:
            return len(node.attr[self.types].list.type)
        return self.default


class OpTable:
    """What results ops have, from the functions of a library, our definitions, and a file's own list of ops."""

    def __init__(self, library: Iterable[FunctionDef], op_defs: Mapping[str, Any]) -> None:
        self.functions = {function.signature.name: function for function in library}
        self.op_defs = op_defs
        self._known: dict[str, tuple[Argument, ...] | None] = {}
        self._sizes: dict[str, int] = {}

    def results(self, op: str) -> tuple[Argument, ...] | None:
        """The results of an op in order, or `None` for one of which nothing is known."""
        if op not in self._known:
            self._known[op] = self._find(op)
        return self._known[op]

    def size(self, function: str) -> int:
        """How many nodes a function of the library has where all that it calls is written out.

        Raises:
            InvalidModelError: it calls itself.
        """
        waiting, entered = [function], set[str]()
        while waiting:
            name = waiting[-1]
            nodes = self.functions[name].node_def if name in self.functions else ()
            callees = [x for node in nodes for x in called(node) if x in self.functions]
            fresh = [x for x in dict.fromkeys(callees) if x not in self._sizes]
            if name not in entered:
                entered.add(name)
                waiting += fresh
                continue
            if fresh:
                raise InvalidModelError(f"function '{name}' requires an end, got one that calls itself")
            waiting.pop()
            self._sizes[name] = len(nodes) + sum(self._sizes[x] for x in callees)
        return self._sizes[function]

    def _find(self, op: str) -> tuple[Argument, ...] | None:
        if op in self.functions:
            return _declared(self.functions[op].signature.output_arg)
        defined = definition(DOMAIN, op)
        if defined is not None:
            attributes = {attribute.name: attribute for attribute in defined.attributes}
            return tuple(
                Argument(
                    result.name, result.count, default=_default(result.variadic, attributes.get(result.count or ""))
                )
                for result in defined.outputs
            )
        if op in _STRUCTURAL:
            return tuple(map(Argument, _STRUCTURAL[op]))
        return _declared(self.op_defs[op].output_arg) if op in self.op_defs else None

    def dtype(self, node: Any, number: int) -> int:
        """The DataType of an output, as the op's own declaration says it; 0 where none is known."""
        if node.op in _OF_BYTES and node.op not in self.op_defs:
            return _UINT8
        for argument in self.results(node.op) or ():
            size = argument.size(node)
            if size is None or number < size:
                if argument.types is not None and argument.types in node.attr:
                    return int(node.attr[argument.types].list.type[number])
                named = argument.dtype
                return named if isinstance(named, int) else int(node.attr[named].type) if named in node.attr else 0
            number -= size
        return 0

    def number(self, node: Any, result: str, index: int) -> int:
        """Which of a node's outputs a tensor is.

        Args:
            node: the node.
            result: the name of the op's result.
            index: which tensor of it.

        Raises:
            InvalidModelError: the op has no such result.
        """
        results = self.results(node.op)
        # With one result all tensors are its; an op of which nothing is known is refused wherever it is needed.
        if results is None or len(results) == 1:
            return index
        position = 0
        for argument in results:
            size = argument.size(node)
            if argument.name == result and (size is None or index < size):
                return position + index
            if argument.name == result or size is None:
                break
            position += size
        names = ", ".join(argument.name for argument in results)
        raise InvalidModelError(f"{_label(node)}: a result must be one of {names}, got '{result}:{index}'")


def called(node: Any) -> Iterator[str]:
    """Names of the functions that a node calls, in attributes or as an op."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for inner in value.list.func:
            yield inner.name


def _declared(arguments: Iterable[Any]) -> tuple[Argument, ...]:
    return tuple(
        Argument(
            given.name, given.number_attr or None, given.type_list_attr or None, 0 if given.type_list_attr else 1,
            given.type_attr or given.type,
        )
        for given in arguments
    )  # fmt: skip


def _default(variadic: bool, attribute: AttributeDeclaration | None) -> int | None:
    if not variadic:
        return 1
    return attribute.default if attribute is not None and isinstance(attribute.default, int) else None


@dataclasses.dataclass
class Body:
    """A function's nodes as a GraphDef has them.

    Attributes:
        nodes: copies of them.
        results: the tensor of each result, in order.
        controls: nodes that run whenever the function does.
    """

    nodes: list[Any]
    results: list[str]
    controls: list[str]


def flat_body(
    function: FunctionDef,
    table: OpTable,
    arguments: Sequence[str],
    *,
    prefix: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> Body:
    """The nodes of a function with inputs in the form `node:number`.

    Args:
        function: the function.
        table: what results ops have.
        arguments: the tensor, `node` or `node:number`, that takes each argument's place.
        prefix: what the nodes' names begin with, for a graph with others.
        attributes: what a call gives for the function's own attributes.

    Raises:
        InvalidModelError: the function is broken, or has arguments of several tensors.
        OverBudgetError: it makes more nodes than the budget allows.
    """
    name = function.signature.name
    budget.check(f"function '{name}'", "nodes", table.size(name))
    budget.charge("the graph", nodes=len(function.node_def))
    if len(arguments) != len(function.signature.input_arg):
        what = f"requires {len(function.signature.input_arg)} arguments"
        raise InvalidModelError(f"function '{name}' {what}, got {len(arguments)}")
    names = _Names(
        name, dict(zip((x.name for x in function.signature.input_arg), arguments, strict=True)), table, prefix
    )
    for node in function.node_def:
        names.add(node)
    nodes = []
    for node in function.node_def:
        copied = NodeDef()
        copied.CopyFrom(node)
        copied.name = prefix + node.name
        del copied.input[:]
        copied.input.extend(names.tensor(given, _label(node)) for given in node.input)
        for key, value in copied.attr.items():
            if value.WhichOneof("value") == "placeholder" and attributes and value.placeholder in attributes:
                copied.attr[key].CopyFrom(attributes[value.placeholder])
        nodes.append(copied)
    results = []
    for result in function.signature.output_arg:
        if result.name not in function.ret:
            raise InvalidModelError(f"function '{name}' requires a tensor for its result '{result.name}', got none")
        results.append(names.tensor(function.ret[result.name], f"function '{name}'"))
    controls = [names.tensor(f"^{given}", f"function '{name}'")[1:] for given in function.control_ret.values()]
    return Body(nodes, results, controls)


@dataclasses.dataclass
class _Names:
    """The names inside a function, and what they are outside."""

    function: str
    arguments: dict[str, str]
    table: OpTable
    prefix: str
    nodes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, node: Any) -> None:
        if node.name in self.nodes or node.name in self.arguments:
            raise InvalidModelError(f"{_label(node)}: its name must be its own in '{self.function}'")
        self.nodes[node.name] = node

    def tensor(self, spelled: str, reader: str) -> str:
        """A tensor, or a control input, under its name outside."""
        control = "^" if spelled.startswith("^") else ""
        first, *rest = spelled.removeprefix("^").split(":")
        if first in self.arguments and rest in ([], ["0"]):
            outer = self.arguments[first]
            return f"^{outer.partition(':')[0]}" if control else outer
        node = self.nodes.get(first)
        if node is None or len(rest) > 2 or (control and rest) or (len(rest) == 2 and not rest[1].isdecimal()):
            raise InvalidModelError(
                f"{reader}: function '{self.function}' requires '{spelled:.80}', got none of that name"
            )
        if not rest:
            return f"{control}{self.prefix}{first}"
        index = int(rest[1][:9]) if len(rest) == 2 else 0
        number = self.table.number(node, rest[0], index)
        return f"{self.prefix}{first}:{number}" if number else f"{self.prefix}{first}"


@dataclasses.dataclass
class FunctionGraph:
    """A function as a graph of its own.

    Attributes:
        graph_def: its nodes, a Placeholder for each argument, and the library.
        arguments: the Placeholders' names, in order.
        results: the tensor of each result, in order.
        controls: nodes that run whenever the function does.
    """

    graph_def: Any
    arguments: list[str]
    results: list[str]
    controls: list[str]


def function_graph(function: FunctionDef, table: OpTable, graph_def: Any) -> FunctionGraph:
    """A function of a graph's library as a graph with the same library.

    Raises:
        InvalidModelError: the function is broken, or what it takes depends on its call.
    """
    made = GraphDef()
    made.versions.CopyFrom(graph_def.versions)
    made.library.CopyFrom(graph_def.library)
    arguments = []
    for index, argument in enumerate(function.signature.input_arg):
        if not argument.type or argument.number_attr or argument.type_list_attr:
            what = f"argument '{argument.name}' requires one dtype of its own"
            raise InvalidModelError(f"function '{function.signature.name}': {what}, got one that its call gives")
        node = made.node.add(name=argument.name, op="Placeholder")
        node.attr["dtype"].type = argument.type
        if index in function.arg_attr:
            for key, value in function.arg_attr[index].attr.items():
                node.attr[key].CopyFrom(value)
            shapes = list(node.attr["_output_shapes"].list.shape) if "_output_shapes" in node.attr else []
            if len(shapes) == 1:
                node.attr["shape"].CopyFrom(AttrValue(shape=shapes[0]))
        arguments.append(argument.name)
    body = flat_body(function, table, arguments)
    made.node.extend(body.nodes)
    return FunctionGraph(made, arguments, body.results, body.controls)


def _label(node: Any) -> str:
    return f"{node.op} '{node.name}'"
