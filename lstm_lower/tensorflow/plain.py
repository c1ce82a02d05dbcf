"""Ops that make nothing of their own: constants, copies, shapes, what only waits or checks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.checkpoints.values import onnx_dtype, tensor_value
from lstm_lower.dtypes import is_complex
from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.graph.builder import Expr, detached
from lstm_lower.tensorflow.list_ops import zeros_like
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import Flow, Handle, Text, Value

handles = handlers("Constants, copies, shapes")


@handles("Const")
def _const(t: Translator, op: Op, scope: Scope) -> Value:  # noqa: ARG001
    if op.name in t.variables:
        return Handle(t.variables[op.name])
    declared, held = op.attr["dtype"].type, op.attr["value"].tensor.dtype
    if held != declared:
        raise InvalidModelError(f"{op}: value requires dtype {declared}, as the node has it, got {held}")
    dtype = onnx_dtype(declared)
    if dtype is None:
        return Text(f"of TensorFlow's dtype {declared}")
    tensor = op.attr["value"].tensor
    array = tensor_value(tensor, str(op))
    budget.charge(str(op), size=max(0, array.nbytes - tensor.ByteSize()))
    return Text("a string", array) if dtype == ir.DataType.STRING else t.constant(array, dtype, op.name)


@handles("Placeholder", "PlaceholderV2")
def _placeholder(t: Translator, op: Op, scope: Scope) -> Value:
    if op.name in t.variables:
        return Handle(t.variables[op.name])
    found = scope.find(f"{op.name}:0")
    if found is not None:
        return found
    raise UnsupportedOpError(f"{op}: requires a value, got none; name '{op.name}:0' among the inputs")


@handles("PlaceholderWithDefault")
def _default(t: Translator, op: Op, scope: Scope) -> Value:
    return t.value(op.inputs[0], scope)


@handles("Identity", "RefIdentity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape",
         "DebugGradientIdentity", "DebugIdentity", "DeepCopy", "Print", "ReadVariableXlaSplitND")  # fmt: skip
def _identity(t: Translator, op: Op, scope: Scope) -> Value:
    found = t.value(op.inputs[0], scope)
    if isinstance(found, Handle) and found.cell.reference and op.op != "RefIdentity":
        t.copies[f"{op.name}:0"] = found.cell
        return scope.read(found.cell)
    if (
        op.op == "StopGradient"
        and isinstance(found, Expr)
        and (found.dtype.is_floating_point() or is_complex(found.dtype))
    ):
        return detached(found)
    return found


@handles("IdentityN")
def _identities(t: Translator, op: Op, scope: Scope) -> list[Value]:
    return [t.value(name, scope) for name in op.inputs]


@handles("Equal", "NotEqual")
def _compared(t: Translator, op: Op, scope: Scope) -> list[Value]:
    """Constant strings, a network's phase for instance, are compared here: a model holds none."""
    values = [t.value(name, scope) for name in op.inputs]
    strings = [value.strings for value in values if isinstance(value, Text) and value.strings is not None]
    if len(strings) < len(values):
        return t.computed(op, scope)
    found = np.asarray((strings[0] == strings[1]) == (op.op == "Equal"), bool)
    return [t.constant(found, ir.DataType.BOOL, op.name)]


@handles("NoOp", "ControlTrigger", "Assert")
def _nothing(t: Translator, op: Op, scope: Scope) -> None:  # noqa: ARG001
    return None


@handles("Shape")
def _shape(t: Translator, op: Op, scope: Scope) -> Value:
    found = t.value(op.inputs[0], scope)
    if isinstance(found, Flow):
        # Asked for by the gradient of a branch, for zeros: another flow.
        return found
    expr = found if isinstance(found, Expr) else t.tensor(op.inputs[0], scope, op)
    return t.shape(expr).cast(ir.DataType.INT64 if op.attr["out_type"].type == 9 else ir.DataType.INT32)


@handles("ShapeN")
def _shapes(t: Translator, op: Op, scope: Scope) -> list[Value]:
    dtype = ir.DataType.INT64 if op.attr["out_type"].type == 9 else ir.DataType.INT32
    return [t.shape(expr).cast(dtype) for expr in t.inputs(op, scope)]


@handles("ZerosLike")
def _zeros_like(t: Translator, op: Op, scope: Scope) -> Value:
    found = t.value(op.inputs[0], scope)
    return found if isinstance(found, Flow) else zeros_like(t, op, scope)
