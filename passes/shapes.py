"""Shape inference over a whole model by onnx, with our ops known to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from lstm_lower import schemas
from lstm_lower.errors import InvalidModelError

# Larger initializers stay behind: shape inference reads only small ones, such as shapes and axes.
_LARGE_BYTES = 1024


class InferShapesPass(ir.passes.InPlacePass):
    """Fills in dtypes and shapes that follow from the graph; weights are not copied."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infers.

        Raises:
            InvalidModelError: types or shapes contradict each other.
        """
        schemas.register()
        try:
            with without_large_initializers(model) as proto:
                inferred = onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
            raise InvalidModelError(f"shape inference failed: {error}") from error
        modified = False
        for graph, inferred_graph in zip(model.graphs(), ir.from_proto(inferred).graphs(), strict=True):
            modified |= _merge(graph, inferred_graph)
        return ir.passes.PassResult(model, modified=modified)


@contextlib.contextmanager
def without_large_initializers(model: ir.Model) -> Iterator[onnx.ModelProto]:
    """The model as a protobuf in which large initializers are inputs, so that no weight is copied.

    onnx's C++ functions take a whole model as bytes, at most 2 GB of them.
    """
    large = [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > _LARGE_BYTES
    ]
    added = [value for value in large if not value.is_graph_input()]
    try:
        for value in large:
            assert value.name is not None
            value.type = value.type or ir.TensorType(_tensor(value).dtype)
            value.shape = value.shape or ir.Shape(_tensor(value).shape.numpy())
            del model.graph.initializers[value.name]
        model.graph.inputs.extend(added)
        yield ir.to_proto(model)
    finally:
        for _ in added:
            model.graph.inputs.pop()
        for value in large:
            model.graph.register_initializer(value)


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value


def _merge(graph: ir.Graph, inferred: ir.Graph) -> bool:
    known = {value.name: value for node in inferred for value in node.outputs}
    known.update((value.name, value) for value in inferred.inputs)
    modified = False
    for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
        found = known.get(value.name)
        if found is None:
            continue
        if value.type is None and found.type is not None:
            value.type, modified = found.type, True
        if found.shape is not None and (value.shape is None or _is_sharper(found.shape, value.shape)):
            value.shape, modified = found.shape, True
    return modified


def _is_sharper(new: ir.Shape, old: ir.Shape) -> bool:
    """Whether the inferred shape knows sizes that the declared one leaves open, and contradicts none."""
    if len(new) != len(old):
        return False
    gained = False
    for found, declared in zip(new, old, strict=True):
        if isinstance(declared, int):
            if found != declared:
                return False
        elif isinstance(found, int) or (declared.value is None and found.value is not None):
            gained = True
    return gained
