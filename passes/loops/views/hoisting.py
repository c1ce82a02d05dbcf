"""What moves before a Loop even if it may run no step: the sizes that its body computes, and its constants."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import UnknownEntry
from lstm_lower.passes.loops.views.linear import INDICES
from lstm_lower.passes.loops.views.loop import Loop, makes_result
from lstm_lower.passes.loops.views.while_loop import WhileLoop


def hoist_sizes(loop: WhileLoop) -> bool:
    """Moves what computes sizes before a Loop, where that is the same at every step; whether there was anything.

    Of a Loop that may run no step nothing else may move before it: it might fail.
    """
    modified = hoist_initializers(loop)
    before = loop.before()
    inside = {*loop.body.inputs, *(output for node in loop.body for output in node.outputs)}
    results = set(loop.results())
    for node in list(loop.body):
        if makes_result(node) or (results.intersection(node.outputs) and std.Constant.matches(node)):
            # A body's output has to be made in the body.
            continue
        if inside.isdisjoint(operands(node)) and _never_fails(node, loop.facts):
            loop.body.outputs.clear()
            loop.body.remove(node)
            before.place(node)
            inside.difference_update(node.outputs)
            modified = True
    if modified:
        loop.commit()
    return modified


def _never_fails(node: ir.Node, facts: Facts) -> bool:
    view = facts.view(node)
    if isinstance(view, std.Constant | std.Shape | std.Size | std.Identity):
        return True
    if not isinstance(view, std.Standard) or len(node.outputs) != 1 or None in node.inputs:
        return False
    if isinstance(view, std.Elementwise) and not isinstance(view, std.Div | std.Mod | std.Pow | std.BitShift):
        known = all(facts.dtype(value) in {*INDICES, ir.DataType.BOOL} for value in (*node.inputs, view.output))
        shapes = [facts.shape(value) for value in node.inputs]
        return known and all(shape is not None and all(dim == 1 for dim in shape) for shape in shapes)
    if not isinstance(view, std.Moving | std.Concat):
        return False
    # What is known of the entries was computed in the same way.
    entries = facts.entries(view.output)
    return entries is not None and all(not isinstance(x, UnknownEntry) or x.value is not view.output for x in entries)


def hoist_initializers(loop: Loop) -> bool:
    """Makes a body's initializers constants before the loop; whether there were any."""
    initializers = list(loop.body.initializers.items())
    for name, initializer in initializers:
        assert initializer.const_value is not None
        tensor = initializer.const_value
        array = loop.before().op(std.Constant, value=ir.AttrTensor("value", tensor)).value
        del loop.body.initializers[name]
        loop.substitute(initializer, array)
    return bool(initializers)
