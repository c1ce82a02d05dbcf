"""Concat fusion: many small products and a Concat become one wide product.

Precondition: any Scan. `concat(a*p, b*q, c*r)`, where p, q and r need no carried state, is `concat(a, b, c) *
concat(p, q, r)`, and the second factor leaves the loop. Each part must have its carried factor's shape; a smaller
second factor is expanded. Where all parts leave the loop beside a Concat of the recurrence, time on axis 0 and in one
direction, the Concat leaves it instead and is split behind it.

Postcondition: one product where there were several. Work behind the loop finds the parts side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput
from lstm_lower.passes.loops.views.loop_pass import LoopPass


class ConcatFusion(LoopPass):
    """Turns concatenated products into a product of concatenations."""

    def rewrite(self, loop: Loop) -> bool:
        """Fuses in one loop."""
        dependence = Dependence(loop)
        modified, recurrent = False, dependence.recurrent()
        for node in dependence.order:
            concat = std.Concat.of(node, loop.facts)
            if concat is not None and dependence.node_level(node) == Level.CARRIED:
                modified |= node in recurrent and _leave_whole(loop, concat)
                modified |= self._fuse(loop, dependence, concat)
        if modified:
            loop.commit()
        return modified

    def _fuse(self, loop: Loop, dependence: Dependence, concat: std.Concat) -> bool:
        node, parts, axis, facts = concat.node, concat.parts, concat.axis, loop.facts
        pairs = [_factors(dependence, part) for part in parts]
        found = [pair for pair in pairs if pair is not None]
        if axis is None or len(parts) < 2 or len(found) < len(parts):
            return False
        results = set(loop.results())
        if any(len(dependence.readers(part)) > 1 or part in results for part in parts):
            # A product that is needed for itself stays anyway; one of them is worth it, more are not.
            kept = sum(len(dependence.readers(part)) > 1 or part in results for part in parts)
            if kept + 1 >= len(parts):
                return False
        if not all(facts.same_shape(part, carried) for part, (carried, _) in zip(parts, found, strict=True)):
            self.refuse(node, "the shapes of what it concatenates are not known to be those of the carried factors")
            return False
        editor = loop.inside(before=node)
        free: list[ir.Value] = []
        fitting = _are_joinable(facts, axis, parts, [factor for _, factor in found])
        for part, (_, factor) in zip(parts, found, strict=True):
            if fitting:
                free.append(factor)
                continue
            full = _expanded(editor, part, factor, [f for _, f in found])
            if full is None:
                self.refuse(node, "a factor would have to be expanded to a shape that is not known outside the loop")
                return False
            free.append(full)
        wide = editor.op(std.Concat, *(carried for carried, _ in found), axis=axis)
        product = editor.op(std.Mul, wide, editor.op(std.Concat, *free, axis=axis))
        loop.substitute(node.outputs[0], product)
        return True


def _leave_whole(loop: Loop, concat: std.Concat) -> bool:
    """Lets a concatenation leave the loop where all of its parts do."""
    parts, axis = concat.parts, concat.axis
    if axis is None or len(set(parts)) < len(parts) or len(parts) < 2:
        return False
    outputs = [output for part in parts if (output := _output_of(loop, part)) is not None]
    shapes = [shape for part in parts if (shape := loop.facts.shape(part)) is not None]
    sizes = [size for shape in shapes if isinstance(size := shape[axis], int)]
    if not len(outputs) == len(sizes) == len(parts) or len({output.reverse for output in outputs}) > 1:
        return False
    whole = loop.add_output(concat.output)
    whole.reverse = outputs[0].reverse
    e = loop.after("joined")
    split = e.node(std.Split, [whole.sequence, e.ints(*sizes)], len(parts), axis=axis + 1)
    for output, part in zip(outputs, split.outputs, strict=True):
        loop.outputs.remove(output)
        replace(output.sequence, part, loop.space)
    return True


def _output_of(loop: Loop, value: ir.Value) -> ScanOutput | None:
    return next((x for x in loop.outputs if x.axis == 0 and x.step is value), None)


def _factors(dependence: Dependence, value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """A product's carried factor and the one that needs no carried state."""
    node = value.producer()
    if not std.Mul.matches(node) or node.graph is not dependence.loop.body:
        return None
    a, b = node.inputs
    if a is None or b is None:
        return None
    levels = dependence.level(a), dependence.level(b)
    if levels[0] == Level.CARRIED and levels[1] != Level.CARRIED:
        return a, b
    if levels[1] == Level.CARRIED and levels[0] != Level.CARRIED:
        return b, a
    return None


def _are_joinable(facts: Facts, axis: int, parts: Sequence[ir.Value], factors: list[ir.Value]) -> bool:
    """Whether factors, though smaller than the parts, can be concatenated as they are and be broadcast then."""
    shapes = [facts.shape(value) for value in (*parts, *factors)]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
        return False
    own = known[len(parts) :]
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in own}
    return len(rest) == 1 and [shape[axis] for shape in known[: len(parts)]] == [shape[axis] for shape in own]


def _expanded(editor: Builder, part: ir.Value, factor: ir.Value, others: list[ir.Value]) -> ir.Value | None:
    """The factor in the part's shape."""
    facts = editor.facts
    if facts.same_shape(factor, part):
        return factor
    shape = facts.shape(part)
    assert shape is not None
    if all(isinstance(dim, int) for dim in shape):
        target = editor.ints(*[dim for dim in shape if isinstance(dim, int)]).value
    else:
        like = next((other for other in others if facts.same_shape(other, part)), None)
        if like is None:
            return None
        target = editor.op(std.Shape, like)
    return editor.op(std.Expand, factor, target)
