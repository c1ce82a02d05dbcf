"""Narrow floating dtypes made wide ones: of values, weights, and attributes that name a dtype or hold numbers."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.form import node_label
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.model_pass import Pass

# Attributes that say a dtype by its number.
_DTYPES = ("to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision")


def widen(model: ir.Model, narrow: Collection[ir.DataType], wide: ir.DataType) -> bool:
    """Makes all that is of some dtypes be of a wider one, but what BitCasts read and make; returns whether any was."""
    modified = False
    for graph in model.graphs():
        values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        for value in values:
            modified |= _widen_value(value, narrow, wide)
        for node in graph:
            if node.domain in STANDARD_DOMAINS and not std.BitCast.matches(node):
                modified |= _widen_attributes(node, narrow, wide)
    return modified


def _widen_value(value: ir.Value, narrow: Collection[ir.DataType], wide: ir.DataType) -> bool:
    if value.const_value is not None:
        value.const_value = _widened(value.const_value, narrow, wide)
    if not isinstance(value.type, ir.TensorType | ir.SequenceType) or value.type.dtype not in narrow:
        return False
    tensor = ir.TensorType(wide)
    value.type = ir.SequenceType(tensor) if isinstance(value.type, ir.SequenceType) else tensor
    return True


def _widen_attributes(node: ir.Node, narrow: Collection[ir.DataType], wide: ir.DataType) -> bool:
    changed = {}
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in narrow:
            changed[name] = ir.AttrTensor(name, _widened(attribute.as_tensor(), narrow, wide))
        elif name in _DTYPES and attribute.type == ir.AttributeType.INT and attribute.as_int() in narrow:
            changed[name] = ir.AttrInt64(name, int(wide))
    if ir.DataType.FLOAT in narrow:
        changed |= _stated_numbers(node, wide)
    node.attributes.update(changed)
    return bool(changed)


def _stated_numbers(node: ir.Node, wide: ir.DataType) -> dict[str, ir.Attr]:
    """The tensor of a constant that has float32 numbers, or by default a zero."""
    stated = next((name for name in ("value_float", "value_floats") if name in node.attributes), None)
    if std.Constant.matches(node) and stated is not None:
        numbers = np.asarray(node.attributes.pop(stated).value)
    elif std.ConstantOfShape.matches(node) and "value" not in node.attributes:
        numbers = np.zeros(1)
    else:
        return {}
    return {"value": ir.AttrTensor("value", ir.tensor(numbers.astype(wide.numpy())))}


def _widened(tensor: ir.TensorProtocol, narrow: Collection[ir.DataType], wide: ir.DataType) -> ir.TensorProtocol:
    if tensor.dtype not in narrow:
        return tensor
    return ir.tensor(tensor.numpy().astype(wide.numpy()), name=tensor.name)


_NARROW = ir.DataType.BFLOAT16


class WideningPass(Pass):
    """Makes float32 of bfloat16, inputs, outputs and weights too: numpy has no such numbers.

    On processors onnxruntime only has kernels that cast it. What is cast to bfloat16 from another dtype is rounded as
    before; between operations nothing is, so that results are closer to the exact ones than bfloat16's.

    Precondition: the model has no functions.

    Postcondition: no value is of bfloat16 but those that are cast at once.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graphs.

        Raises:
            UnsupportedOpError: an operator reads bfloat16 as bits.
        """
        nodes = list(all_nodes(model.graph))
        rounding = [node for node in nodes if _rounds(node)]
        for node in nodes:
            if std.BitCast.matches(node) and any(_is_narrow(value) for value in (*node.inputs, *node.outputs)):
                raise UnsupportedOpError(
                    f"{node_label(node)} requires another dtype than bfloat16, which is computed in float32; cast "
                    "the module to float32 (module.float())"
                )
        if not widen(model, (_NARROW,), ir.DataType.FLOAT):
            return ir.passes.PassResult(model, modified=False)
        space = Workspace.of(model)
        for node in rounding:
            b = Builder.before(node, space)
            operand = node.inputs[0]
            assert operand is not None
            node.replace_input_with(0, b.wrap(operand).cast(_NARROW).value)
        return ir.passes.PassResult(model, modified=True)


def _is_narrow(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == _NARROW


def _rounds(node: ir.Node) -> bool:
    """Whether a node casts another dtype to bfloat16."""
    operand = node.inputs[0] if node.inputs else None
    if not (std.Cast.matches(node) or std.CastLike.matches(node)) or operand is None or _is_narrow(operand):
        return False
    return _is_narrow(node.outputs[0]) or ("to" in node.attributes and node.attributes["to"].as_int() == _NARROW)
