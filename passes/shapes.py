"""Shape inference over a whole model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.graph.facts import Facts
from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import with_inner
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.model_pass import Pass
from lstm_lower.records.model_files import as_proto

# Larger initializers stay behind: shape inference reads only small ones, such as shapes and axes.
_LARGE_BYTES = 1024


class InferShapesPass(Pass):
    """Writes down inferred dtypes and shapes."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """States them, at every nesting level."""
        facts = self.context.space.facts
        values = [
            x
            for graph in with_inner(model.graph)
            for x in [*graph.inputs, *(out for node in graph for out in node.outputs)]
        ]
        # What a model declares of its outputs is its interface.
        interface = {value for value in model.graph.outputs if value.type is not None and value.shape is not None}
        # Each one, not only up to the first that changes.
        return ir.passes.PassResult(model, sum(state(value, facts) for value in values if value not in interface) > 0)


def state(value: ir.Value, facts: Facts) -> bool:
    """States what is known of a value and not stated yet; whether there was anything."""
    type_, shape = facts.type(value), facts.shape(value)
    modified = value.type is None and type_ is not None
    if modified:
        value.type = type_
    declared = declared_shape(value)
    if shape is not None and declared is not None and len(declared) == len(shape):
        # A number tells more than a name: a Loop without any iteration gives what its body declares.
        pairs = zip(shape, declared, strict=True)
        shape = tuple([b if isinstance(a, str) and isinstance(b, int) else a for a, b in pairs])
    if shape is not None and (value.shape is None or stated(shape) != value.shape):
        value.shape = stated(shape)
        modified = True
    return modified


@contextlib.contextmanager
def without_large_initializers(model: ir.Model) -> Iterator[onnx.ModelProto]:
    """The model as a protobuf in which large initializers, at every nesting level, are inputs: no weight is copied.

    onnx's C++ functions take a whole model as bytes, at most 2 GB of them, and look for external data in the folder
    that the process works in. Defaults of inputs stay behind, too: onnx's inference takes them for constants, though
    another value may be fed.
    """
    held = [(graph, value) for graph in with_inner(model.graph) for value in graph.initializers.values()]
    large = [
        (graph, value, str(value.name), _tensor(value))
        for graph, value in held
        if isinstance(value.const_value, ir.ExternalTensor)
        or value.is_graph_input()
        or (value.const_value is not None and value.const_value.nbytes > _LARGE_BYTES)
    ]
    names = Names.of(model) if any(graph is not model.graph for graph, *_ in large) else None
    added: list[ir.Value] = []
    try:
        for graph, value, name, tensor in large:
            value.type = value.type or ir.TensorType(tensor.dtype)
            value.shape = value.shape or stated(tensor.shape.numpy())
            if graph is not model.graph and value.is_graph_output():
                # What a branch hands on has to be its own.
                value.const_value = ir.Tensor(np.zeros(tensor.shape.numpy(), tensor.dtype.numpy()), dtype=tensor.dtype)
                continue
            del graph.initializers[name]
            if graph is not model.graph and names is not None:
                # Another graph may have the name. A tensor that other models share keeps it.
                value.const_value, value.name = None, names.fresh(name)
            if not value.is_graph_input():
                model.graph.inputs.append(value)
                added.append(value)
        yield as_proto(model)
    finally:
        for value in added:
            model.graph.inputs.remove(value)
        for graph, value, name, tensor in large:
            value.name, value.const_value = name, tensor
            graph.register_initializer(value)


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value
