"""Types and shapes of the results of control flow, from those of its bodies."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference.base import Inferred, Type, infers
from lstm_lower.graph.values import Alternatives, Dim, Entry, Partial


@infers(std.Scan)
def _scan(op: std.Scan) -> Inferred:
    """States keep their type; sequences stack the body's values over time."""
    facts, states = op.facts, op.states
    lengths = []
    for value, axis in zip(op.node.inputs[states:], op.input_axes, strict=True):
        shape = facts.shape(value)
        if shape is not None:
            lengths.append(shape[axis])
    length = next((dim for kind in (int, str) for dim in lengths if isinstance(dim, kind)), next(iter(lengths), None))
    results: Inferred = []
    for value, parameter, update in zip(op.node.inputs[:states], op.body.inputs, op.body.outputs, strict=False):
        # It is the parameter's at every step, and has as many axes as what a step makes of it.
        shape, rank = facts.shape(value), facts.rank(update)
        kept: Partial | None = facts.shape(parameter) if shape is None else shape
        results.append((facts.type(value), (None,) * rank if kept is None and rank is not None else kept))
    for value, axis in zip(op.body.outputs[states:], op.output_axes, strict=True):
        step: Partial | None = facts.shape(value)
        if step is not None:
            at = axis % (len(step) + 1)
            step = (*step[:at], length, *step[at:])
        results.append((facts.dtype(value), step))
    return results


@infers(std.If)
def _if(op: std.If) -> Inferred:
    """What both branches agree on."""
    first, second = op.branches
    results: Inferred = []
    for a, b in zip(first.outputs, second.outputs, strict=True):
        type_, common = _common(op, a, b)
        shapes = [shape for shape in (op.facts.shape(a), op.facts.shape(b)) if shape is not None]
        unlike = common is None and len(shapes) > 1
        results.append((type_, Alternatives(tuple(shapes)) if unlike else common))
    return results


def _common(op: std.Standard, a: ir.Value | None, b: ir.Value | None) -> tuple[Type, Partial | None]:
    types = op.facts.type(a), op.facts.type(b)
    shapes = op.facts.shape(a), op.facts.shape(b)
    shape = None
    if shapes[0] is not None and shapes[1] is not None and len(shapes[0]) == len(shapes[1]):
        shape = tuple(x if x == y else None for x, y in zip(shapes[0], shapes[1], strict=True))
    return types[0] if types[1] is None or types[0] == types[1] else None, shape


@infers(std.Loop)
def _loop(op: std.Loop) -> Inferred:
    """Carried values are the initial ones where there is no iteration; sequences have one element for each."""
    facts, body, carried = op.facts, op.body, op.carried
    results: Inferred = [_common(op, a, b) for a, b in zip(carried, body.outputs[1:], strict=False)]
    steps = _steps(op)
    for value in body.outputs[1 + len(carried) :]:
        step: Partial | None = facts.shape(value)
        if step is not None and not op.never_empty:
            # Without any iteration onnxruntime knows the sizes only that the body's declarations hold.
            step = tuple(dim if isinstance(dim, int) else None for dim in step)
        results.append((facts.dtype(value), None if step is None else (steps, *step)))
    return results


def _steps(op: std.Loop) -> Dim | None:
    """The number of steps of a Loop that nothing but its trip count ends."""
    counts = op.facts.entries(op.trips) if op.is_counted else None
    if counts is None or len(counts) != 1:
        return None
    (count,) = counts
    if isinstance(count, int):
        return max(count, 0)
    # Less than nothing is nothing.
    return None if isinstance(count, Entry) and not op.never_empty else count


@infers(std.SequenceMap)
def _sequence_map(op: std.SequenceMap) -> Inferred:
    """Sequences of what the body makes of each element."""
    types = [op.facts.type(value) for value in op.body.outputs]
    return [(None if type_ is None else ir.SequenceType(type_), None) for type_ in types]
