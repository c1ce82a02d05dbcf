"""Shape inference over a whole model: what our own rules tell at once, and the rest by onnx."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator

import onnx
import onnx_ir as ir

from lstm_lower import opdef, schemas
from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.verify import bind_node, composite_nodes
from lstm_lower.passes.infer import infer, shape_of
from lstm_lower.passes.rules.registry import REPEATABLE
from lstm_lower.passes.templates import signature

# Larger initializers stay behind: shape inference reads only small ones, such as shapes and axes.
_LARGE_BYTES = 1024


class InferShapesPass(ir.passes.InPlacePass):
    """Fills in dtypes and shapes that follow from the graph; weights are not copied.

    Attributes:
        complete: infer whatever can be, also where no composite node depends on it.
    """

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__()
        self.complete = complete

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infers.

        Raises:
            InvalidModelError: types or shapes contradict each other.
        """
        modified = _infer_here(model.graph)
        if self.complete or not _all_operands_known(model):
            modified |= self._infer_by_onnx(model)
        return ir.passes.PassResult(model, modified=modified)

    def _infer_by_onnx(self, model: ir.Model) -> bool:
        schemas.register()
        try:
            with without_large_initializers(model) as proto:
                inferred = onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
            raise InvalidModelError(f"shape inference failed: {error}") from error
        modified = False
        for graph, inferred_graph in zip(model.graphs(), ir.from_proto(inferred).graphs(), strict=True):
            modified |= _merge(graph, inferred_graph)
        return modified


def _infer_here(graph: ir.Graph) -> bool:
    """Infers the main graph node by node; whether anything became known.

    Far cheaper than onnx's inference, which wants the whole model as bytes and gives it back as bytes.
    """
    modified = False
    bound: dict[Hashable, list[opdef.TensorInfo]] = {}
    for node in graph:
        if all(value.type is not None and value.shape is not None for value in node.outputs):
            continue
        definition = opdef.definition(node.domain, node.op_type)
        if definition is None:
            infer(node)
        else:
            for value, info in zip(node.outputs, _output_infos(node, definition, bound), strict=False):
                if value.type is None and info.dtype is not None:
                    value.type = ir.TensorType(info.dtype)
                if value.shape is None and info.shape is not None:
                    value.shape = ir.Shape(info.shape)
        modified |= any(value.type is not None for value in node.outputs)
    return modified


def _output_infos(
    node: ir.Node, definition: type[opdef.OpDef], bound: dict[Hashable, list[opdef.TensorInfo]]
) -> list[opdef.TensorInfo]:
    """Dtypes and shapes of a composite node's outputs; those of repeatable ops are looked up by signature."""
    key = signature(node) if node.op_type in REPEATABLE else None
    if key is not None and key in bound:
        return bound[key]
    infos = definition.output_infos(bind_node(node, definition), len(node.outputs))
    if key is not None:
        bound[key] = infos
    return infos


def _all_operands_known(model: ir.Model) -> bool:
    """Whether dtype and every size, if only by name, of every composite node's operands are known."""
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    operands = (value for graph in graphs for node, _ in composite_nodes(graph) for value in node.inputs)
    for value in operands:
        if value is None:
            continue
        shape = shape_of(value)
        if value.dtype is None or shape is None or None in shape:
            return False
    return True


@contextlib.contextmanager
def without_large_initializers(model: ir.Model) -> Iterator[onnx.ModelProto]:
    """The model as a protobuf in which large initializers are inputs, so that no weight is copied.

    onnx's C++ functions take a whole model as bytes, at most 2 GB of them.
    """
    large = [
        value
        for value in model.graph.initializers.values()
        # onnx's functions do not know where external data lies, so that it counts as large.
        if isinstance(value.const_value, ir.ExternalTensor)
        or (value.const_value is not None and value.const_value.nbytes > _LARGE_BYTES)
    ]
    added = [value for value in large if not value.is_graph_input()]
    try:
        for value in large:
            assert value.name is not None
            value.type = value.type or ir.TensorType(_tensor(value).dtype)
            value.shape = value.shape or ir.Shape(_tensor(value).shape.numpy())
            del model.graph.initializers[value.name]
        model.graph.inputs.extend(added)
        with _quiet():
            proto = ir.to_proto(model)
        yield proto
    finally:
        for _ in added:
            model.graph.inputs.pop()
        for value in large:
            model.graph.register_initializer(value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """onnx_ir logs every value of known shape and unknown dtype, which is what inference is for."""
    logger = logging.getLogger("onnx_ir.serde")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


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
