"""Tells onnx about our ops, so that its checker and its shape inference know them.

Registration with onnx is global to the process, so it happens once, on demand, and leaves alone what somebody else has
registered under the same domain and name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
from onnx.defs import OpSchema

from lstm_lower import dims, opdef, ops  # noqa: F401 (ops fills the registry)

_ATTRIBUTE_TYPES = {
    bool: OpSchema.AttrType.INT,
    int: OpSchema.AttrType.INT,
    float: OpSchema.AttrType.FLOAT,
    str: OpSchema.AttrType.STRING,
    list: OpSchema.AttrType.INTS,
    opdef.DType: OpSchema.AttrType.INT,
}


# The type variable of operands that may each be of another type.
_MIXED = "Mixed"


@functools.cache
def register() -> None:
    """Registers every definition in both domains."""
    # onnx.reference reads all schemas when it is first imported, and refuses then that two domains hold one name.
    import onnx.reference

    for op in opdef.REGISTRY.values():
        for domain in opdef.DOMAINS:
            if not onnx.defs.has(op.op_type, domain):
                onnx.defs.register_schema(_schema(op, domain))


def _schema(op: type[opdef.OpDef], domain: str) -> OpSchema:
    schema = OpSchema(
        op.op_type,
        domain,
        1,
        doc=op.__doc__ or "",
        inputs=_parameters(op, op.inputs),
        outputs=_parameters(op, op.outputs),
        type_constraints=[
            (name, [_type_string(dtype) for dtype in allowed], "")
            for name, allowed in {**op.types, _MIXED: opdef.all_dtypes()}.items()
            if _uses(op, name)
        ],
        attributes=[
            OpSchema.Attribute(attribute.name, _ATTRIBUTE_TYPES[attribute.type], required=False)
            for attribute in op.attributes
        ],
    )
    schema.set_type_and_shape_inference_function(functools.partial(_infer, op))
    return schema


def _uses(op: type[opdef.OpDef], variable: str) -> bool:
    merged = [_first_repeated(operands) for operands in (op.inputs, op.outputs)]
    if variable == _MIXED:
        return any(index is not None for index in merged)
    return any(operand.dtype == variable for operand in (*op.inputs[: merged[0]], *op.outputs[: merged[1]]))


def _first_repeated(operands: Sequence[opdef.Operand]) -> int | None:
    """Position of the first variadic operand, where others follow it: onnx allows one at the end only."""
    repeated = [index for index, operand in enumerate(operands) if operand.variadic]
    return repeated[0] if repeated and repeated[0] < len(operands) - 1 else None


def _parameters(op: type[opdef.OpDef], operands: Sequence[opdef.Operand]) -> list[OpSchema.FormalParameter]:
    """The operands; from a variadic one that is not the last on, all as one operand of mixed types."""
    merged = _first_repeated(operands)
    parameters = [_parameter(op, operand) for operand in operands[:merged]]
    if merged is not None:
        option = OpSchema.FormalParameterOption.Variadic
        parameters.append(OpSchema.FormalParameter("operands", _MIXED, param_option=option, is_homogeneous=False))
    return parameters


def _parameter(op: type[opdef.OpDef], operand: opdef.Operand) -> OpSchema.FormalParameter:
    option = OpSchema.FormalParameterOption.Single
    if operand.variadic:
        option = OpSchema.FormalParameterOption.Variadic
    elif operand.optional or operand in op.outputs:
        # What nobody reads may be left out.
        option = OpSchema.FormalParameterOption.Optional
    type_ = operand.dtype if operand.dtype in op.types else f"tensor({_onnx_name(operand.dtype)})"
    return OpSchema.FormalParameter(operand.name, type_, param_option=option)


def _onnx_name(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)


def _type_string(dtype: opdef.DType) -> str:
    return f"tensor({_onnx_name(opdef.dtype_name(dtype))})"


def _infer(op: type[opdef.OpDef], context: Any) -> None:
    """Shape inference of one node for onnx; a node that does not fit its definition gets no types here.

    The error for such a node is the verifier's, which sees the node's name.
    """
    attributes = {}
    for attribute in op.attributes:
        found = context.get_attribute(attribute.name)
        if found is not None:
            attributes[attribute.name] = onnx.helper.get_attribute_value(found)
    operands = {}
    for index, name in enumerate(op.operand_names(context.get_num_inputs(), attributes)):
        if context.has_input(index):
            operands[name] = _tensor_info(context.get_input_type(index))
    try:
        call = op.bind("", operands, attributes)
    except ValueError:
        return
    for index, info in enumerate(op.output_infos(call, context.get_num_outputs())):
        if index < context.get_num_outputs() and info.dtype is not None:
            context.set_output_type(index, onnx.helper.make_tensor_type_proto(int(info.dtype), _dims(info.shape)))


def _dims(shape: Sequence[dims.Dim] | None) -> list[int | str | None] | None:
    return None if shape is None else [dim if isinstance(dim, int | str) else None for dim in shape]


def _tensor_info(type_: onnx.TypeProto | None) -> opdef.TensorInfo:
    if type_ is None or not type_.HasField("tensor_type"):
        return opdef.TensorInfo(None, None)
    tensor = type_.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None) for dim in tensor.shape.dim
        )
    dtype = opdef.DType(tensor.elem_type) if tensor.elem_type else None
    return opdef.TensorInfo(dtype, shape)
