"""Loop to Scan: a Loop that walks a number of steps known before it becomes a Scan, which all other passes know.

Some exporters write every loop as `Loop`: sequences are captured or carried along unchanged and read by
`Gather(sequence, iteration)`.

Precondition: the number of steps is a constant of at least one (a Scan of no steps is an error) and at most
`MOST_STEPS`, or open, in a Loop that is marked never to run without a step (`std.STEPS`); the condition is never false,
and every carried value is a tensor whose shape is known to stay the same. A sequence read at the iteration number, plus
or minus a constant, or that many steps from the last one, is walked along; where the iteration number is used
otherwise, the numbers themselves are. Of a sequence that is not known to be as long as the loop the part is copied that
the loop reads.

Postcondition: the Loop is gone, and no Gather by iteration number is left that could be a walk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.graph.values import Dim
from lstm_lower.passes.loops.views.carried_shapes import staying, tell_shapes, values_of
from lstm_lower.passes.loops.views.linear_code import scalar
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, behind_identity
from lstm_lower.passes.loops.views.loop_pass import LoopPass, OnGraphs
from lstm_lower.passes.loops.views.scalar_evolution import ScalarEvolution
from lstm_lower.passes.shapes import state as state_known

# The numbers of the steps become a constant.
MOST_STEPS = 1 << 20


class LoopToScan(OnGraphs, LoopPass):
    """Turns Loops of known length into Scans."""

    def run(self, model: ir.Model) -> bool:
        """Converts until no Loop is left that can be one: of a Scan's results more is known than of a Loop's."""
        modified = False
        tell_shapes(model.graph, self.facts)
        while super().run(model):
            tell_shapes(model.graph, self.facts)
            modified = True
        return modified

    def graph(self, graph: ir.Graph) -> bool:
        """Converts every Loop, inner ones first."""
        modified = False
        for node in list(graph):
            if not std.ControlFlow.matches(node):
                continue
            for subgraph in subgraphs_of(node):
                modified |= self.graph(subgraph)
            if std.Loop.matches(node):
                modified |= self._convert(node)
        return modified

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Loops that have no reason to be one."""
        for node in all_nodes(model.graph):
            if std.Loop.matches(node) and self._obstacle(node) is None:
                yield node, "to be a Scan"

    def _convert(self, node: ir.Node) -> bool:
        obstacle = self._obstacle(node)
        if obstacle is not None:
            self.refuse(node, obstacle)
            return False
        steps = self._steps(node)
        assert steps is not None
        self._rebuild(node, node.attributes["body"].as_graph(), steps)
        # More may follow of what is computed from its results: how far the next loop walks.
        self.facts.look_again()
        return True

    def _steps(self, node: ir.Node) -> Dim | None:
        entries = self.facts.entries(node.inputs[0])
        return entries[0] if entries is not None and len(entries) == 1 else None

    def _obstacle(self, node: ir.Node) -> str | None:
        """Why a Loop cannot be a Scan."""
        steps, view = self._steps(node), std.Loop(node, self.facts)
        if steps is None or (isinstance(steps, int) and steps < 1) or not (isinstance(steps, int) or view.never_empty):
            return "the number of steps is not known to be one or more before the run"
        if isinstance(steps, int) and steps > MOST_STEPS:
            return f"a Scan would walk along the numbers of its {steps} steps, more than {MOST_STEPS}"
        if not view.is_counted:
            return "its condition may end it early"
        if not _shapes_stay(view, self.facts):
            return "the shape of a carried value is not known to stay the same"
        if any(self.facts.rank(value) is None for value in list(view.body.outputs)[1:]):
            return "onnxruntime's Scan asks for the rank of what leaves it, which is not known"
        return None

    def _rebuild(self, node: ir.Node, body: ir.Graph, steps: Dim) -> None:
        assert node.graph is not None
        space = self.context.space
        before = Builder(space, node.graph, before=node, scope=f"{node.name or std.Loop.op_type}/steps")
        trips = node.inputs[0]
        assert trips is not None
        trips = trips if isinstance(steps, int) else scalar(before, trips)
        iteration, condition = body.inputs[0], body.inputs[1]
        always = before.constant(np.asarray(1), ir.DataType.BOOL).value
        for user, position in list(condition.uses()):
            user.replace_input_with(position, always)
        states = list(node.inputs[2:])
        attribute_of_body = node.attributes.pop("body")
        results = [always if value is condition else value for value in list(body.outputs)[1:]]
        parameters = [*list(body.inputs)[2:], iteration]
        for parameter in parameters:
            parameter.type = parameter.type if parameter.type is not None else self.facts.type(parameter)
        self.facts.forget(*values_of(body))
        body.inputs.clear()
        body.inputs.extend(parameters)
        body.outputs.clear()
        body.outputs.extend(results)
        scan = ir.Node(
            "",
            std.Scan.op_type,
            [*states, _numbers(before, trips, steps)],
            [attribute_of_body, ir.AttrInt64("num_scan_inputs", 1)],
            outputs=[space.value(old.name or "output", old.type, None) for old in node.outputs],
            name=node.name,
            metadata_props=dict(node.metadata_props),
        )
        provenance.inherit(scan, node)
        space.facts.enter(scan)
        node.graph.insert_before(node, scan)
        for old, new in zip(node.outputs, scan.outputs, strict=True):
            replace(old, new, space)
        detach(node)
        loop = Loop(scan, space)
        evolution = ScalarEvolution(loop.facts, loop.body, iteration, {}, steps)
        numbers = loop.inputs[0].sequence
        for reader in list(loop.body):
            _walk(loop, reader, evolution, steps, numbers)
        loop.commit()
        # A Loop's carried values may have any shape; what is declared of a Scan's must be that of their initial values.
        for value in values_of(loop.body):
            state_known(value, self.facts)
        for result in [*(state.final for state in loop.states), *(output.sequence for output in loop.outputs)]:
            # What the model declares of its own outputs stays.
            if not result.is_graph_output():
                state_known(result, self.facts)


def _numbers(e: Builder, trips: ir.Value, steps: Dim) -> ir.Value:
    """The numbers of the steps."""
    if isinstance(steps, int):
        return e.constant(np.arange(steps)).value
    numbers = e.op(std.Range, e.constant(0), trips, e.constant(1))
    e.facts.tell(numbers, (steps,))
    return numbers


def _shapes_stay(loop: std.Loop, facts: Facts) -> bool:
    """Whether every carried value keeps its shape: if it has the first one before a step, it has it after the step."""
    kept = staying(loop.node, facts)
    for parameter, update in zip(loop.body.inputs[2:], loop.body.outputs[1:], strict=False):
        unchanged = behind_identity(update) is parameter and isinstance(facts.type(parameter), ir.TensorType)
        if parameter not in kept and not unchanged:
            return False
    return None not in loop.carried


def _walk(loop: Loop, node: ir.Node, evolution: ScalarEvolution, count: Dim, numbers: ir.Value) -> None:
    """Turns a Gather by iteration number into a sequence that the loop walks along."""
    gather, facts = std.Gather.of(node, loop.facts), loop.facts
    if gather is None:
        return
    place, indices = evolution.of(gather.indices), facts.shape(gather.indices)
    source = _outside(loop, gather.data)
    shape, axis = facts.shape(source), gather.axis
    if place is None or abs(place.step) != 1 or indices not in ((), (1,)):
        return
    if source is None or shape is None or axis is None:
        return
    reverse = place.step < 0
    low, length = (evolution.last(place) if reverse else place.first).known, shape[axis]
    if low is None or low < 0:
        return
    if isinstance(length, int) and isinstance(count, int) and low + count > length:
        return
    sequence = source
    if (low, count) != (0, length):
        before = loop.before("walk")
        sequence = _part(before, source, axis, low, count, numbers)
        before.set_shape(sequence, (*shape[:axis], count, *shape[axis + 1 :]))
    parameter = loop.space.value(loop.scope("element"), facts.type(source), (*shape[:axis], *shape[axis + 1 :]))
    loop.inputs.append(ScanInput(sequence, parameter, axis, reverse))
    element = loop.inside(before=node).unsqueeze(parameter, axis) if indices else parameter
    loop.substitute(node.outputs[0], element)


def _part(e: Builder, source: ir.Value, axis: int, low: int, count: Dim, numbers: ir.Value) -> ir.Value:
    """What a loop reads of a sequence; one that is too short is an error, as it is in the Loop."""
    if isinstance(count, int):
        return e.slice(source, low, low + count, axis)
    # Beyond a sequence's end a Slice would only be shorter, and with it the loop. onnxruntime makes a Slice of a Gather
    # by a Range, but not where there is a Cast between.
    places = e.op(std.Cast, numbers, to=int(ir.DataType.INT32))
    if low:
        places = e.op(std.Add, places, e.constant(low, ir.DataType.INT32))
    return e.op(std.Gather, source, places, axis=axis)


def _outside(loop: Loop, value: ir.Value) -> ir.Value | None:
    """The value of an outer scope that a value of the body is: a captured one, or a state that never changes."""
    for state in loop.states:
        if value is state.parameter:
            return state.initial if behind_identity(state.update) is value else None
    if any(value is x.parameter for x in loop.inputs):
        return None
    producer = value.producer()
    made_inside = value.graph is loop.body if producer is None else producer.graph is loop.body
    return None if made_inside else value
