"""TensorLists and optional values: the ops that make, change and read them."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.builder import Expr
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.tensorflow.attributes import attributes_of, dtype_attribute
from lstm_lower.tensorflow.element_lists import Fresh, Rows, TensorList, as_list, within
from lstm_lower.tensorflow.places import divided, gather, joined, scatter, stacked
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.translator import Scope, Translator, handles
from lstm_lower.tensorflow.values import FLOW, INT64, Flow, Handle, Optional, Value

INT32 = ir.DataType.INT32
VARIANT, RESOURCE = 21, 20


def _list(t: Translator, name: str, scope: Scope, op: Op) -> TensorList:
    found = as_list(t.value(name, scope))
    if found is None:
        raise UnsupportedOpError(f"{op}: requires a list, got '{name}', which is not one")
    return found


def scalar(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """An int64 scalar."""
    found = t.tensor(name, scope, op).cast(INT64)
    return found if found.shape == () else found.reshape()


def place(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """A place in a list that is read."""
    return within(scope.floor, scalar(t, name, scope, op))


def operand(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """A tensor that is read where the op stands, be it in a branch."""
    return within(scope.floor, t.tensor(name, scope, op))


def element(t: Translator, name: str, scope: Scope) -> Value:
    """What is put into a list: of a reference variable its value now."""
    found = t.value(name, scope)
    if isinstance(found, Handle) and found.cell.reference:
        return scope.read(found.cell)
    return found


def zeros_like(t: Translator, op: Op, scope: Scope) -> Value:
    """Zeros of a tensor's shape; of a list, a list of as many."""
    found = t.value(op.inputs[0], scope)
    if isinstance(found, TensorList):
        return Fresh(t.root, found.length(), None, like=found)
    return t.emit(_defined("ZerosLike"), [t.tensor(op.inputs[0], scope, op)], {}, op.name, scope)[0]


def _defined(name: str) -> type:
    found = definition(DOMAIN, name)
    assert found is not None
    return found


def dtype_of_elements(op: Op, *names: str) -> ir.DataType:
    """The dtype of a list's elements; lists of lists are of the dtype of what these hold, which nobody asks for."""
    if any(op.attr[name].type in (VARIANT, RESOURCE) for name in names if name in op.attr):
        return ir.DataType.FLOAT
    return dtype_attribute(op, *names)


@handles("EmptyTensorList")
def _empty(t: Translator, op: Op, scope: Scope) -> Value:
    return Fresh(t.root, None, dtype_of_elements(op, "element_dtype"), t.tensor(op.inputs[0], scope, op))


@handles("TensorListReserve")
def _reserve(t: Translator, op: Op, scope: Scope) -> Value:
    shape = t.tensor(op.inputs[0], scope, op)
    return Fresh(scope.builder, scalar(t, op.inputs[1], scope, op), dtype_of_elements(op, "element_dtype"), shape)


@handles("TensorListFromTensor")
def _from_tensor(t: Translator, op: Op, scope: Scope) -> Value:
    return Rows(t.tensor(op.inputs[0], scope, op))


@handles("TensorListStack")
def _stack(t: Translator, op: Op, scope: Scope) -> Value:
    return stacked(_list(t, op.inputs[0], scope, op))


@handles("TensorListGather")
def _gathered(t: Translator, op: Op, scope: Scope) -> Value:
    return gather(_list(t, op.inputs[0], scope, op), operand(t, op.inputs[1], scope, op))


@handles("TensorListScatter", "TensorListScatterV2")
def _scattered(t: Translator, op: Op, scope: Scope) -> Value:
    tensor, indices = (operand(t, name, scope, op) for name in op.inputs[:2])
    count = scalar(t, op.inputs[3], scope, op) if op.op.endswith("V2") else None
    return scatter(Fresh(scope.builder, count, tensor.dtype), indices, tensor)


@handles("TensorListScatterIntoExistingList")
def _scattered_into(t: Translator, op: Op, scope: Scope) -> Value:
    tensor, indices = (operand(t, name, scope, op) for name in op.inputs[1:3])
    return scatter(_list(t, op.inputs[0], scope, op), indices, tensor, grows=True)


@handles("TensorListConcat", "TensorListConcatV2")
def _concat(t: Translator, op: Op, scope: Scope) -> list[Value]:
    return joined(_list(t, op.inputs[0], scope, op))


@handles("TensorListSplit")
def _split(t: Translator, op: Op, scope: Scope) -> Value:
    return divided(*(operand(t, op.inputs[number], scope, op) for number in (0, 2)))


@handles("TensorListGetItem")
def _get(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).get(place(t, op.inputs[1], scope, op))


@handles("TensorListSetItem")
def _set(t: Translator, op: Op, scope: Scope) -> Value:
    found, index = _list(t, op.inputs[0], scope, op), place(t, op.inputs[1], scope, op)
    return found.put(index, element(t, op.inputs[2], scope), grows=op.attr["resize_if_index_out_of_bounds"].b)


@handles("TensorListPushBack")
def _push_back(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).push(element(t, op.inputs[1], scope))


@handles("TensorListPopBack")
def _pop_back(t: Translator, op: Op, scope: Scope) -> list[Value]:
    popped, rest = _list(t, op.inputs[0], scope, op).pop(scope.floor)
    return [rest, popped]


@handles("TensorListResize")
def _resize(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).resized(scalar(t, op.inputs[1], scope, op))


@handles("TensorListLength")
def _length(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).length().cast(INT32)


@handles("TensorListElementShape")
def _element_shape(t: Translator, op: Op, scope: Scope) -> Value:
    found = _list(t, op.inputs[0], scope, op)
    shape = found.element_shape
    if shape is None and (isinstance(found, Fresh) or found.various):
        known = found.shape if isinstance(found, Fresh) else None
        sizes = t.root.constant(-1, INT64) if known is None else known
    elif shape is not None and (found.various or all(isinstance(size, int) for size in shape)):
        sizes = t.root.constant([size if isinstance(size, int) else -1 for size in shape], INT64)
    else:
        sizes = found.sizes()
    return sizes.cast(INT64 if op.attr["shape_type"].type == 9 else INT32)


@handles("TensorListConcatLists")
def _concat_lists(t: Translator, op: Op, scope: Scope) -> Value:
    first, second = (_list(t, name, scope, op).rows() for name in op.inputs)
    return Rows(first.builder.concat([first, second], 0))


@handles("AddN")
def _add_n(t: Translator, op: Op, scope: Scope) -> Value:
    values = [t.value(name, scope) for name in op.inputs]
    if any(isinstance(value, Flow) for value in values):
        return FLOW
    if any(isinstance(value, TensorList) for value in values):
        lists = [_list(t, name, scope, op) for name in op.inputs]
        total = lists[0]
        for other in lists[1:]:
            total = total.plus(other)
        return total
    found = _defined("AddN")
    return t.emit(found, t.inputs(op, scope), attributes_of(op, found), op.name, scope)[0]


@handles("OptionalFromValue")
def _optional(t: Translator, op: Op, scope: Scope) -> Value:
    return Optional(tuple(element(t, name, scope) for name in op.inputs))


@handles("OptionalNone")
def _none(t: Translator, op: Op, scope: Scope) -> Value:  # noqa: ARG001
    return Optional(None)


@handles("OptionalGetValue")
def _optional_value(t: Translator, op: Op, scope: Scope) -> list[Value]:
    found = t.value(op.inputs[0], scope)
    if not isinstance(found, Optional) or found.components is None:
        raise UnsupportedOpError(f"{op}: requires an optional value that is there, got one that is not")
    while found.division is not None:
        side = _side(t, found.division.condition, scope)
        if side is None:
            raise UnsupportedOpError(f"{op}: must be read on one side of the branch that made it, got a reader outside")
        found = found.side(side)
    assert found.components is not None
    return list(found.components)


def _side(t: Translator, condition: ir.Value, scope: Scope | None) -> int | None:
    """On which side of a condition a region lies."""
    while scope is not None:
        if scope.side is not None and t.origin(scope.side[0]) is t.origin(condition):
            return scope.side[1]
        scope = scope.outer
    return None
