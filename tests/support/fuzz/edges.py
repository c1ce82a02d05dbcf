"""Ideas: numbers at the edge of their type, and loops over the types that few operators take.

What is made on the way is hidden from other ideas: onnxruntime sums up large integers as doubles, and its Gather takes
one string of a row.
"""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.support.fuzz.control import body_of, entering, graph_of, own
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Array, Scope, Value

# To these 1 cannot be added exactly, or they wrap when they are doubled.
EDGES = {"float32": 2.0**24, "float64": 2.0**53, "float16": 2048.0, "int32": 2**30, "int64": 2**62}
RARE = ["int8", "uint8", "int16", "uint16", "uint32", "uint64", "bool"]


def _constant(s: Scope, array: Array) -> Value:
    """A constant of this very graph."""
    made = s.emit("Constant", [], known=[array], value=numpy_helper.from_array(array))[0]
    s.growth.constants.add(made.name)
    return made


def _hide(s: Scope, *values: Value) -> None:
    for value in values:
        s.drop(value)


@idea()
def wrapping_sums(s: Scope) -> Value:
    """A carried sum of integers beyond their range."""
    dtype = np.dtype(s.random.choice(["int32", "int64"]))
    limits, size = np.iinfo(dtype), s.random.randint(1, 3)
    numbers = s.growth.numbers.integers(limits.min, limits.max, (s.random.randint(2, 5), size, size), dtype)
    body = body_of(s)
    total, x = entering(body, numbers[0]), entering(body, numbers[1])
    added = body.one("MatMul", x, _constant(body, numbers[0])) if s.chance(0.3) else x
    if s.chance(0.3):
        added = body.one("Div", added, _constant(body, np.array(s.random.choice([2, -3, 7]), dtype)))
    again = body.one(s.random.choice(["Add", "Add", "Sub"]), total, added)
    first, xs = _constant(s, numbers[0]), _constant(s, numbers[1:])
    wrapped = s.one("Scan", first, xs, body=graph_of(body, [total, x], [again]), num_scan_inputs=1)
    result = s.one("Mod", wrapped, s.constant(1009, dtype))
    _hide(s, first, xs, wrapped)
    return result


@idea()
def edge_quotient(s: Scope) -> Value:
    """The least integer divided."""
    dtype = np.dtype(s.random.choice(["int32", "int64"]))
    least = _constant(s, np.full(s.random.randint(1, 3), np.iinfo(dtype).min, dtype))
    quotient = s.one("Div", least, s.constant(s.random.choice([2, 3, -5]), dtype))
    result = s.one("Mod", quotient, s.constant(1009, dtype))
    _hide(s, least, quotient)
    return result


@idea()
def edge_constants(s: Scope) -> Value:
    """A value times what is left of tensors of one value, computed where it is not exact."""
    factor = s.pick(lambda value: value.dtype.name in EDGES)
    shape = s.one("Shape", factor)
    numbers = [np.array(x).astype(factor.dtype) for x in (EDGES[factor.dtype.name], 1)]
    constants = [_constant(s, number) for number in numbers]
    edge, one = (
        s.emit("Expand", [value, shape], known=[np.full(factor.shape, number)])[0]
        for value, number in zip(constants, numbers, strict=True)
    )
    wide = s.emit("Add", [edge, one], known=[np.full(factor.shape, numbers[0] + numbers[1])])[0]
    left = s.one("Sub", wide, edge)
    _hide(s, *constants, edge, wide)
    return s.one("Mul", factor, left)


@idea()
def rare_types(s: Scope) -> list[Value]:
    """A Scan whose state and sequence are of a type for which there are hardly any operators."""
    # Equal takes strings since 19.
    dtype = s.random.choice(RARE + ["str"] * 3 * (s.growth.opset >= 19))
    shape = [s.random.randint(1, 2) for _ in range(s.random.randint(0, 2))]
    numbers: Array = s.growth.numbers.integers(0, 2, (s.random.randint(2, 6), *shape))
    samples: Array = numbers.astype(dtype).astype(object if dtype == "str" else dtype)
    body = body_of(s)
    state, x = entering(body, samples[0, ...]), entering(body, samples[1, ...])
    kept = _constant(body, samples[-1, ...]) if s.chance(0.3) else x
    graph = graph_of(body, [state, x], [own(body, kept), own(body, body.random.choice([state, x]))])
    first, xs = _constant(s, samples[0, ...]), _constant(s, samples[1:])
    directions = [s.random.randint(0, 1)]
    made = s.emit("Scan", [first, xs], 2, body=graph, num_scan_inputs=1, scan_input_directions=directions)
    seen = [s.one("Equal", value, first) if dtype == "str" else s.one("Cast", value, to=1) for value in made]
    _hide(s, first, xs, *made)
    return seen
