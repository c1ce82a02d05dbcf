"""A graph as text: short, deterministic, and independent of the names of intermediate values.

For golden tests and `--dump-passes`. One line per node:

    %4: f32[T,B,H] = MatMul(%x, <f32[512,2048] #1f6a90c2>)

Graph inputs and outputs keep their names, everything else is numbered in order of definition. Constants, whether
initializers or Constant nodes, stand where they are used: small ones with their values, large ones as shape and hash.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import shown
from lstm_lower.graph import standard as std

_INDENT = "  "
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w./:-]*")
# Up to this many elements a constant is shown with its values: shapes, axes, scalars.
_SHOWN_ELEMENTS = 8
_SHORT_NAMES = {ir.DataType.BOOL: "bool", ir.DataType.STRING: "str", ir.DataType.UNDEFINED: "?"}


def dump(
    graph: ir.Model | ir.Graph | ir.Function,
    *,
    node_names: bool = False,
    hashes: dict[int, tuple[ir.TensorProtocol, str]] | None = None,
) -> str:
    """Returns the text of a model, a graph or a function.

    Args:
        graph: what to write; it is not changed.
        node_names: whether each node's name follows it as a comment.
        hashes: a cache that the caller keeps between dumps of one model, so that weights are hashed once.
    """
    writer = _Writer(node_names, {} if hashes is None else hashes)
    return "\n".join(map(shown, writer.lines(graph))) + "\n"


def attribute_text(attribute: ir.Attr) -> str:
    """An attribute's value, large tensors as type and hash; a graph is not one."""
    return _Writer(node_names=False, hashes={})._attribute(attribute)


def constant_text(value: ir.Value | None) -> str | None:
    """A constant, a large one as type and hash; `None` for what is no constant, or an input's default."""
    tensor = None if value is None or value.is_graph_input() else _constant_of(value)
    return None if tensor is None else _Writer(node_names=False, hashes={})._constant(tensor)


def type_text(value: ir.Value) -> str:
    """The type of a value, for example `f32[T,B,512]`; `?` for what is unknown."""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return _container_type(value.type, value.shape)
    return tensor_type(value.dtype, value.shape)


def tensor_type(dtype: ir.DataType | None, shape: ir.Shape | None) -> str:
    """A tensor type, for example `f32[T,B,512]`; `f32` is a scalar, `f32[..]` of unknown rank."""
    name = "?" if dtype is None else _SHORT_NAMES.get(dtype) or dtype.short_name()
    if shape is None:
        return name if dtype is None else f"{name}[..]"
    dims = [str(dim) if isinstance(dim, int) else (dim.value or "?") for dim in shape]
    return f"{name}[{','.join(dims)}]" if dims else name


def _container_type(type_: ir.TypeProtocol, shape: ir.Shape | None) -> str:
    if isinstance(type_, ir.SequenceType):
        return f"seq({_container_type(type_.elem_type, shape)})"
    if isinstance(type_, ir.OptionalType):
        return f"optional({_container_type(type_.elem_type, shape)})"
    if isinstance(type_, ir.SparseTensorType):
        return f"sparse({tensor_type(type_.dtype, shape)})"
    return tensor_type(type_.dtype, shape)


class _Writer:
    """Writes one model; holds the numbering."""

    def __init__(self, node_names: bool, hashes: dict[int, tuple[ir.TensorProtocol, str]]) -> None:
        self._node_names = node_names
        # The tensor is kept beside its hash, so that its id stays its own.
        self._hashes = hashes
        self._named: dict[ir.Value, str] = {}
        self._count = 0

    def lines(self, graph: ir.Model | ir.Graph | ir.Function) -> Iterator[str]:
        if isinstance(graph, ir.Model):
            yield f"model {_opsets(graph.opset_imports)}"
            yield from self._top(graph.graph, "graph")
            for function in graph.functions.values():
                yield ""
                yield from self._top(function, f"function {_qualified(function.domain, function.name)}")
        elif isinstance(graph, ir.Function):
            yield from self._top(graph, f"function {_qualified(graph.domain, graph.name)}")
        else:
            yield from self._top(graph, "graph")

    def _top(self, graph: ir.Graph | ir.Function, title: str) -> Iterator[str]:
        self._named.clear()
        self._count = 0
        if isinstance(graph, ir.Graph):
            kept = [*graph.inputs, *graph.initializers.values(), *graph.outputs]
        else:
            kept = [*graph.inputs, *graph.outputs]
        for value in kept:
            if not _inlined(value):
                self._named[value] = f"%{_quoted(value.name or '')}"
        yield f"{title} {{"
        for value in graph.inputs:
            default = f" = {self._constant(value.const_value)}" if value.const_value is not None else ""
            yield f"{_INDENT}input {self._typed(value)}{default}"
        yield from self._body(graph, 1)
        yield "}"

    def _body(self, graph: ir.Graph | ir.Function, depth: int) -> Iterator[str]:
        """Initializers that need a line of their own, the nodes and the results."""
        indent = _INDENT * depth
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                if not value.is_graph_input() and not _inlined(value) and value.const_value is not None:
                    yield f"{indent}{self._typed(value)} = {self._constant(value.const_value)}"
        for node in graph:
            if not std.Constant.matches(node) or not all(_inlined(value) for value in node.outputs):
                yield from self._node(node, depth)
        yield f"{indent}return {', '.join(self._use(value) for value in graph.outputs)}"

    def _node(self, node: ir.Node, depth: int) -> Iterator[str]:
        operands = list(node.inputs)
        while operands and operands[-1] is None:
            operands.pop()
        arguments = ", ".join("_" if value is None else self._use(value) for value in operands)
        results = ", ".join(self._typed(value) if value.name or value.uses() else "_" for value in node.outputs)
        plain, graphs = _split_attributes(node.attributes)
        attributes = ", ".join(f"{attr.name}={self._attribute(attr)}" for attr in plain)
        comment = f"  # {node.name}" if self._node_names and node.name else ""
        call = f"{_qualified(node.domain, node.op_type)}({arguments})"
        yield _INDENT * depth + f"{results} = {call}" + (f" {{{attributes}}}" if attributes else "") + comment
        for name, graph in graphs:
            parameters = ", ".join(self._typed(value) for value in graph.inputs)
            yield _INDENT * (depth + 1) + f"{name} ({parameters})"
            yield from self._body(graph, depth + 2)

    def _name(self, value: ir.Value) -> str:
        if value not in self._named:
            self._named[value] = f"%{self._count}"
            self._count += 1
        return self._named[value]

    def _typed(self, value: ir.Value) -> str:
        return f"{self._name(value)}: {type_text(value)}"

    def _use(self, value: ir.Value) -> str:
        constant = _constant_of(value) if _inlined(value) else None
        return self._name(value) if constant is None else self._constant(constant)

    def _attribute(self, attribute: ir.Attr) -> str:
        if attribute.is_ref():
            return f"@{attribute.ref_attr_name}"
        value = attribute.value
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._scalar(item) for item in value)}]"
        return self._scalar(value)

    def _scalar(self, value: object) -> str:
        if isinstance(value, float):
            return str(np.float32(value))  # attributes are 32-bit: 0.1, not 0.10000000149011612
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            return f'"{value}"'
        # The protocol's check takes longer than all the rest.
        if isinstance(value, int) or not isinstance(value, ir.TensorProtocol):
            return str(value)
        return self._constant(value)

    def _constant(self, tensor: ir.TensorProtocol) -> str:
        shape = tensor.shape.numpy()
        type_ = tensor_type(tensor.dtype, ir.Shape(shape))
        if math.prod(shape) <= _SHOWN_ELEMENTS:
            return f"<{type_} {_values(tensor)}>"
        if id(tensor) not in self._hashes:
            # The bytes of strings are pointers.
            data = repr(tensor.numpy().tolist()).encode() if tensor.dtype == ir.DataType.STRING else tensor.tobytes()
            digest = hashlib.blake2b(data, digest_size=4).hexdigest()
            self._hashes[id(tensor)] = (tensor, digest)
        return f"<{type_} #{self._hashes[id(tensor)][1]}>"


def _values(tensor: ir.TensorProtocol) -> str:
    array = tensor.numpy()
    if array.dtype == object:
        items = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.flat]
        return ", ".join(f'"{item}"' for item in items)
    return ", ".join(str(item) for item in array.flat)


def _constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The constant that a value is: an initializer, or what a Constant node holds."""
    node = value.producer()
    if node is None:
        return value.const_value if value.is_initializer() else None
    if not std.Constant.matches(node):
        return None
    attribute = next(iter(node.attributes.values()))
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        # Not as_tensor(), whose protocol check takes longer than writing the node.
        tensor: ir.TensorProtocol = attribute.value
        return tensor
    if attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return ir.tensor(np.asarray(attribute.value, np.float32))
    if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS):
        return ir.tensor(np.asarray(attribute.value, np.int64))
    return None


def _inlined(value: ir.Value) -> bool:
    """Whether a value is a constant that is printed inline, because its name means nothing to a user."""
    if value.is_graph_input() or value.is_graph_output():
        return False
    return _constant_of(value) is not None and bool(value.uses())


def _split_attributes(attributes: Mapping[str, ir.Attr]) -> tuple[list[ir.Attr], list[tuple[str, ir.Graph]]]:
    """Attributes in order of their names, those that are graphs apart."""
    plain: list[ir.Attr] = []
    graphs: list[tuple[str, ir.Graph]] = []
    for name, attribute in sorted(attributes.items()):
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            graphs.append((name, attribute.as_graph()))
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            graphs += [(f"{name}[{index}]", graph) for index, graph in enumerate(attribute.as_graphs())]
        else:
            plain.append(attribute)
    return plain, graphs


def _opsets(imports: Mapping[str, int]) -> str:
    return " ".join(f"{domain or 'ai.onnx'}={version}" for domain, version in sorted(imports.items()))


def _qualified(domain: str, name: str) -> str:
    return name if domain in ("", "ai.onnx") else f"{domain}::{name}"


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f'"{name}"'
