"""Ideas: recurrent cells and their gradients, as exporters and automatic differentiation write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.control import body_of, entering, graph_of, own
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Scope, Value


def _matrix(s: Scope, body: Scope, shape: tuple[int, ...]) -> Value:
    """A weight, outside the loop or inside."""
    return (s if s.chance(0.8) else body).like(s.growth.dtype, shape)


def _joined_or_apart(body: Scope, value: Value, weight: Value, state: Value, recurrent: Value) -> Value:
    """x @ W + h @ U, or the same as one product."""
    if body.chance(0.4):
        tall = body.one("Concat", weight, recurrent, axis=0)
        return body.one("MatMul", body.one("Concat", value, state, axis=-1), tall)
    if body.chance(0.3):
        return body.one("Gemm", state, recurrent, body.one("MatMul", value, weight))
    return body.one("Add", body.one("MatMul", value, weight), body.one("MatMul", state, recurrent))


def _gates(body: Scope, joined: Value, count: int) -> list[Value]:
    size = joined.shape[-1] // count
    if body.chance(0.5):
        fields: dict[str, Any] = {"num_outputs": count} if body.growth.opset >= 18 else {}
        return body.emit("Split", [joined], count, axis=-1, **fields)
    ends = [body.constant([size * i], np.int64) for i in range(count + 1)]
    axis = body.constant([joined.rank - 1], np.int64)
    return [body.one("Slice", joined, ends[i], ends[i + 1], axis) for i in range(count)]


def _sequence(s: Scope) -> tuple[Value, int]:
    """A sequence with at least one step, and the axis of its steps.

    onnxruntime's Scan dies of a division by zero where it transposes what is empty.
    """
    value = s.pick(lambda v: v.dtype == s.growth.dtype and v.rank == 3 and v.shape[0] > 0)
    axis = s.random.choice([0, 0, 0, 1]) if value.sample.size else 0
    return value, axis


@idea(3)
def cell(s: Scope) -> list[Value]:
    """An LSTM-like cell in a Scan."""
    xs, axis = _sequence(s)
    body = body_of(s)
    batch, size = (xs.shape[1 - axis], xs.shape[2])
    hidden = s.random.randint(1, 3)
    start = s.growth.array((batch, hidden), kind=s.random.choice(["zeros", "random"]))
    states = [s.constant(start), s.like(s.growth.dtype, (batch, hidden))]
    h, c = (entering(body, state.sample) for state in states)
    x = entering(body, np.take(xs.sample, 0, axis))
    weight, recurrent = _matrix(s, body, (size, 4 * hidden)), _matrix(s, body, (hidden, 4 * hidden))
    joined = _joined_or_apart(body, x, weight, h, recurrent)
    joined = body.one("Add", joined, _matrix(s, body, (4 * hidden,)))
    gates = _gates(body, joined, 4)
    kinds = ["Sigmoid", "Sigmoid", "Tanh", "Sigmoid"]
    i, f, g, o = (body.one(op, gate) for op, gate in zip(kinds, gates, strict=True))
    cell_state = body.one("Add", body.one("Mul", f, c), body.one("Mul", i, g))
    out = body.one("Mul", o, body.one("Tanh", cell_state))
    stacked = [
        own(body, value) for value in s.random.sample([out, cell_state, joined, i, g, o, h], s.random.randint(1, 4))
    ]
    graph = graph_of(body, [h, c, x], [out, cell_state, *stacked])
    back = s.random.randint(0, 1)
    fields: dict[str, Any] = {"scan_input_axes": [axis], "scan_input_directions": [back]}
    if s.chance(0.5) and batch:
        fields["scan_output_axes"] = [s.random.randint(0, 2) for _ in stacked]
        fields["scan_output_directions"] = [back for _ in stacked]
    return s.emit("Scan", [*states, xs], 2 + len(stacked), body=graph, num_scan_inputs=1, **fields)


@idea(3)
def cell_gradient(s: Scope) -> list[Value]:
    """The gradient of a simple recurrence: a reversed Scan that carries sums of products."""
    hs, axis = _sequence(s)
    steps, batch, hidden = hs.shape[axis], hs.shape[1 - axis], hs.shape[2]
    body = body_of(s)
    shape = (steps, batch, hidden) if axis == 0 else (batch, steps, hidden)
    above = s.like(s.growth.dtype, shape)
    zeros = s.growth.array((batch, hidden), kind="zeros")
    states = [
        s.constant(zeros),
        s.constant(np.zeros((hidden, hidden), hs.dtype)),
        s.constant(np.zeros(hidden, hs.dtype)),
    ]
    dh, dw, db = (entering(body, state.sample) for state in states)
    h, dy = (entering(body, np.take(value.sample, -1, axis)) for value in (hs, above))
    weight = _matrix(s, body, (hidden, hidden))
    total = body.one("Add", dh, dy)
    one = body.constant(1, hs.dtype)
    dz = body.one("Mul", total, body.one("Sub", one, body.one("Mul", h, h)))
    if s.chance(0.3):  # sums over rows as a product with ones
        ones = body.constant(np.ones((1, batch)), hs.dtype)
        row = body.one("Reshape", body.one("MatMul", ones, dz), body.constant([hidden], np.int64))
    else:
        fields: dict[str, Any] = {"keepdims": 0}
        row = body.one("ReduceSum", dz, body.constant([0], np.int64), **fields)
    dw_next = _accumulated(body, dw, h, dz)
    db_next = body.one("Add", *body.random.sample([db, row], 2))
    dh_next = body.one("Gemm", dz, weight, transB=1) if s.chance(0.5) else _through_transposed(body, dz, weight)
    stacked = [
        own(body, value) for value in s.random.sample([dz, total, dw_next, row, dh_next], s.random.randint(0, 2))
    ]
    if s.chance(0.3):
        states.append(states[0])
        unchanged = entering(body, zeros)
        extra_in, extra_out = [unchanged], [own(body, unchanged)]
    else:
        extra_in, extra_out = [], []
    graph = graph_of(body, [dh, dw, db, *extra_in, h, dy], [dh_next, dw_next, db_next, *extra_out, *stacked])
    count = 3 + len(extra_in) + len(stacked)
    if s.chance(0.3):  # reversed outside of the loop in place of inside
        backwards = [s.constant([value], np.int64) for value in (-1, np.iinfo(np.int64).min + 1, axis, -1)]
        hs, above = (s.one("Slice", value, *backwards) for value in (hs, above))
        directions = [0, 0]
    else:
        directions = [1, s.random.choice([1, 1, 0])]
    return s.emit(
        "Scan",
        [*states, hs, above],
        count,
        body=graph,
        num_scan_inputs=2,
        scan_input_axes=[axis, axis],
        scan_input_directions=directions,
        **({"scan_output_directions": [s.random.randint(0, 1) for _ in stacked]} if stacked else {}),
    )


def _accumulated(body: Scope, total: Value, left: Value, right: Value) -> Value:
    """total + left.T @ right, in one of the forms it is written in."""
    match body.random.choice(["gemm", "gemm sum", "matmul", "padded"]):
        case "gemm":
            return body.one("Add", total, body.one("Gemm", left, right, transA=1))
        case "gemm sum":
            return body.one("Gemm", left, right, total, transA=1)
        case "padded" if left.shape[1] > 0:
            product = body.one("MatMul", body.one("Transpose", left, perm=[1, 0]), right)
            rows = body.one("Slice", product, *(body.constant([bound], np.int64) for bound in (1, left.shape[1], 0)))
            padded = body.one("Pad", rows, body.constant([1, 0, 0, 0], np.int64))
            return body.one("Add", total, padded)
    product = body.one("MatMul", body.one("Transpose", left, perm=[1, 0]), right)
    return body.one("Add", *body.random.sample([total, product], 2))


def _through_transposed(body: Scope, value: Value, weight: Value) -> Value:
    return body.one("MatMul", value, body.one("Transpose", weight, perm=[1, 0]))
