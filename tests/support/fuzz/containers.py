"""Ideas: optional values, sequences that are empty, mapped, or carried by a Loop."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.support.fuzz.control import body_of, entering, graph_of, own
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


@idea(0.7)
def optional_value(s: Scope) -> list[Value]:
    """A tensor asked whether it is there: without an Optional, which no session hands over."""
    if s.growth.opset < 18:
        raise Refused("opset")
    value = s.pick()
    return [s.one("OptionalHasElement", value), s.one("OptionalGetElement", value)]


@idea(0.7)
def collected(s: Scope) -> Value:
    """A sequence that begins empty and takes a tensor in each step of a Loop; and what is joined of it."""
    value = s.pick(lambda v: v.is_float and v.rank > 0 and v.sample.size > 0)
    trips = s.random.randint(1, 3)
    body = body_of(s)
    step, going = entering(body, np.array(0, np.int64)), entering(body, np.array(1, bool))
    held = entering(body, [])
    part = body.one("Mul", value, body.one("Cast", step, to=helper.np_dtype_to_tensor_dtype(value.dtype)))
    if s.chance(0.3):
        part = body.one("Tanh", part)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    more = body.emit("SequenceInsert", [held, part], known=[[part.sample]])[0]
    again = own(body, going)
    type_ = helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, None))
    graph = helper.make_graph(
        body.nodes,
        body.growth.fresh("graph"),
        [*graph_of(body, [step, going], []).input, helper.make_value_info(held.name, type_)],
        [*graph_of(body, [], [again]).output, helper.make_value_info(more.name, type_)],
        body.initializers,
    )
    empty = s.emit("SequenceEmpty", [], known=[[]], dtype=kind)[0]
    samples = [np.asarray(value.sample * k, value.dtype) for k in range(trips)]
    made = s.emit("Loop", [s.ints(trips), None, empty], known=[samples], body=graph)[0]
    s.drop(empty)
    joined = s.one("ConcatFromSequence", made, axis=s.random.randrange(value.rank), new_axis=s.random.randint(0, 1))
    if s.chance(0.5):
        s.one("SequenceLength", made)
    if s.chance(0.5):
        s.one("SequenceAt", made, s.ints(s.random.randint(-trips, trips - 1)))
    s.drop(made)
    return joined


@idea(0.5)
def mapped(s: Scope) -> Value:
    """A sequence of which a body makes another, element by element."""
    if s.growth.opset < 17:
        raise Refused("opset")
    value = s.pick(lambda v: v.is_float and v.rank > 0 and v.sample.size > 0)
    parts = [value, *(s.like(value.dtype, value.shape) for _ in range(s.random.randint(0, 2)))]
    given = s.one("SequenceConstruct", *parts)
    body = body_of(s)
    element = entering(body, value.sample)
    made = body.one(s.random.choice(["Neg", "Tanh", "Abs"]), element)
    if s.chance(0.4):
        made = body.one("Add", made, body.like(value.dtype, value.shape))
    found = s.one("SequenceMap", given, body=graph_of(body, [element], [own(body, made)]))
    s.drop(given)
    joined = s.one("ConcatFromSequence", found, axis=0, new_axis=s.random.randint(0, 1))
    s.drop(found)
    return joined
