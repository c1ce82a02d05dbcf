"""bfloat16 computed in float32: on processors onnxruntime only has kernels that cast it, and numpy has no such numbers.

Every value of bfloat16 becomes one of float32, inputs, outputs and weights too. What is cast to bfloat16 from another
dtype is rounded as before; between operations nothing is, so that results are closer to the exact ones than bfloat16's.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_graphs, all_nodes
from lstm_lower.passes.base import Pass

_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT
# Attributes that say a dtype by its number.
_DTYPES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision")


class WideningPass(Pass):
    """Makes float32 of bfloat16.

    Precondition: the model has no functions.

    Postcondition: no value is of bfloat16 but those that are cast at once.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graphs.

        Raises:
            UnsupportedOpError: an operator reads bfloat16 as bits.
        """
        values = _values(model)
        narrow = {value for value in values if value.dtype == _NARROW}
        nodes = [node for node in all_nodes(model.graph) if _names_dtype(node)]
        if not narrow and not nodes:
            return ir.passes.PassResult(model, modified=False)
        rounding = [node for node in all_nodes(model.graph) if _rounds(node, narrow)]
        for node in all_nodes(model.graph):
            if std.BitCast.matches(node) and not narrow.isdisjoint((*node.inputs, *node.outputs)):
                raise UnsupportedOpError(
                    f"{node_label(node)} requires another dtype than bfloat16, which is computed in float32; cast "
                    "the module to float32 (module.float())"
                )
        for value in narrow:
            value.type = ir.TensorType(_WIDE)
            if value.const_value is not None:
                value.const_value = _widened(value.const_value)
        for node in nodes:
            _retype(node)
        space = Workspace.of(model)
        for node in rounding:
            b = Builder.before(node, space)
            operand = node.inputs[0]
            assert operand is not None
            node.replace_input_with(0, b.wrap(operand).cast(_NARROW).value)
        return ir.passes.PassResult(model, modified=True)


def _values(model: ir.Model) -> list[ir.Value]:
    found: list[ir.Value] = []
    for graph in all_graphs(model):
        found += [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    return found


def _rounds(node: ir.Node, narrow: set[ir.Value]) -> bool:
    """Whether a node casts another dtype to bfloat16."""
    operand = node.inputs[0] if node.inputs else None
    if not (std.Cast.matches(node) or std.CastLike.matches(node)) or operand is None or operand in narrow:
        return False
    return node.outputs[0] in narrow or ("to" in node.attributes and node.attributes["to"].as_int() == int(_NARROW))


def _names_dtype(node: ir.Node) -> bool:
    return any(
        _is_narrow_number(attribute) or _is_narrow_tensor(attribute)
        for attribute in node.attributes.values()
        if not attribute.is_ref()
    )


def _retype(node: ir.Node) -> None:
    for name, attribute in list(node.attributes.items()):
        if _is_narrow_tensor(attribute):
            node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))
        elif _is_narrow_number(attribute):
            node.attributes[name] = ir.AttrInt64(name, int(_WIDE))


def _is_narrow_number(attribute: ir.Attr) -> bool:
    named = attribute.name in _DTYPES and attribute.type == ir.AttributeType.INT
    return named and attribute.as_int() == int(_NARROW)


def _is_narrow_tensor(attribute: ir.Attr) -> bool:
    return attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _NARROW


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float32), dtype=_WIDE, name=tensor.name)
