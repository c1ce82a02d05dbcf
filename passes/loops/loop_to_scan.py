"""Loop to Scan: a Loop that walks a fixed number of steps becomes a Scan, which all other passes know.

Some exporters write every loop as `Loop`: sequences are captured or carried along unchanged and read by
`Gather(sequence, iteration)`.

Precondition: the number of steps is a constant of at least one (a Scan of no steps is an error) and at most
`MOST_STEPS`, the condition is never false, and every carried value is a tensor whose shape is known to stay the same. A
sequence read at the iteration number, plus or minus a constant, is walked along; where the iteration number is used
otherwise, the numbers themselves are.

Postcondition: the Loop is gone, and no Gather by iteration number is left that could be a walk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Emitter, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.loops.loop_invariant_code_motion import behind_identity
from lstm_lower.passes.loops.views.base import LoopPass, OnGraphs
from lstm_lower.passes.loops.views.loop import Loop, ScanInput
from lstm_lower.passes.shapes import state as state_known

# The numbers of the steps become a constant.
MOST_STEPS = 1 << 20
_INDICES = frozenset({ir.DataType.INT32, ir.DataType.INT64})


class LoopToScan(OnGraphs, LoopPass):
    """Turns Loops of fixed length into Scans."""

    def run(self, model: ir.Model) -> bool:
        """Converts until no Loop is left that can be one: of a Scan's results more is known than of a Loop's."""
        modified = False
        while super().run(model):
            self.facts.look_again()
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

    def ensures(self, model: ir.Model) -> None:
        """Every Loop that is left has a reason to be one.

        Raises:
            ir.passes.PostconditionError: one has none.
        """
        super().ensures(model)
        for node in all_nodes(model.graph):
            if std.Loop.matches(node) and self._obstacle(node) is None:
                raise self.broken(node, "to be a Scan")

    def _convert(self, node: ir.Node) -> bool:
        obstacle = self._obstacle(node)
        if obstacle is not None:
            self.refuse(node, obstacle)
            return False
        self._rebuild(node, node.attributes["body"].as_graph(), self._steps(node))
        return True

    def _steps(self, node: ir.Node) -> int:
        given = self.facts.constant(node.inputs[0])
        return 0 if given is None else int(given.reshape(-1)[0])

    def _obstacle(self, node: ir.Node) -> str | None:
        """Why a Loop cannot be a Scan."""
        body, steps = node.attributes["body"].as_graph(), self._steps(node)
        if steps < 1:
            return "the number of steps is not known to be one or more before the run"
        if steps > MOST_STEPS:
            return f"a Scan would walk along the numbers of its {steps} steps, more than {MOST_STEPS}"
        if not _always_true(node, body, self.facts):
            return "its condition may end it early"
        if not _shapes_stay(node, body, self.facts):
            return "the shape of a carried value is not known to stay the same"
        if any(self.facts.rank(value) is None for value in list(body.outputs)[1:]):
            return "onnxruntime's Scan asks for the rank of what leaves it, which is not known"
        return None

    def _rebuild(self, node: ir.Node, body: ir.Graph, steps: int) -> None:
        assert node.graph is not None
        space = self.context.space
        before = Emitter(space, node.graph, before=node, scope=f"{node.name or std.Loop.op_type}/steps")
        iteration, condition = body.inputs[0], body.inputs[1]
        always = before.constant(np.asarray(1), ir.DataType.BOOL)
        for user, position in list(condition.uses()):
            user.replace_input_with(position, always)
        states = list(node.inputs[2:])
        attribute_of_body = node.attributes.pop("body")
        results = [always if value is condition else value for value in list(body.outputs)[1:]]
        parameters = [*list(body.inputs)[2:], iteration]
        for parameter in parameters:
            parameter.type = parameter.type if parameter.type is not None else self.facts.type(parameter)
        self.facts.forget(*_values(body))
        body.inputs.clear()
        body.inputs.extend(parameters)
        body.outputs.clear()
        body.outputs.extend(results)
        scan = ir.Node(
            "",
            std.Scan.op_type,
            [*states, before.constant(np.arange(steps))],
            [attribute_of_body, ir.AttrInt64("num_scan_inputs", 1)],
            outputs=[space.value(old.name or "output", old.type, None) for old in node.outputs],
            name=node.name,
            metadata_props=dict(node.metadata_props),
        )
        space.facts.enter(scan)
        node.graph.insert_before(node, scan)
        for old, new in zip(node.outputs, scan.outputs, strict=True):
            replace(old, new, space)
        detach(node)
        loop = Loop(scan, space)
        for reader in list(loop.body):
            _walk(loop, reader, _Index(iteration, steps, self.facts))
        loop.commit()
        # A Loop's carried values may have any shape; what is declared of a Scan's must be that of their initial values.
        for value in _values(loop.body):
            state_known(value, self.facts)
        for result in [*(state.final for state in loop.states), *(output.sequence for output in loop.outputs)]:
            # What the model declares of its own outputs stays.
            if not result.is_graph_output():
                state_known(result, self.facts)


def _always_true(node: ir.Node, body: ir.Graph, facts: Facts) -> bool:
    """Whether the condition holds before every step."""
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        first = facts.constant(given)
        if first is None or not bool(first.reshape(-1)[0]):
            return False
    last = behind_identity(body.outputs[0])
    if last is body.inputs[1]:
        return True
    constant = facts.constant(last)
    return constant is not None and bool(constant.reshape(-1)[0])


def _shapes_stay(node: ir.Node, body: ir.Graph, facts: Facts) -> bool:
    """Whether every carried value keeps its shape: if it has the first one before a step, it has it after the step."""
    carried = list(zip(node.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False))
    first = {parameter: facts.shape(initial) for initial, parameter, _ in carried}
    assumed = facts.assuming(first, set(_values(body)))
    for _, parameter, update in carried:
        if not isinstance(facts.type(parameter), ir.TensorType):
            return False
        if behind_identity(update) is not parameter and not assumed.same_shape(update, parameter):
            return False
    return None not in node.inputs[2:]


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
        for subgraph in subgraphs_of(node):
            yield from _values(subgraph)


@dataclasses.dataclass(frozen=True)
class _Index:
    """The iteration number of a loop of known length, and what is computed from it."""

    iteration: ir.Value
    steps: int
    facts: Facts

    def affine(self, value: ir.Value | None) -> tuple[int, int] | None:
        """`(a, b)` where a value is `a * iteration + b`, of one element."""
        if value is self.iteration:
            return 1, 0
        constant = self.facts.constant(value)
        if constant is not None:
            return (0, int(constant.reshape(-1)[0])) if constant.size == 1 and constant.dtype.kind in "iu" else None
        match self.facts.maker(value):
            case std.Identity() | std.Unsqueeze() | std.Squeeze() | std.Reshape() as op:
                return self.affine(op.data)
            case std.Cast() as op:
                return self.affine(op.data) if op.to in _INDICES else None
            case std.Where() as op:
                return self._chosen(op)
            case std.Add() | std.Sub() | std.Mul() | std.Min() | std.Max() as op if len(op.inputs) == 2:
                left, right = self.affine(op.inputs[0]), self.affine(op.inputs[1])
                return None if left is None or right is None else self._combined(op, left, right)
        return None

    def _combined(self, op: std.Standard, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int] | None:
        match op:
            case std.Add():
                return left[0] + right[0], left[1] + right[1]
            case std.Sub():
                return left[0] - right[0], left[1] - right[1]
            case std.Mul():
                if left[0] and right[0]:
                    return None
                return left[0] * right[1] + right[0] * left[1], left[1] * right[1]
        below = self._never_above(left, right)
        if below is None:
            return None
        return left if below == isinstance(op, std.Min) else right

    def _chosen(self, choice: std.Where) -> tuple[int, int] | None:
        """A choice that falls the same way at every step, as the one between counting from the front and the end."""
        condition = std.Less.of(choice.condition.producer(), self.facts)
        if condition is None:
            return None
        left, right = self.affine(condition.inputs[0]), self.affine(condition.inputs[1])
        if left is None or right is None:
            return None
        ends = [self._at(left, step) < self._at(right, step) for step in (0, self.steps - 1)]
        return self.affine(choice.yes if ends[0] else choice.no) if ends[0] == ends[1] else None

    def _never_above(self, left: tuple[int, int], right: tuple[int, int]) -> bool | None:
        """Whether one affine value is never above another, `False` when never below, `None` when they cross."""
        gaps = [self._at(left, step) - self._at(right, step) for step in (0, self.steps - 1)]
        if max(gaps) <= 0:
            return True
        return False if min(gaps) >= 0 else None

    @staticmethod
    def _at(form: tuple[int, int], step: int) -> int:
        return form[0] * step + form[1]


def _walk(loop: Loop, node: ir.Node, index: _Index) -> None:
    """Turns a Gather by iteration number into a sequence that the loop walks along."""
    gather, facts = std.Gather.of(node, loop.facts), loop.facts
    if gather is None:
        return
    form, indices = index.affine(gather.indices), facts.shape(gather.indices)
    source = _outside(loop, gather.data)
    shape, axis = facts.shape(source), gather.axis
    if form is None or abs(form[0]) != 1 or indices not in ((), (1,)):
        return
    if source is None or shape is None or axis is None:
        return
    first, last = form[1], form[0] * (index.steps - 1) + form[1]
    low, high, length = min(first, last), max(first, last) + 1, shape[axis]
    if low < 0 or (isinstance(length, int) and high > length):
        return
    sequence = source
    if (low, high) != (0, length):
        before = loop.before("walk")
        sequence = before.state(before.slice(source, low, high, axis), (*shape[:axis], index.steps, *shape[axis + 1 :]))
    parameter = loop.space.value(loop.scope("element"), facts.type(source), (*shape[:axis], *shape[axis + 1 :]))
    loop.inputs.append(ScanInput(sequence, parameter, axis, form[0] < 0))
    element = loop.inside(before=node).unsqueeze(parameter, axis) if indices else parameter
    loop.substitute(node.outputs[0], element)


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
