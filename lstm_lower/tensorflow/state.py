"""Variables: reads see what is in them now, assignments replace it.

Ops run in an order that TensorFlow itself could run them in; where nothing orders a read and an assignment, the read
comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

from lstm_lower.dims import agree
from lstm_lower.dtypes import dtype_name
from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.graph.builder import Expr
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.tensorflow.graph import split_name
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.translator import WRITES, Scope, Translator, handlers
from lstm_lower.tensorflow.values import INT64, Handle, Resource, Value

handles = handlers("Variables")

REFERENCES = ("Variable", "VariableV2", "TemporaryVariable", "AutoReloadVariable")
VARIABLES = (*REFERENCES, "VarHandleOp")

# What an assignment does with the old value.
_ASSIGNMENTS = {"Assign": None, "AssignAdd": "AddV2", "AssignSub": "Sub"}
# Of these a variable's initializer is one.
_FIRST = ("Assign", "AssignVariableOp")

# What changes a list in place.
_LISTS = (
    "StackPush", "StackPushV2", "StackPop", "StackPopV2", "TensorArrayWriteV3", "TensorArrayScatterV3",
    "TensorArraySplitV3", "TensorArrayGradV3", "TensorArrayWriteV2", "TensorArrayScatterV2", "TensorArraySplitV2",
    "TensorArrayGradV2",
)  # fmt: skip

# Families of ops that change variables: what is not converted of them must not be taken for a mere computation.
_CHANGING = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "SparseApply", "Assign", "Stateful", "Rng",
             "ResourceCountUpTo", "CountUpTo")  # fmt: skip
_CALLS = ("StatefulPartitionedCall",)


def is_write(op: str) -> bool:
    """Whether an op changes a variable."""
    return op in WRITES or (op.startswith(_CHANGING) and op not in _CALLS)


def writes(op: Op) -> bool:
    """Whether an op, or one within it, changes a variable or a list in place."""
    return is_write(op.op) or op.op in _LISTS or any(writes(inner) for region in op.regions for inner in region.ops)


def cell_of(t: Translator, name: str, scope: Scope, reader: Op) -> Resource:
    """The variable that a tensor stands for.

    Raises:
        UnsupportedOpError: it stands for none.
    """
    found = t.value(name, scope)
    if not isinstance(found, Handle):
        raise UnsupportedOpError(f"{reader}: requires a variable that the source knows, got '{name}', which is not one")
    return found.cell


@handles(*VARIABLES)
def _variable(t: Translator, op: Op, scope: Scope) -> Value:  # noqa: ARG001
    cell = t.variables.get(op.name)
    if cell is None:
        raise UnsupportedOpError(f"{op}: requires a variable that the source knows, got one that it does not")
    return Handle(cell)


def tensor_of(cell: Resource, scope: Scope, op: Op) -> Expr:
    """The numbers in a variable now.

    Raises:
        UnsupportedOpError: it holds something else.
    """
    found = scope.read(cell)
    if not isinstance(found, Expr):
        raise UnsupportedOpError(f"{op}: requires a variable of numbers, got '{cell.name}', which is not one")
    return found


@handles("ReadVariableOp", "_ReadVariablesOp")
def _read(t: Translator, op: Op, scope: Scope) -> Value:
    return scope.read(cell_of(t, op.inputs[0], scope, op))


@handles("DisableCopyOnRead", "DestroyResourceOp")
def _nothing(t: Translator, op: Op, scope: Scope) -> Value:  # noqa: ARG001
    return None


@handles("VarIsInitializedOp", "IsVariableInitialized")
def _initialized(t: Translator, op: Op, scope: Scope) -> Value:
    cell = cell_of(t, op.inputs[0], scope, op)
    return t.root.constant(cell.unset is None or scope.read(cell) is not cell.unset, ir.DataType.BOOL)


def initializes(op: Op) -> bool:
    """Whether an op gives a variable its first value: TensorFlow names it after the variable."""
    return op.op in _FIRST and op.name == f"{op.inputs[0].rpartition(':')[0]}/Assign"


def initializer_of(nodes: Mapping[str, Any], variables: Iterable[str]) -> str | None:
    """The group of initializers alone that gives all these variables their first values; `None` if there is none."""
    wanted = {f"{name}/Assign" for name in variables}
    for name, node in nodes.items():
        first = {split_name(waited)[0] for waited in node.input}
        if node.op == "NoOp" and wanted <= first and all(x in nodes and nodes[x].op in _FIRST for x in first):
            return name
    return None


@handles("VariableShape")
def _shape(t: Translator, op: Op, scope: Scope) -> Value:
    value = tensor_of(cell_of(t, op.inputs[0], scope, op), scope, op)
    shape = value.sizes()
    return shape if op.attr["out_type"].type == 9 else shape.cast(ir.DataType.INT32)


@handles("ResourceGather", "ResourceGatherNd")
def _gather(t: Translator, op: Op, scope: Scope) -> Value:
    value = tensor_of(cell_of(t, op.inputs[0], scope, op), scope, op)
    operands = [value, t.tensor(op.inputs[1], scope, op)]
    if op.op == "ResourceGatherNd":
        return emitted(t, "GatherNd", operands, op, scope)
    batch = op.attr["batch_dims"].i
    return emitted(t, "GatherV2", [*operands, t.root.constant(batch, INT64)], op, scope, batch_dims=batch)


def emitted(t: Translator, kind: str, operands: list[Expr], op: Op, scope: Scope, **attributes: Any) -> Expr:
    """The only output of an op of ours."""
    found = definition(DOMAIN, kind)
    assert found is not None
    return t.emit(found, operands, attributes, op.name, scope)[0]


def write(op: Op, scope: Scope, cell: Resource, value: Expr) -> Value:
    """Puts a value into a variable.

    Returns:
        What the op's output stands for: ops on reference variables return the reference.

    Raises:
        UnsupportedOpError: the value is of another dtype than the variable.
    """
    if cell.dtype is not None and value.dtype != cell.dtype:
        wanted, got = (dtype_name(dtype) for dtype in (cell.dtype, value.dtype))
        raise UnsupportedOpError(f"{op}: requires values of '{cell.name}', {wanted}, got {got}")
    scope.cells[cell] = value
    return Handle(cell) if cell.reference else None


@handles(*_ASSIGNMENTS, *(f"{name}VariableOp" for name in _ASSIGNMENTS), writes=True)
def _assign(t: Translator, op: Op, scope: Scope) -> Value:
    cell = cell_of(t, op.inputs[0], scope, op)
    value = t.tensor(op.inputs[1], scope, op)
    change = _ASSIGNMENTS[op.op.removesuffix("VariableOp")]
    if change is not None:
        value = emitted(t, change, [tensor_of(cell, scope, op), value], op, scope)
    elif op.op == "Assign" and ("validate_shape" not in op.attr or op.attr["validate_shape"].b):
        old = tensor_of(cell, scope, op).shape
        if not agree(old, value.shape):
            raise InvalidModelError(f"{op}: requires a value of shape {list(old or ())}, got {list(value.shape or ())}")
    return write(op, scope, cell, value)
