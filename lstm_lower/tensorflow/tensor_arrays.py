"""TensorArrays and Stacks of TensorFlow 1: lists that ops change in place, and so lie in cells.

A TensorArray of TensorFlow 0.12, whose ops are called V2, has a text as its handle, and a constant as its first flow.
"""

from __future__ import annotations

import dataclasses
import functools

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.tensorflow.element_lists import Fresh, TensorList, as_list
from lstm_lower.tensorflow.lists import INT32, dtype_of_elements, element, operand, place, scalar
from lstm_lower.tensorflow.places import divided, gather, joined, scatter
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.state import emitted
from lstm_lower.tensorflow.translator import Scope, Translator, handles
from lstm_lower.tensorflow.values import FLOW, INT64, Cell, Flow, Handle, Returned, Text, Value


def _cell(t: Translator, name: str, scope: Scope, op: Op) -> Cell:
    found = t.value(name, scope)
    if not isinstance(found, Handle):
        raise UnsupportedOpError(f"{op}: requires a TensorArray or a Stack, got '{name}', which is not one")
    return found.cell


def _held(cell: Cell, scope: Scope) -> TensorList:
    found = as_list(scope.read(cell))
    assert found is not None
    return found


@handles("Stack", "StackV2")
def _new_stack(t: Translator, op: Op, scope: Scope) -> Value:
    cell = Cell(op.name, dtype_of_elements(op, "elem_type"))
    assert cell.dtype is not None
    scope.cells[cell] = Fresh(t.root, None, cell.dtype)
    return Handle(cell)


@handles("StackPush", "StackPushV2")
def _push(t: Translator, op: Op, scope: Scope) -> Value:
    cell, pushed = _cell(t, op.inputs[0], scope, op), element(t, op.inputs[1], scope)
    if isinstance(pushed, Flow | Text):
        cell.holds_flows = True
        return pushed
    scope.cells[cell] = _held(cell, scope).push(pushed)
    return pushed


@handles("StackPop", "StackPopV2")
def _pop(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    if cell.holds_flows:
        return FLOW
    popped, rest = _held(cell, scope).pop(scope.floor)
    scope.cells[cell] = rest
    return _restored(t, popped, scope) if isinstance(popped, Returned) else popped


def _restored(t: Translator, found: Returned, scope: Scope) -> Handle:
    """A TensorArray that an iteration made and another finds again: one, on however many stacks its handle was."""
    body = scope.body()
    if (found.cell, body) not in t.restored:
        made = t.restored[found.cell, body] = dataclasses.replace(found.cell, gradients={})
        body.cells[made] = found.held
    return Handle(t.restored[found.cell, body])


@handles("StackClose", "StackCloseV2", "TensorArrayCloseV3", "TensorArrayCloseV2", "TensorArrayClose")
def _close(t: Translator, op: Op, scope: Scope) -> None:  # noqa: ARG001
    return None


@handles("TensorArrayV3", "TensorArrayV2")
def _new_array(t: Translator, op: Op, scope: Scope) -> list[Value]:
    grows = op.attr["dynamic_size"].b
    cell = Cell(op.name, dtype_of_elements(op, "dtype"), grows=grows)
    assert cell.dtype is not None
    size = scalar(t, op.inputs[0], scope, op)
    dims = op.attr["element_shape"].shape
    known = "element_shape" in op.attr and not dims.unknown_rank and all(dim.size >= 0 for dim in dims.dim)
    shape = t.root.constant([dim.size for dim in dims.dim], INT64) if known else None
    alike = "identical_element_shapes" in op.attr and op.attr["identical_element_shapes"].b
    scope.cells[cell] = Fresh(scope.builder, size, cell.dtype, shape, grows, alike=alike)
    return [Handle(cell), FLOW]


@handles("TensorArrayGradV3", "TensorArrayGradV2", "TensorArrayGradWithShape")
def _gradient_array(t: Translator, op: Op, scope: Scope) -> list[Value]:
    cell = _cell(t, op.inputs[0], scope, op)
    source = op.attr["source"].s.decode()
    if source not in cell.gradients:
        cell.gradients[source] = made = Cell(f"{cell.name}/{source}", cell.dtype)
        # Whoever asks first makes it, for all who ask for it later: it lies where the array lies.
        home = scope.home(cell)
        assert cell.dtype is not None
        held = _held(cell, home)
        home.cells[made] = Fresh(home.builder, held.length(), cell.dtype, like=held)
    return [Handle(cell.gradients[source]), FLOW]


@handles("TensorArrayReadV3", "TensorArrayReadV2")
def _read_array(t: Translator, op: Op, scope: Scope) -> Value:
    return _held(_cell(t, op.inputs[0], scope, op), scope).get(place(t, op.inputs[1], scope, op))


@handles("TensorArrayWriteV3", "TensorArrayWriteV2")
def _write_array(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    index, written = place(t, op.inputs[1], scope, op), element(t, op.inputs[2], scope)
    held = _held(cell, scope)
    scope.cells[cell] = held.put(index, written, add=_is_gradient(op, t, scope), grows=cell.grows)
    return FLOW


def _is_gradient(op: Op, t: Translator, scope: Scope) -> bool:
    """Whether a TensorArray is the gradient of another: who writes a place of it twice means the sum."""
    found = t.value(op.inputs[0], scope)
    return isinstance(found, Handle) and "/gradients" in found.cell.name


@handles("TensorArrayGatherV3", "TensorArrayGatherV2")
def _gather_array(t: Translator, op: Op, scope: Scope) -> Value:
    held = _held(_cell(t, op.inputs[0], scope, op), scope)
    return gather(held, operand(t, op.inputs[1], scope, op))


@handles("TensorArrayScatterV3", "TensorArrayScatterV2")
def _scatter_array(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    indices, values = (operand(t, name, scope, op) for name in op.inputs[1:3])
    add = functools.partial(emitted, t, "TensorScatterAdd", op=op, scope=scope) if _is_gradient(op, t, scope) else None
    scope.cells[cell] = scatter(_held(cell, scope), indices, values, add=add, grows=cell.grows)
    return FLOW


@handles("TensorArraySizeV3", "TensorArraySizeV2")
def _size_array(t: Translator, op: Op, scope: Scope) -> Value:
    return _held(_cell(t, op.inputs[0], scope, op), scope).length().cast(INT32)


@handles("TensorArrayConcatV3", "TensorArrayConcatV2")
def _concat_array(t: Translator, op: Op, scope: Scope) -> list[Value]:
    return joined(_held(_cell(t, op.inputs[0], scope, op), scope))


@handles("TensorArraySplitV3", "TensorArraySplitV2")
def _split_array(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    values, lengths = (operand(t, name, scope, op) for name in op.inputs[1:3])
    if _is_gradient(op, t, scope) and not isinstance(held := _held(cell, scope), Fresh):
        values = joined(held)[0] + values
    scope.cells[cell] = divided(values, lengths)
    return FLOW
