"""Ops on lists: those of TensorLists and optional values, and of TensorFlow 1's TensorArrays and Stacks.

The latter are lists that ops change in place, and so lie in cells. A TensorArray of TensorFlow 0.12, whose ops are
called V2, has a text as its handle, and a constant as its first flow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import UnknownEntry
from lstm_lower.opdef import DOMAIN, definition
from lstm_lower.passes.formulas.indices import uncast
from lstm_lower.passes.formulas.rows import tail_of
from lstm_lower.passes.loops.views.linear import Counting, LinearForm
from lstm_lower.tensorflow.attributes import attributes_of, dtype_attribute
from lstm_lower.tensorflow.packed_lists import Packed
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.state import emitted
from lstm_lower.tensorflow.tensor_list import Fresh, Put, Rows, TensorList, as_list, within
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import FLOW, INT64, Flow, Handle, OptionalValue, Resource, Returned, Text, Value

handles = handlers("TensorLists, TensorArrays and stacks, optional values")

_INT32 = ir.DataType.INT32

# Codes of the dtypes of handles in a GraphDef.
_VARIANT, _RESOURCE = 21, 20

# Ends of a Slice that walks backwards to the first element, as Slice and ReverseV2 have them.
_BEGINNINGS = ((-END,), (int(np.iinfo(np.int32).min),))


def _walk(indices: Expr) -> tuple[LinearForm, LinearForm, int] | None:
    """The first of indices that follow each other, up or down, the one behind the last, and the step."""
    facts = indices.builder.facts
    maker = facts.maker(uncast(indices))
    if isinstance(maker, std.Slice):
        turned = _walk(Expr(indices.builder, maker.data))
        bounds = facts.entries(maker.starts), facts.entries(maker.ends)
        if turned is None or maker.steps != (-1,) or bounds[0] != (-1,) or bounds[1] not in _BEGINNINGS:
            return None
        first, end, step = turned
        return end - LinearForm(step), first - LinearForm(step), -step
    if not isinstance(maker, std.Range):
        return None
    start, limit, delta = (_sum(facts, x) for x in maker.inputs)
    if start is None or limit is None or delta is None or delta.known not in (1, -1):
        return None
    return start, limit, delta.known


def _sum(facts: Facts, value: ir.Value | None) -> LinearForm | None:
    """A scalar as a sum of others, also one that is known to be an entry of a shape."""
    (entry,) = facts.entries(value) or (None,)
    if isinstance(entry, UnknownEntry) and facts.shape(entry.value) == ():
        value = entry.value
    return Counting(facts).of(value)


def _is_walk(indices: Expr, count: Expr, step: int) -> bool:
    """Whether indices are all places of a list of so many elements, from the first, or with -1 from the last."""
    walk, total = _walk(indices), _sum(count.builder.facts, count.value)
    ends = (LinearForm(0), total) if step > 0 else (total - LinearForm(1), LinearForm(-1)) if total is not None else ()
    return total is not None and walk == (*ends, step)


def _gather(held: TensorList, indices: Expr) -> Expr:
    """The elements at some places, as one tensor."""
    count = held.length()
    if _is_walk(indices, count, 1):
        return _stacked(held)
    # Where all are gathered, they are of one shape.
    rows = _stacked(held) if _is_walk(indices, count, -1) else held.rows()
    return rows.take(indices)


def _scatter(
    held: TensorList,
    indices: Expr,
    values: Expr,
    *,
    add: Callable[[list[Expr]], Expr] | None = None,
    grows: bool = False,
) -> TensorList:
    """A list some of whose elements a tensor's rows replace; where it grows, as many as the indices ask for.

    Args:
        held: the list.
        indices: places in it.
        values: the rows.
        add: emits a TensorScatterAdd, for a list to whose elements the rows are added.
        grows: whether the list does.
    """
    count, walk = held.length(), _walk(indices)
    new = held.empty or (grows and count.entries == (0,))
    if (new and walk is not None and (walk[0].known, walk[2]) == (0, 1)) or _is_walk(indices, count, 1):
        if isinstance(held, Fresh):
            return Rows(values)
        if add is not None:
            return Rows(_stacked(held) + values)
        raise UnsupportedOpError("a TensorArray must be new where it is written whole, got one in use")
    b = values.builder
    sizes = tail_of(values, 1)
    if held.empty or grows:
        # Without indices the largest is -1, as behind a list of none.
        largest = b.op(std.ReduceMax, b.concat([b.ints(-1), indices.cast(INT64)], 0), keepdims=0)
        count = count.maximum(largest + 1)
    if isinstance(held, Fresh):
        base = b.fill(0, b.concat([count.reshape(1), sizes], 0), held.element_dtype)
    else:
        base = (held.resized(count) if grows else held).rows()
    places = indices.cast(INT64).unsqueeze(1)
    return Rows(b.op(std.ScatterND, base, places, values) if add is None else add([base, places, values]))


def _stacked(held: TensorList) -> Expr:
    """The elements as one tensor."""
    return held.stacked() if isinstance(held, Packed) else held.rows()


def _in_a_row(held: TensorList) -> list[Expr]:
    """The elements one behind another, and the length of each."""
    if isinstance(held, Packed):
        return [*held.joined()]
    elements = _elements(held)
    if elements:
        b = elements[0].builder
        return [b.concat(elements, 0), b.concat([x.sizes().slice(0, 1, axis=0) for x in elements], 0)]
    rows = held.rows()
    b = rows.builder
    sizes = rows.sizes()
    joined = b.op(std.Reshape, rows, b.concat([b.ints(-1), sizes.slice(2, END, axis=0)], 0))
    lengths = b.op(std.Expand, sizes.slice(1, 2, axis=0), sizes.slice(0, 1, axis=0))
    return [joined, lengths]


def _elements(held: TensorList) -> list[Expr] | None:
    """The elements of a list that was written one by one; `None` where it was made otherwise."""
    written: dict[Any, Value] = {}
    added = set()
    while isinstance(held, Put) and held.index.entries is not None:
        place = held.index.entries[0]
        if place in added:
            return None
        written.setdefault(place, held.element)
        added |= {place} if held.add else set()
        held = held.base
    if not isinstance(held, Fresh) or {*written} != {*range(len(written))}:
        return None
    found = [written[number] for number in range(len(written))]
    return found if all(isinstance(x, Expr) for x in found) and held.length().entries == (len(found),) else None


def _divided(values: Expr, lengths: Expr) -> TensorList:
    """Elements that stand one behind another."""
    b = values.builder
    tail = tail_of(values, 1)
    if _are_equal(lengths):
        return Rows(b.op(std.Reshape, values, b.concat([lengths.sizes(), b.ints(-1), tail], 0)))
    sizes = lengths.cast(INT64)
    counts = sizes * b.op(std.ReduceProd, tail, keepdims=1)
    tails = b.op(std.Expand, tail.unsqueeze(0), b.concat([sizes.sizes(), tail.sizes()], 0))
    shapes = b.concat([sizes.unsqueeze(1), tails], 1)
    known = None if values.shape is None else (None, *values.shape[1:])
    return Packed(Rows(values.reshape(-1)), Rows(counts), Rows(shapes), known)


def _are_equal(numbers: Expr) -> bool:
    """Whether all numbers are surely the same."""
    facts = numbers.builder.facts
    maker = facts.maker(uncast(numbers))
    if isinstance(maker, std.Expand):
        return facts.elements(maker.node.inputs[0]) == 1
    known = facts.constant(numbers.value)
    return facts.uniform(numbers.value) is not None or (known is not None and len({*known.reshape(-1).tolist()}) <= 1)


def _list(t: Translator, name: str, scope: Scope, op: Op) -> TensorList:
    """A list, or what a TensorArray holds now."""
    value = t.value(name, scope)
    held = as_list(scope.read(value.cell) if isinstance(value, Handle) else value)
    if held is None:
        raise UnsupportedOpError(f"{op}: requires a list, got '{name}', which is not one")
    return held


def _scalar(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """An int64 scalar."""
    found = t.tensor(name, scope, op).cast(INT64)
    return found if found.shape == () else found.reshape()


def _place(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """A place in a list that is read."""
    return within(scope.floor, _scalar(t, name, scope, op))


def _operand(t: Translator, name: str, scope: Scope, op: Op) -> Expr:
    """A tensor that is read where the op stands, be it in a branch."""
    return within(scope.floor, t.tensor(name, scope, op))


def _element(t: Translator, name: str, scope: Scope) -> Value:
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


def _dtype_of_elements(op: Op, *names: str) -> ir.DataType:
    """The dtype of a list's elements; lists of lists are of the dtype of what these hold, which nobody asks for."""
    if any(op.attr[name].type in (_VARIANT, _RESOURCE) for name in names if name in op.attr):
        return ir.DataType.FLOAT
    return dtype_attribute(op, *names)


@handles("EmptyTensorList")
def _empty(t: Translator, op: Op, scope: Scope) -> Value:
    return Fresh(t.root, None, _dtype_of_elements(op, "element_dtype"), t.tensor(op.inputs[0], scope, op))


@handles("TensorListReserve")
def _reserve(t: Translator, op: Op, scope: Scope) -> Value:
    shape = t.tensor(op.inputs[0], scope, op)
    return Fresh(scope.builder, _scalar(t, op.inputs[1], scope, op), _dtype_of_elements(op, "element_dtype"), shape)


@handles("TensorListFromTensor")
def _from_tensor(t: Translator, op: Op, scope: Scope) -> Value:
    return Rows(t.tensor(op.inputs[0], scope, op))


@handles("TensorListStack")
def _stack(t: Translator, op: Op, scope: Scope) -> Value:
    return _stacked(_list(t, op.inputs[0], scope, op))


@handles("TensorListGather", "TensorArrayGatherV3", "TensorArrayGatherV2")
def _gathered(t: Translator, op: Op, scope: Scope) -> Value:
    return _gather(_list(t, op.inputs[0], scope, op), _operand(t, op.inputs[1], scope, op))


@handles("TensorListScatter", "TensorListScatterV2")
def _scattered(t: Translator, op: Op, scope: Scope) -> Value:
    tensor, indices = (_operand(t, name, scope, op) for name in op.inputs[:2])
    count = _scalar(t, op.inputs[3], scope, op) if op.op.endswith("V2") else None
    return _scatter(Fresh(scope.builder, count, tensor.dtype), indices, tensor)


@handles("TensorListScatterIntoExistingList")
def _scattered_into(t: Translator, op: Op, scope: Scope) -> Value:
    tensor, indices = (_operand(t, name, scope, op) for name in op.inputs[1:3])
    return _scatter(_list(t, op.inputs[0], scope, op), indices, tensor, grows=True)


@handles("TensorListConcat", "TensorListConcatV2", "TensorArrayConcatV3", "TensorArrayConcatV2")
def _concat(t: Translator, op: Op, scope: Scope) -> list[Value]:
    return _in_a_row(_list(t, op.inputs[0], scope, op))


@handles("TensorListSplit")
def _split(t: Translator, op: Op, scope: Scope) -> Value:
    return _divided(*(_operand(t, op.inputs[number], scope, op) for number in (0, 2)))


@handles("TensorListGetItem", "TensorArrayReadV3", "TensorArrayReadV2")
def _get(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).get(_place(t, op.inputs[1], scope, op))


@handles("TensorListSetItem", "TensorArrayWriteV3", "TensorArrayWriteV2")
def _set(t: Translator, op: Op, scope: Scope) -> Value:
    held, index = _list(t, op.inputs[0], scope, op), _place(t, op.inputs[1], scope, op)
    handle, element = t.value(op.inputs[0], scope), _element(t, op.inputs[2], scope)
    if not isinstance(handle, Handle):
        return held.put(index, element, grows=op.attr["resize_if_index_out_of_bounds"].b)
    scope.cells[handle.cell] = held.put(index, element, add=handle.cell.sums, grows=handle.cell.grows)
    return FLOW


@handles("TensorListPushBack")
def _push_back(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).push(_element(t, op.inputs[1], scope))


@handles("TensorListPopBack")
def _pop_back(t: Translator, op: Op, scope: Scope) -> list[Value]:
    popped, rest = _list(t, op.inputs[0], scope, op).pop(scope.floor)
    return [rest, popped]


@handles("TensorListResize")
def _resize(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).resized(_scalar(t, op.inputs[1], scope, op))


@handles("TensorListLength", "TensorArraySizeV3", "TensorArraySizeV2")
def _length(t: Translator, op: Op, scope: Scope) -> Value:
    return _list(t, op.inputs[0], scope, op).length().cast(_INT32)


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
    return sizes.cast(INT64 if op.attr["shape_type"].type == 9 else _INT32)


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
    return OptionalValue(tuple(_element(t, name, scope) for name in op.inputs))


@handles("OptionalNone")
def _none(t: Translator, op: Op, scope: Scope) -> Value:  # noqa: ARG001
    return OptionalValue(None)


@handles("OptionalGetValue")
def _optional_value(t: Translator, op: Op, scope: Scope) -> list[Value]:
    found = t.value(op.inputs[0], scope)
    if not isinstance(found, OptionalValue) or found.components is None:
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


def _cell(t: Translator, name: str, scope: Scope, op: Op) -> Resource:
    found = t.value(name, scope)
    if not isinstance(found, Handle):
        raise UnsupportedOpError(f"{op}: requires a TensorArray or a Stack, got '{name}', which is not one")
    return found.cell


def _held(cell: Resource, scope: Scope) -> TensorList:
    found = as_list(scope.read(cell))
    assert found is not None
    return found


@handles("Stack", "StackV2")
def _new_stack(t: Translator, op: Op, scope: Scope) -> Value:
    cell = Resource(op.name, _dtype_of_elements(op, "elem_type"))
    assert cell.dtype is not None
    scope.cells[cell] = Fresh(t.root, None, cell.dtype)
    return Handle(cell)


@handles("StackPush", "StackPushV2")
def _push(t: Translator, op: Op, scope: Scope) -> Value:
    cell, pushed = _cell(t, op.inputs[0], scope, op), _element(t, op.inputs[1], scope)
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
    cell = Resource(op.name, _dtype_of_elements(op, "dtype"), grows=grows)
    assert cell.dtype is not None
    size = _scalar(t, op.inputs[0], scope, op)
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
        cell.gradients[source] = made = Resource(f"{cell.name}/{source}", cell.dtype, sums=True)
        # Whoever asks first makes it, for all who ask for it later: it lies where the array lies.
        home = scope.home(cell)
        assert cell.dtype is not None
        held = _held(cell, home)
        home.cells[made] = Fresh(home.builder, held.length(), cell.dtype, like=held)
    return [Handle(cell.gradients[source]), FLOW]


@handles("TensorArrayScatterV3", "TensorArrayScatterV2")
def _scatter_array(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    indices, values = (_operand(t, name, scope, op) for name in op.inputs[1:3])
    add = functools.partial(emitted, t, "TensorScatterAdd", op=op, scope=scope) if cell.sums else None
    scope.cells[cell] = _scatter(_held(cell, scope), indices, values, add=add, grows=cell.grows)
    return FLOW


@handles("TensorArraySplitV3", "TensorArraySplitV2")
def _split_array(t: Translator, op: Op, scope: Scope) -> Value:
    cell = _cell(t, op.inputs[0], scope, op)
    values, lengths = (_operand(t, name, scope, op) for name in op.inputs[1:3])
    if cell.sums and not isinstance(held := _held(cell, scope), Fresh):
        values = _in_a_row(held)[0] + values
    scope.cells[cell] = _divided(values, lengths)
    return FLOW
