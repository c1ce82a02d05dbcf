"""Loop unrolling: a loop becomes its steps, one after the other, without control flow.

Precondition: a Scan whose number of steps is known. For targets that have no Scan, or that capture a graph without
control flow; and for loops of one step, which are that step.

Postcondition: the Scan is gone; the graph holds every step's nodes.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import detach
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput
from lstm_lower.passes.loops.views.loop_pass import LoopPass

# More nodes than this take a runtime longer to load than they save.
MOST_NODES = 200_000
# What Gather and Concat take; of strings onnxruntime's Gather takes only the first of a step.
GATHERED = frozenset(
    {
        *(ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL),
        *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64),
        *(ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64),
    }
)


class NotUnrollable(Exception):  # noqa: N818 (a verdict, not an error)
    """A loop cannot be unrolled; the message says why."""


class LoopUnrolling(LoopPass):
    """Unrolls loops, after other passes have made their bodies small."""

    on_blocks = True
    # Loops of more steps stay.
    most_steps: int | None = None

    def rewrite(self, loop: Loop) -> bool:
        """Unrolls one loop, where its number of steps is known."""
        if self.most_steps is not None and not (isinstance(loop.length, int) and loop.length <= self.most_steps):
            return False
        try:
            unroll(loop)
        except NotUnrollable as reason:
            self.refuse(loop.node, str(reason))
            return False
        return True


class SingleStepUnrolling(LoopUnrolling):
    """Unrolls loops of one step, which cost more than that step."""

    most_steps = 1


def unroll(loop: Loop) -> None:
    """Replaces a loop by its steps.

    Raises:
        NotUnrollable: the number of steps is not known, or there are too many.
    """
    steps = loop.length
    if not isinstance(steps, int):
        raise NotUnrollable("the number of steps is not known before the run")
    if steps * len(loop.body) > MOST_NODES:
        raise NotUnrollable(f"{steps} steps of {len(loop.body)} nodes are more than {MOST_NODES} nodes")
    if steps == 0:
        raise NotUnrollable("it has no steps")
    roles: list[ScanInput | ScanOutput] = [*loop.inputs, *loop.outputs]
    if not {loop.facts.dtype(role.sequence) for role in roles} <= GATHERED:
        raise NotUnrollable("the dtype of a sequence is not one that can be gathered and concatenated")
    for output in loop.outputs:
        if output.axis < 0 and loop.facts.rank(output.step) is None:
            raise NotUnrollable(f"the rank of '{output.sequence.name}' is not known")
    for node in all_nodes(loop.body):
        view = loop.facts.view(node)
        if isinstance(view, std.BatchNormalization) and view.training_mode:
            raise NotUnrollable("onnxruntime writes new statistics over the old ones, which the steps would share")
    editor = loop.before("unrolled")
    carried = [state.initial for state in loop.states]
    made: list[list[ir.Value]] = [[] for _ in loop.outputs]
    for step in range(steps):
        elements = [_element(editor, x, steps - 1 - step if x.reverse else step, steps) for x in loop.inputs]
        results = _copy(loop, editor, [*carried, *elements])
        carried = results[: len(carried)]
        for values, value in zip(made, results[len(carried) :], strict=True):
            values.append(value)
    for state, value in zip(loop.states, carried, strict=True):
        replace(state.final, value, loop.space)
    for output, values in zip(loop.outputs, made, strict=True):
        replace(output.sequence, _stacked(editor, output, values), loop.space)
    detach(loop.node)


def _element(editor: Builder, x: ScanInput, step: int, steps: int) -> ir.Value:
    rank, shape = editor.facts.rank(x.sequence), editor.facts.shape(x.parameter)
    axis = x.axis if rank is None else x.axis % rank
    if steps == 1:
        element = editor.squeeze(x.sequence, axis)
    else:
        element = editor.op(std.Gather, x.sequence, editor.constant(step), axis=axis, like=x.parameter)
    return element if shape in (None, editor.facts.shape(element)) else editor.set_shape(element, shape)


def _stacked(editor: Builder, output: ScanOutput, values: list[ir.Value]) -> ir.Value:
    axis = output.axis
    if axis < 0:
        rank = editor.facts.rank(output.step)
        assert rank is not None
        axis %= rank + 1
    parts: list[ir.Value] = []
    for value in reversed(values) if output.reverse else values:
        parts.append(editor.op(std.Unsqueeze, value, editor.ints(axis), like=parts[0] if parts else None))
    return editor.concat(parts, axis)


def _copy(loop: Loop, editor: Builder, arguments: list[ir.Value]) -> list[ir.Value]:
    """Puts one step's nodes before the loop; returns the body's results."""
    body, values = loop.body, {}
    for initializer in body.initializers.values():
        assert initializer.const_value is not None
        values[initializer] = editor.op(std.Constant, value=ir.AttrTensor("value", initializer.const_value)).value
    values.update(zip(body.inputs, arguments, strict=True))
    copier = Copier(values, captures=True, name=loop.names.another)
    editor.place(*copier.nodes(body))
    for value in [value for node in body for value in node.outputs]:
        copied = copier.values.get(value)
        if copied is not None:
            # Sizes are the same at every step.
            loop.facts.alike(copied, value)
    return [copier.values.get(result) or result for result in body.outputs]
