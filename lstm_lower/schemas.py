"""Tells onnx about our ops, so that its checker and its shape inference know them.

Registration with onnx is global to the process, so it happens once, on demand, and leaves alone what others have
registered under the same domain and name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx.defs import OpSchema

from lstm_lower import dims
from lstm_lower.dtypes import DTYPES, DType, all_dtypes, type_string
from lstm_lower.errors import LstmLowerError
from lstm_lower.opdef import REGISTRY, Arranged, OpDef, OperandDeclaration, TensorInfo
from lstm_lower.registry import SYNONYMS

_ATTRIBUTE_TYPES = {
    bool: OpSchema.AttrType.INT,
    int: OpSchema.AttrType.INT,
    float: OpSchema.AttrType.FLOAT,
    str: OpSchema.AttrType.STRING,
    DType: OpSchema.AttrType.INT,
    list[bool]: OpSchema.AttrType.INTS,
    list[int]: OpSchema.AttrType.INTS,
    list[float]: OpSchema.AttrType.FLOATS,
    list[str]: OpSchema.AttrType.STRINGS,
}

# The type variable of operands that may each be of another type.
_MIXED = "Mixed"

_VERSION = 1

# Domain and op type -> the definition that onnx was told of.
_registered: dict[tuple[str, str], type[OpDef]] = {}


def register() -> None:
    """Tells onnx about every definition that it has not been told of yet, in its domain and that one's synonyms."""
    # onnx.reference reads all schemas when it is first imported, and refuses then that two domains hold one name.
    import onnx.reference

    for op in REGISTRY.values():
        for domain in (op.domain, *(short for short, domain in SYNONYMS.items() if domain == op.domain)):
            key = domain, op.op_type
            if _registered.get(key) is op:
                continue
            if key in _registered:
                onnx.defs.deregister_schema(op.op_type, _VERSION, domain)
            elif onnx.defs.has(op.op_type, domain):
                continue
            onnx.defs.register_schema(_schema(op, domain))
            _registered[key] = op


def _schema(op: type[OpDef], domain: str) -> OpSchema:
    schema = OpSchema(
        op.op_type,
        domain,
        _VERSION,
        doc=op.__doc__ or "",
        inputs=_parameters(op, op.inputs),
        outputs=_parameters(op, op.outputs),
        type_constraints=[
            (name, [_tensor(dtype) for dtype in allowed], "")
            for name, allowed in {**op.types, _MIXED: all_dtypes()}.items()
            if _uses(op, name)
        ],
        attributes=[
            OpSchema.Attribute(attribute.name, _ATTRIBUTE_TYPES[attribute.type], required=False)
            for attribute in op.attributes
        ],
    )
    schema.set_type_and_shape_inference_function(functools.partial(_infer, op))
    return schema


def _uses(op: type[OpDef], variable: str) -> bool:
    merged = [_first_repeated(operands) for operands in (op.inputs, op.outputs)]
    if variable == _MIXED:
        return any(index is not None for index in merged)
    return any(operand.dtype == variable for operand in (*op.inputs[: merged[0]], *op.outputs[: merged[1]]))


def _first_repeated(operands: Sequence[OperandDeclaration]) -> int | None:
    """Position of the first variadic operand, where others follow it: onnx allows one at the end only."""
    repeated = [index for index, operand in enumerate(operands) if operand.variadic]
    return repeated[0] if repeated and repeated[0] < len(operands) - 1 else None


def _parameters(op: type[OpDef], operands: Sequence[OperandDeclaration]) -> list[OpSchema.FormalParameter]:
    """The operands; from a variadic one that is not the last on, all as one operand of mixed types."""
    merged = _first_repeated(operands)
    parameters = [_parameter(op, operand) for operand in operands[:merged]]
    if merged is not None:
        option = OpSchema.FormalParameterOption.Variadic
        parameters.append(OpSchema.FormalParameter("operands", _MIXED, param_option=option, is_homogeneous=False))
    return parameters


def _parameter(op: type[OpDef], operand: OperandDeclaration) -> OpSchema.FormalParameter:
    option = OpSchema.FormalParameterOption.Single
    if operand.variadic:
        option = OpSchema.FormalParameterOption.Variadic
    elif operand.optional or operand in op.outputs:
        # What nothing reads may be left out.
        option = OpSchema.FormalParameterOption.Optional
    type_ = operand.dtype if operand.dtype in op.types else _tensor(DTYPES[operand.dtype])
    if operand.sequence:
        type_ = f"seq({type_})"
    return OpSchema.FormalParameter(operand.name, type_, param_option=option, is_homogeneous=not operand.mixed)


def _tensor(dtype: DType) -> str:
    return type_string(ir.TensorType(dtype)) or ""


def _infer(op: type[OpDef], context: Any) -> None:
    """Shape inference of one node for onnx; a node that does not fit its definition gets no types here.

    The error for such a node is the verifier's, which sees the node's name.
    """
    attributes = {}
    for attribute in op.attributes:
        found = context.get_attribute(attribute.name)
        if found is not None:
            attributes[attribute.name] = onnx.helper.get_attribute_value(found)
    infos = [
        _tensor_info(context.get_input_type(index)) if context.has_input(index) else None
        for index in range(context.get_num_inputs())
    ]
    try:
        call = op.bind("", Arranged.of(op.inputs, infos, attributes), attributes)
    except LstmLowerError:
        return
    for index, info in zip(range(context.get_num_outputs()), call.outputs, strict=False):
        if info.dtype is not None:
            context.set_output_type(index, onnx.helper.make_tensor_type_proto(int(info.dtype), _dims(info.shape)))


def _dims(shape: Sequence[dims.Dim] | None) -> list[int | str | None] | None:
    return None if shape is None else [dim if isinstance(dim, int | str) else None for dim in shape]


def _tensor_info(type_: onnx.TypeProto | None) -> TensorInfo:
    if type_ is None or not type_.HasField("tensor_type"):
        return TensorInfo(None, None)
    tensor = type_.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None) for dim in tensor.shape.dim
        )
    dtype = DType(tensor.elem_type) if tensor.elem_type else None
    return TensorInfo(dtype, shape)
