"""Constants in all the forms that models have for them, and small integers that are computed from shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.support.fuzz.scope import Input, Refused, Scope, Value

Array = np.ndarray[Any, Any]


def constant(scope: Scope, array: Array) -> Value:
    """A value that is always `array`."""
    forms = ["node", "node"]
    if not scope.is_function and scope.root.is_function is False:
        forms += ["initializer", "outermost", "outermost"]
        if scope.chance(0.15):
            forms += ["input", "default"]
    elif not scope.is_function:
        forms += ["initializer"]
    if array.size and array.size < 200 and (array == array.reshape(-1)[0]).all():
        forms += ["filled", "expanded"]
    match scope.random.choice(forms):
        case "node":
            return _node(scope, array)
        case "initializer":
            return scope.initializer(array)
        case "outermost":
            return scope.root.initializer(array)
        case "filled":
            shape = _node(scope, np.array(array.shape, np.int64))
            return scope.one("ConstantOfShape", shape, value=numpy_helper.from_array(array.reshape(-1)[:1]))
        case "expanded":
            fewer = array.reshape(-1)[:1].reshape([1] * scope.random.randint(0, array.ndim))
            return scope.one("Expand", _node(scope, fewer), _node(scope, np.array(array.shape, np.int64)))
        case form:
            name = scope.growth.fresh("k")
            if form == "default":
                scope.root.initializer(array, name)
                # A default may be overridden by a feed, so that nobody may take it for a constant.
                scope.growth.constants.discard(name)
            # Numbers that are no sizes may be fed otherwise.
            fixed = None if array.dtype.kind == "f" and scope.chance(0.5) else array
            scope.growth.inputs.append(Input(name, array.dtype, array.shape, list(array.shape), fixed))
            return scope.root.add_input(Value(name, array))


def _node(scope: Scope, array: Array) -> Value:
    fields: dict[str, Any] = {"value": numpy_helper.from_array(array)}
    if (
        scope.chance(0.3)
        and scope.growth.opset >= 12
        and array.dtype in (np.int64, np.float32)
        and array.ndim < 2
        and (array.size or array.ndim == 0)
    ):
        kind = "int" if array.dtype == np.int64 else "float"
        fields = {f"value_{kind}s": array.tolist()} if array.ndim else {f"value_{kind}": array.item()}
    made = scope.emit("Constant", [], known=[array], **fields)[0]
    scope.growth.constants.add(made.name)
    return made


def from_shapes(scope: Scope, array: Array) -> Value:
    """A scalar or vector of int64 that is computed from the shapes of other values.

    Raises:
        Refused: no value has such a size.
    """
    if array.ndim > 1:
        raise Refused("no vector")
    if array.ndim == 0:
        return scope.one("Squeeze", _entry(scope, int(array)), scope.constant([0], np.int64))
    if not array.size:
        raise Refused("nothing to compute")
    whole = [
        value
        for value in scope.visible().values()
        if value.is_tensor and value.shape == tuple(array.tolist()) and value.rank
    ]
    if whole and scope.chance(0.7):
        return scope.one("Shape", scope.random.choice(whole))
    parts = [
        _entry(scope, int(entry)) if index == 0 or scope.chance(0.7) else scope.constant([entry], np.int64)
        for index, entry in enumerate(array)
    ]
    if len(parts) == 1:
        return parts[0]
    return scope.one("Concat", *parts, axis=scope.random.choice([0, -1]))


def _entry(scope: Scope, size: int) -> Value:
    """A vector of one entry."""
    if abs(size) > 100:
        return scope.constant([size], np.int64)
    found = [
        (value, axis)
        for value in scope.visible().values()
        if value.is_tensor
        for axis, extent in enumerate(value.shape)
        if extent == size
    ]
    if not found or scope.chance(0.15):
        other = scope.pick(lambda value: value.rank > 0)
        axis = scope.random.randrange(other.rank)
        difference = scope.constant([size - other.shape[axis]], np.int64)
        return scope.one("Add", _size(scope, other, axis), difference)
    return _size(scope, *scope.random.choice(found))


def _size(scope: Scope, value: Value, axis: int) -> Value:
    signed = axis - value.rank if scope.chance(0.3) else axis
    form = scope.random.choice(["gather", "slice", "window"])
    if form == "window" and scope.growth.opset >= 15:
        end = {} if signed in (-1, value.rank - 1) and scope.chance(0.5) else {"end": signed + 1 or value.rank}
        return scope.one("Shape", value, start=signed, **end)
    shape = scope.one("Shape", value)
    if form == "gather":
        return scope.one("Gather", shape, scope.constant([signed], np.int64), axis=0)
    bounds = [scope.constant([bound], np.int64) for bound in (signed, signed + 1 or np.iinfo(np.int64).max, 0, 1)]
    return scope.one("Slice", shape, *bounds[: scope.random.choice([2, 3, 4])])
