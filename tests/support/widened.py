"""Models in float64 in place of other floating dtypes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Attributes that name a dtype which results or sums have.
DTYPES = ("to", "dtype", "stash_type", "softmax_precision", "output_datatype")


def widen(graph: onnx.GraphProto) -> None:
    """Makes float64 of all other floating dtypes, in place: of values, numbers, and what attributes name."""
    for value in [*graph.input, *graph.output, *graph.value_info]:
        _widen_type(value.type)
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        if node.op_type == "LayerNormalization":
            # What it saves for backward stays float32.
            saved = set(node.output[1:])
            kept = [value for value in graph.output if value.name not in saved]
            del graph.output[:]
            graph.output.extend(kept)
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
        for attribute in node.attribute:
            if attribute.name in DTYPES and attribute.i in FLOATS:
                attribute.i = TensorProto.DOUBLE
            elif attribute.type == onnx.AttributeProto.GRAPH:
                widen(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                number = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                wide = numpy_helper.from_array(np.asarray(number, np.float64))
                attribute.CopyFrom(helper.make_attribute("value", wide))


def _widen_type(type_: onnx.TypeProto) -> None:
    kind = type_.WhichOneof("value")
    if kind == "tensor_type" and type_.tensor_type.elem_type in FLOATS:
        type_.tensor_type.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        _widen_type(getattr(type_, kind).elem_type)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
