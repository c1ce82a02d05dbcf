"""The first state of a training step as a model: constants, and what is drawn in sizes that the model is given."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidModelError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.formulas.philox import Stream, fractions
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.records.first_values import Draw

INT64 = ir.DataType.INT64
# The first opset with the operators that random words are made of.
_WITH_BITS = 18


def initialization(step: ir.Model, first: Mapping[str, ir.TensorProtocol | Draw]) -> ir.Model:
    """A model that makes first values of state.

    Args:
        step: the training step, whose inputs declare the dtypes and shapes of the state.
        first: state input -> its value, or how it is drawn.

    Returns:
        A model whose outputs are the values, in order, and whose inputs are the open sizes of what is drawn, int64
        scalars under their names.

    Raises:
        InvalidModelError: a size of what is drawn is open and has no name.
    """
    opset = step.graph.opset_imports.get("", _WITH_BITS)
    if any(isinstance(value, Draw) for value in first.values()):
        opset = max(opset, _WITH_BITS)
    graph = ir.Graph([], [], nodes=[], name="init", opset_imports={"": opset})
    model = ir.Model(graph, ir_version=step.ir_version, producer_name="lstm-lower")
    b = Builder(Workspace.of(model), graph, scope="init")
    declared = {value.name: value for value in step.graph.inputs}
    sizes: dict[str, Expr] = {}
    for name, value in first.items():
        made = _drawn(b, declared[name], value, sizes) if isinstance(value, Draw) else _constant(b, name, value)
        # An initializer that is an output as well is read by few.
        output = b.op(std.Identity, made).value
        output.name, output.type, output.shape = name, declared[name].type, made.value.shape
        graph.outputs.append(output)
    return model


def first_name(name: str) -> str:
    """The name of a state's first value in a model that makes it."""
    return f"{name}/first"


def _constant(b: Builder, name: str, tensor: ir.TensorProtocol) -> Expr:
    value = ir.Value(name=first_name(name), type=ir.TensorType(tensor.dtype), shape=stated(tensor.shape.numpy()))
    value.const_value = tensor
    b.graph.register_initializer(value)
    return b.wrap(value)


def _drawn(b: Builder, declared: ir.Value, draw: Draw, sizes: dict[str, Expr]) -> Expr:
    """Numbers in the shape of a state, in float32 at least until they have its dtype."""
    dtype = declared.dtype or ir.DataType.FLOAT
    wide = ir.DataType.DOUBLE if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    shape = b.concat([_size(b, declared, dim, sizes) for dim in declared_shape(declared) or ()], axis=0)
    if draw.low == draw.high:
        return _stated(b.op(std.Expand, b.constant(draw.low, dtype), shape), declared)
    words = Stream.of_seed(b.ints(*draw.stream))
    count = b.op(std.ReduceProd, shape, keepdims=0).reshape(1)
    groups = b.op(std.Div, count + 3, b.ints(4))
    numbers = fractions(words.words(up_to(b, groups)), wide).slice(0, count, axis=0)
    drawn = (numbers * (draw.high - draw.low) + draw.low).cast(dtype)
    return _stated(b.op(std.Reshape, drawn, shape), declared)


def _size(b: Builder, declared: ir.Value, dim: object, sizes: dict[str, Expr]) -> Expr:
    """A size of a state [1]; an open one is an input."""
    if isinstance(dim, int):
        return b.ints(dim)
    if not isinstance(dim, str):
        shape = format_shape(declared_shape(declared) or ())
        raise InvalidModelError(f"state '{declared.name}' requires names of its open sizes, got {shape}")
    if dim not in sizes:
        given = ir.Value(name=dim, type=ir.TensorType(INT64), shape=ir.Shape([]))
        b.graph.inputs.append(given)
        sizes[dim] = b.wrap(given)
    return sizes[dim].reshape(1)


def _stated(drawn: Expr, declared: ir.Value) -> Expr:
    return drawn.builder.set_shape(drawn, declared_shape(declared) or ())
