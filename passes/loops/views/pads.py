"""Tensors padded with zeros: the gradient of a cut.

`pad(a, behind) + pad(b, before)`, where the parts lie side by side, is `concat(a, b)`.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import lone_reader
from lstm_lower.graph.facts import Facts


def joined_pads(e: Builder, node: ir.Node) -> ir.Value | None:
    """The concatenation that a sum of padded tensors is; `None` where it is none.

    Args:
        e: emits, right before the sum.
        node: an Add that no other sum of padded tensors reads.
    """
    if _feeds_sum(e.facts, node):
        return None
    placed = _leaves(e.facts, node)
    if len({axis for axis, *_ in placed}) != 1:
        return None
    placed.sort(key=lambda place: place[1])
    axis, at = placed[0][0], 0
    for _, start, size, _ in placed:
        if start != at:
            return None
        at += size
    shape = e.facts.shape(node.outputs[0])
    if shape is None or shape[axis] != at:
        return None
    return e.op(std.Concat, *(value for *_, value in placed), axis=axis)


def lone_element(facts: Facts, sequence: ir.Value, *, last: bool) -> ir.Value | None:
    """What stands in the last place of a sequence of zeros, or in the first one, with an axis of time of one step.

    Args:
        facts: what is known of the sequence.
        sequence: time on axis 0, at least one step.
        last: which of the two places.

    Returns:
        `None` where it is not known to be such a sequence.
    """
    pad = std.Pad.of(sequence.producer(), facts)
    if pad is None or not _fills_with_zeros(pad):
        return None
    shape, widths = pad.shape(), pad.widths
    if not shape or shape[0] != 1 or widths is None:
        return None
    (before, behind), *others = widths
    return pad.data if (behind if last else before) == 0 and all(sides == (0, 0) for sides in others) else None


def _fills_with_zeros(pad: std.Pad) -> bool:
    return pad.mode == "constant" and (pad.value is None or pad.facts.uniform(pad.value) == 0.0)


def _feeds_sum(facts: Facts, node: ir.Node) -> bool:
    user = facts.view(lone_reader(node.outputs[0]))
    return isinstance(user, std.Add) and is_padded(user)


def is_padded(op: std.Add) -> bool:
    """Whether an operand of a sum is a padded tensor."""
    return std.Pad in map(type, map(op.facts.maker, op.inputs))


def _leaves(facts: Facts, node: ir.Node) -> list[tuple[int, int, int, ir.Value]]:
    """The places of all terms of a sum; none where a term is not padded."""
    found: list[tuple[int, int, int, ir.Value]] = []
    waiting = [node]
    while waiting:
        for value in waiting.pop().inputs:
            maker = value.producer() if value is not None else None
            if value is None or maker is None:
                return []
            if std.Add.matches(maker) and maker.graph is node.graph and lone_reader(value) is not None:
                waiting.append(maker)
            # What is repeated along another axis cannot be joined.
            elif facts.same_shape(value, node.outputs[0]) and (place := _place(facts, value)) is not None:
                found.append(place)
            else:
                return []
    return found


def _place(facts: Facts, value: ir.Value) -> tuple[int, int, int, ir.Value] | None:
    """Axis, start and size of what a Pad puts among zeros, and that itself."""
    pad = std.Pad.of(value.producer(), facts)
    if pad is None or not _fills_with_zeros(pad):
        return None
    shape, pads = pad.shape(), pad.pads
    if shape is None or pads is None or any(min(sides) < 0 for sides in pads):
        return None
    padded = [axis for axis, sides in enumerate(pads) if any(sides)]
    size = shape[padded[0]] if len(padded) == 1 else None
    return (padded[0], pads[padded[0]][0], size, pad.data) if isinstance(size, int) else None
