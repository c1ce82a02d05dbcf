"""Ideas: Scan, Loop, If and local functions, one in another."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.fuzz.ideas import grow, idea
from tests.support.fuzz.scope import Refused, Scope, Value, imports, type_of

DEEPEST = 3


def body_of(s: Scope) -> Scope:
    """A new body of control flow in a scope."""
    if s.depth >= DEEPEST:
        raise Refused("deep enough")
    return Scope(s.growth, s)


def grow_body(body: Scope) -> None:
    grow(body, body.random.randint(1, max(2, 12 - 4 * body.depth)))


def declare(scope: Scope, value: Value) -> onnx.ValueInfoProto:
    """What a body says of an input or output: everything, the rank, the dtype or nothing."""
    if not value.is_tensor:
        return helper.make_value_info(value.name, type_of(value.sample))
    dims: list[int | str | None] | None = None
    forms = ["dtype", "dtype", "rank", "names"] + (["sizes"] * 4 if scope.growth.pinned else [])
    match scope.random.choice(forms):
        case "rank":
            dims = [None] * value.rank
        case "names":
            dims = [scope.growth.fresh("dim") for _ in value.shape]
        case "sizes":
            dims = [None if scope.chance(0.1) else size for size in value.shape]
    return helper.make_value_info(value.name, type_of(value.sample, dims))


def graph_of(body: Scope, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
    """The graph of a scope."""
    # A value that leaves a body twice is written twice by onnxruntime, which then reads what nobody wrote.
    left: dict[str, Value] = {}
    for value in outputs:
        again = body.one("Identity", value) if value.name in left else value
        left[again.name] = again
    outputs = list(left.values())
    return helper.make_graph(
        body.nodes,
        body.growth.fresh("graph"),
        [declare(body, value) for value in inputs],
        [declare(body, value) for value in outputs],
        body.initializers,
    )


def entering(body: Scope, sample: Any) -> Value:
    """An input of a body."""
    return body.add_input(Value(body.input_name(), sample))


def own(body: Scope, value: Value) -> Value:
    """A value that the body computes itself, as its outputs must be."""
    made = {name for node in body.nodes for name in node.output}
    return value if value.name in made and body.chance(0.9) else body.one("Identity", value)


def next_state(body: Scope, state: Value) -> Value:
    """What a body passes on: something of the same dtype and shape."""
    alike = [
        value
        for name, value in body.values.items()
        if value.is_tensor and value.dtype == state.dtype and value.shape == state.shape
    ]
    match body.random.choice(["own", "own", "own", "sum", "sum", "same"]):
        case "own":
            return own(body, body.random.choice(alike[-4:]))
        case "sum" if state.dtype.kind in "fi":
            other = body.random.choice(alike[-4:])
            if body.chance(0.5):
                other = body.like(state.dtype, state.shape)
            return body.one("Add", *body.random.sample([state, other], 2))
    return own(body, state)


def results_of(body: Scope, count: int) -> list[Value]:
    """Values that leave a body."""
    made = [value for value in body.values.values() if value.is_tensor]
    left = [own(body, body.random.choice(made + made[-4:])) for _ in range(count)]
    return [body.one("Shape", value) if body.chance(0.15) else value for value in left]


@idea(9)
def scan(s: Scope) -> list[Value]:
    """A Scan with states, scan inputs along any axes in any direction, and captured values."""
    body = body_of(s)
    first = s.pick(lambda v: v.rank > 0)
    axis = s.random.randrange(first.rank)
    steps = first.shape[axis]
    scanned = [(first, axis)]
    for _ in range(s.random.randint(0, 2)):
        other = s.pick(lambda v: steps in v.shape)
        scanned.append((other, s.random.choice([i for i, size in enumerate(other.shape) if size == steps])))
    states = [s.pick(lambda v: v.is_float or s.chance(0.3)) for _ in range(s.random.choice([0, 1, 1, 2, 3]))]
    if s.chance(0.3):
        states = [s.constant(s.growth.array(state.shape, state.dtype, "zeros")) for state in states]
    backwards = [s.random.randint(0, 1) for _ in scanned]
    slices = [_slice(value, axis, back) for (value, axis), back in zip(scanned, backwards, strict=True)]
    # onnxruntime's Scan dies of a division by zero where it transposes what is empty, and of no steps of nothing.
    if any(
        not v.sample.size and (ax or not (piece.size or steps)) for (v, ax), piece in zip(scanned, slices, strict=True)
    ):
        raise Refused("onnxruntime would crash")
    inputs = [entering(body, state.sample) for state in states]
    inputs += [entering(body, piece) for piece in slices]
    grow_body(body)
    outputs = [next_state(body, state) for state in inputs[: len(states)]]
    stacked = results_of(body, s.random.randint(0 if states else 1, 3))
    fields: dict[str, Any] = {"num_scan_inputs": len(scanned), "body": graph_of(body, inputs, [*outputs, *stacked])}
    if any(axis for _, axis in scanned) or s.chance(0.3):
        fields["scan_input_axes"] = [ax - v.rank if s.chance(0.3) else ax for v, ax in scanned]
    if any(backwards) or s.chance(0.3):
        fields["scan_input_directions"] = backwards
    if stacked and s.chance(0.5) and steps and all(value.sample.size for value in stacked):
        fields["scan_output_axes"] = [s.random.randint(-v.rank - 1, v.rank) if s.chance(0.6) else 0 for v in stacked]
    if stacked and s.chance(0.4):
        fields["scan_output_directions"] = [s.random.randint(0, 1) for _ in stacked]
    operands = [*states, *(value for value, _ in scanned)]
    made = s.emit("Scan", operands, len(outputs) + len(stacked), **fields)
    if s.chance(0.12):  # an equal loop beside it, or one that differs in an operand
        if states and s.chance(0.5):
            operands[0] = s.like(states[0].dtype, states[0].shape)
        fields["body"] = copy.deepcopy(fields["body"])
        made += s.emit("Scan", operands, len(outputs) + len(stacked), **fields)
    return made


def _slice(value: Value, axis: int, backward: int) -> Any:
    if not value.shape[axis]:
        return np.zeros(np.delete(value.shape, axis), value.dtype)
    return np.take(value.sample, -1 if backward else 0, axis=axis)


@idea(5)
def loop(s: Scope) -> list[Value]:
    """A Loop: counted, with a condition or both; a state may change its shape."""
    body = body_of(s)
    trips = s.random.choice([0, 1, 2, 2, 3, 4])
    states = [s.pick(lambda v: v.is_float or s.chance(0.3)) for _ in range(s.random.choice([0, 1, 1, 2, 3]))]
    step = entering(body, np.array(0, np.int64))
    going = entering(body, np.array(1, bool))
    inputs = [entering(body, state.sample) for state in states]
    if s.chance(0.6):
        value = body.pick(lambda v: v.rank > 0 and v.shape[0] >= trips)
        body.one("Gather", value, step, axis=0)
    grow_body(body)
    outputs = [next_state(body, state) for state in inputs]
    form = s.random.choice(["same", "true", "less", "value"])
    if form == "less":
        again = body.one("Less", step, body.constant(s.random.randint(0, 3), np.int64))
    elif form == "true":
        again = own(body, body.constant(1, bool))
    elif form == "value":
        value = body.pick(lambda v: v.is_float and v.sample.size > 0)
        total = body.one("ReduceMax", body.one("Reshape", value, body.constant([-1], np.int64)), keepdims=0)
        again = body.one("Less", total, body.constant(s.random.choice([0.5, 3]), value.dtype))
    else:
        again = own(body, going)
    if s.chance(0.15) and states and inputs[0].rank and not s.growth.pinned:  # grows with every iteration
        outputs[0] = body.one("Concat", inputs[0], body.like(inputs[0].dtype, inputs[0].shape), axis=0)
    stacked = results_of(body, s.random.randint(0 if states else 1, 2))
    graph = graph_of(body, [step, going, *inputs], [again, *outputs, *stacked])
    count = None if form == "less" and s.chance(0.4) else s.ints(trips)
    start = None if s.chance(0.4) else s.constant(s.chance(0.9))
    made = s.emit("Loop", [count, start, *states], len(outputs) + len(stacked), body=graph)
    # Without any iteration a size is 0 where onnxruntime does not infer it, and what it infers depends on the form.
    for value, step in zip(made[len(outputs) :], stacked, strict=True):
        if value.shape[1:] != step.shape:
            s.drop(value)
    return made


@idea(4)
def branches(s: Scope) -> list[Value]:
    """An If whose branches agree in dtype, and mostly in shape."""
    conditions = [v for v in s.visible().values() if v.dtype == bool and v.shape in ((), (1,))]
    if conditions and s.chance(0.7):
        condition = s.random.choice(conditions)
    elif s.chance(0.6):
        value = s.pick(lambda v: v.is_float and v.sample.size > 0)
        flat = s.one("Reshape", value, s.constant([-1], np.int64))
        first = s.one("Gather", flat, s.constant(0, np.int64))
        condition = s.one("Greater", first, s.constant(0, value.dtype))
    else:
        condition = s.constant(s.chance(0.5))
    yes, no = body_of(s), body_of(s)
    grow_body(yes)
    if not yes.nodes:
        raise Refused("nothing in the branch")
    kept = results_of(yes, s.random.randint(1, 3))
    if s.chance(0.5):
        grow_body(no)
    others = []
    for value in kept:
        shape = value.shape if s.chance(0.9) else tuple(size + 1 for size in value.shape)
        others.append(own(no, no.like(value.dtype, shape)))
    graphs = {"then_branch": graph_of(yes, [], kept), "else_branch": graph_of(no, [], others)}
    return s.emit("If", [condition], len(kept), **graphs)


@idea(2)
def function(s: Scope) -> list[Value]:
    """A local function, called once or twice, perhaps by another one."""
    growth = s.growth
    if growth.within_functions > 1:
        raise Refused("deep enough")
    inner = Scope(growth, is_function=True)
    arguments = [s.pick() for _ in range(s.random.randint(1, 3))]
    inputs = [inner.add_input(Value(growth.fresh(), value.sample)) for value in arguments]
    growth.within_functions += 1
    grow(inner, s.random.randint(1, 5))
    if s.chance(0.3):
        with contextlib.suppress(Refused, ValueError, IndexError):
            function(inner)
    growth.within_functions -= 1
    fields: dict[str, Any] = {}
    defaults: list[onnx.AttributeProto] = []
    if s.chance(0.3):
        leaky = inner.one("LeakyRelu", inner.floats(), alpha=0.25)
        node = inner.nodes[-1]
        del node.attribute[:]
        node.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
        fields["slope"] = s.random.choice([0.25, 0.5])
        if s.chance(0.5):
            defaults.append(helper.make_attribute("slope", 0.75))
        results = [leaky, *results_of(inner, 1)]
    else:
        results = results_of(inner, s.random.randint(1, 2))
    results = list({value.name: value for value in results}.values())
    name = growth.fresh("function")
    growth.functions.append(
        helper.make_function(
            "local",
            name,
            [value.name for value in inputs],
            [value.name for value in results],
            inner.nodes,
            [helper.make_opsetid("", growth.opset), *imports(growth)[1:]],
            [] if defaults else list(fields),
            attribute_protos=defaults,
        )
    )
    fields = {} if defaults and s.chance(0.5) else fields
    try:
        made = s.emit(name, arguments, len(results), domain="local", **fields)
    except Refused:
        growth.functions.pop()
        raise
    if s.chance(0.4):
        again = [s.like(value.dtype, value.shape) for value in arguments]
        made += s.emit(name, again, len(results), domain="local", **fields)
    return made
