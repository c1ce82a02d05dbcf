"""Gradients of loops and branches: the same graphs run in reverse over what the forward ones saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import remove_unread
from lstm_lower.graph.form import node_label
from lstm_lower.graph.standard.control_flow import STEPS
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import Dim
from lstm_lower.passes.formulas.kernels import widened
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates
from lstm_lower.passes.gradients.reverse import ReverseMode
from lstm_lower.passes.gradients.saving import ForwardSteps, Handing
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.while_loop import WhileLoop
from lstm_lower.passes.randomness import draws


@dataclasses.dataclass
class _Carried:
    """What the backward body carries: the gradient of a state, or a sum that grows from step to step.

    Attributes:
        initial: before the first backward step.
        parameter: the body's input.
        update: the body's value after the step.
    """

    initial: Expr
    parameter: Expr
    update: Expr


class _BackwardLoop:
    """A backward loop under construction: what Scan and Loop have in common.

    Attributes:
        outside: emits around it.
        dys: what flows back into the forward loop.
        inner: emits the backward body.
        reverse: the walk through the forward body.
        states: position of a forward state -> its gradient.
        sums: value from outside that the forward body reads -> what has flowed into it over the steps.
    """

    def __init__(self, b: Builder, dys: Cotangents, body: ir.Graph, skipped: tuple[int, int], count: int) -> None:
        """Prepares.

        Args:
            b: emits around it.
            dys: what flows back into the forward loop.
            body: the forward body.
            skipped: the number of the body's inputs and outputs before its states.
            count: the number of states.
        """
        self.outside, self.dys = b, dys
        self.body = body
        self.inner = b.inner("backward")
        self.reverse = ReverseMode(self.inner, dys.active)
        self.states: dict[int, _Carried] = {}
        self.sums: dict[ir.Value, _Carried] = {}
        self._parameters = list(body.inputs[skipped[0] : skipped[0] + count])
        self._updates = list(body.outputs[skipped[1] : skipped[1] + count])
        self.steps = list(body.outputs[skipped[1] + count :])
        for j, pair in enumerate(zip(self._parameters, self._updates, strict=True)):
            if not (dys.needs(skipped[0] + j) or any(value in dys.active for value in pair)):
                continue
            gradient = dys[j]
            parameter = self.inner.parameter(gradient, "gradient", None)
            self._tell(parameter, *pair)
            self.states[j] = _Carried(gradient, parameter, parameter)
            self.reverse.add(pair[1], parameter)

    def _tell(self, parameter: Expr, before: ir.Value, after: ir.Value) -> None:
        """States the part of a state's shape that is the same in every step."""
        shapes = [self.outside.facts.shape(value) for value in (before, after)]
        if shapes[0] is not None and shapes[1] is not None and len(shapes[0]) == len(shapes[1]):
            same: list[Dim | None] = [a if a == b else None for a, b in zip(*shapes, strict=True)]
            self.inner.set_shape(parameter, same)

    def run(self, forward: ForwardSteps) -> None:
        """Walks through the forward body; the gradients of what it makes have been added."""
        self.reverse.run(self.body)
        for j, state in self.states.items():
            before, after = self._parameters[j], self._updates[j]
            found = self.reverse.gradients.get(before)
            if found is None:
                # What a Loop's step overwrites need not have been as large.
                found = self.inner.zeros_like(
                    state.parameter if forward.stays(before, after) else self.inner.wrap(before)
                )
            state.update = found
        for value in captured(self.reverse, self.body):
            zeros = widened(self.outside.zeros_like(self.outside.wrap(value)))
            parameter = self.inner.parameter(zeros, "sum", zeros.shape)
            update = parameter + widened(self.reverse.gradients[value])
            self.sums[value] = _Carried(zeros, parameter, update)

    @property
    def carried(self) -> list[_Carried]:
        """All that is carried."""
        return [*self.states.values(), *self.sums.values()]

    def results(self, finals: Sequence[Expr]) -> dict[int, Expr]:
        """Lets the finals of all that is carried flow on; returns those of states, by position."""
        for value, final in zip(self.sums, finals[len(self.states) :], strict=False):
            self.dys.flow(value, final)
        return dict(zip(self.states, finals, strict=False))


def captured(reverse: ReverseMode, graph: ir.Graph) -> list[ir.Value]:
    """The values from around a graph that gradients flow into."""
    own = {*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)}
    return [value for value in reverse.gradients if value not in own and value in reverse.active]


@differentiates(std.Scan)
def _scan(op: std.Scan, b: Builder, dys: Cotangents) -> Gradients:
    """A Scan over the same steps in reverse."""
    states = op.states
    loop = _BackwardLoop(b, dys, op.body, (0, 0), states)
    forward = ForwardSteps(Loop(op.node, b.space), b)
    walked: list[tuple[Expr, Expr, int, int]] = []

    def walk(sequence: ir.Value, step: ir.Value, role: str, axis: int, direction: int) -> Expr:
        parameter = loop.inner.parameter(b.wrap(step), role, b.facts.shape(step))
        walked.append((b.wrap(sequence), parameter, axis, 1 - direction))
        return parameter

    for dy, step, *roles in zip(dys.given[states:], loop.steps, op.output_axes, op.output_directions, strict=True):
        if dy is not None and step in dys.active:
            loop.reverse.add(step, walk(dy.value, step, "gradient", *roles))
    loop.run(forward)
    # What flows into the steps of sequences that the forward loop walks along.
    made = [
        (j, gradient)
        for j, step in enumerate(op.body.inputs[states:])
        if (gradient := loop.reverse.gradients.get(step)) is not None
    ]
    graph = loop.inner.graph
    graph.outputs.extend(loop.inner.results([*(c.update for c in loop.carried), *(gradient for _, gradient in made)]))

    def given(j: int, role: str) -> Expr:
        sequence = op.node.inputs[states + j]
        assert sequence is not None
        return walk(sequence, op.body.inputs[states + j], role, op.input_axes[j], op.input_directions[j])

    sequences = {value: j for j, value in enumerate(op.body.inputs[states:])}

    def handed(value: ir.Value) -> ir.Value:
        if value in sequences:
            return given(sequences[value], "input").value
        output = forward.output(value)
        return walk(output.sequence, value, "saved", output.axis, int(output.reverse)).value

    Handing(loop.inner).run(op.body, handed)
    if not walked:
        # The steps need nothing of any sequence; one has to say how many steps there are.
        given(0, "step")
    graph.inputs.extend([*(c.parameter.value for c in loop.carried), *(parameter.value for _, parameter, *_ in walked)])
    attributes: dict[str, Any] = {
        "body": graph,
        "num_scan_inputs": len(walked),
        "scan_input_axes": [axis for *_, axis, _ in walked],
        "scan_input_directions": [direction for *_, direction in walked],
    }
    if made:
        attributes["scan_output_axes"] = [op.input_axes[j] for j, _ in made]
        attributes["scan_output_directions"] = [1 - op.input_directions[j] for j, _ in made]
    operands = [*(c.initial for c in loop.carried), *(sequence for sequence, *_ in walked)]
    results = b.ops(std.Scan, *operands, outputs=len(graph.outputs), **attributes)
    gradients: list[Expr | None] = [None] * len(op.node.inputs)
    for j, final in loop.results(results).items():
        gradients[j] = final
    for (j, _), sequence in zip(made, results[len(loop.carried) :], strict=True):
        gradients[states + j] = sequence
    return gradients


@differentiates(std.Loop)
def _loop(op: std.Loop, b: Builder, dys: Cotangents) -> Gradients:
    """A Loop over as many steps as the forward one ran, which reads what that one saved from the last step on."""
    count = len(op.carried)
    loop = _BackwardLoop(b, dys, op.body, (2, 1), count)
    true = b.constant(np.asarray(1), ir.DataType.BOOL)
    iteration = loop.inner.parameter(b.ints(), "iteration", ())
    going = loop.inner.parameter(true, "going", ())
    forward = ForwardSteps(WhileLoop(op.node, b.space), b)
    steps = forward.count()
    last = steps - 1

    def read(b: Builder, sequence: ir.Value, step: ir.Value) -> Expr:
        element = b.wrap(sequence).take(last - b.wrap(iteration.value))
        shape = b.facts.shape(step)
        return element if shape is None else b.set_shape(element, shape)

    for dy, step in zip(dys.given[count:], loop.steps, strict=True):
        if dy is not None and step in dys.active:
            loop.reverse.add(step, read(loop.inner, dy.value, step))
    loop.run(forward)
    graph = loop.inner.graph
    if not loop.carried:
        # What stays of a graph that nobody runs would still count as a reader.
        remove_unread(graph)
        return []
    graph.outputs.extend(loop.inner.results([going, *(c.update for c in loop.carried)]))

    def handed(value: ir.Value) -> ir.Value:
        if value is op.body.inputs[1]:
            return true.value
        front = Builder.before(next(iter(graph)), b.space)
        front.depth = loop.inner.depth
        if value is op.body.inputs[0]:
            return (last - front.wrap(iteration.value)).value
        if forward.varies(value):
            return forward.pieces(value).get(last - front.wrap(iteration.value)).value
        return read(front, forward.sequence(value), value).value

    Handing(loop.inner, forward.varies).run(op.body, handed)
    graph.inputs.extend([iteration.value, going.value, *(c.parameter.value for c in loop.carried)])
    operands = [steps, None, *(c.initial for c in loop.carried)]
    results = b.ops(std.Loop, *operands, outputs=len(loop.carried), body=graph)
    if STEPS in op.node.metadata_props:
        made = results[0].value.producer()
        assert made is not None
        made.metadata_props[STEPS] = op.node.metadata_props[STEPS]
    gradients: list[Expr | None] = [None] * len(op.node.inputs)
    for j, final in loop.results(results).items():
        gradients[2 + j] = final
    return gradients


@differentiates(std.If)
def _if(op: std.If, b: Builder, dys: Cotangents) -> Gradients:
    """The branch that was taken, run again, and its gradients behind it."""
    branches = []
    for name, branch in zip(("then", "else"), op.branches, strict=True):
        inner = b.inner(f"{name}_backward")
        if drawn := next((node for node in all_nodes(branch) if draws(node, b.facts)), None):
            what, got = "nothing random, since it is run again for its gradient", f"'{node_label(drawn)}'"
            raise op.unsupported(name, what, f"{drawn.op_type} {got}")
        copier = Copier(captures=True, name=b.names.another)
        inner.place(*copier.nodes(list(branch)))
        active = {*dys.active, *(new for old, new in copier.values.items() if old in dys.active and new is not None)}
        reverse = ReverseMode(inner, active)
        for old, dy in zip(branch.outputs, dys.given, strict=True):
            value = copier.values.get(old, old)
            if dy is not None and value is not None and value in active:
                # The branches' values may differ in shape: what one states of the gradient, the other must not read.
                reverse.add(value, inner.op(std.Identity, dy))
        reverse.run(inner.graph)
        branches.append((inner, reverse))
    reached = list(dict.fromkeys(x for inner, reverse in branches for x in captured(reverse, inner.graph)))
    if not reached:
        for inner, _ in branches:
            remove_unread(inner.graph)
        return []
    graphs = []
    for inner, reverse in branches:
        found = [reverse.gradients.get(value) for value in reached]
        made = [inner.zeros_like(inner.wrap(x)) if dx is None else dx for x, dx in zip(reached, found, strict=True)]
        graph = inner.graph
        graph.outputs.extend(inner.results(made))
        remove_unread(graph)
        graphs.append(graph)
    condition = b.wrap(op.condition)
    results = b.ops(std.If, condition, outputs=len(reached), then_branch=graphs[0], else_branch=graphs[1])
    for value, result in zip(reached, results, strict=True):
        shape = b.facts.shape(value)
        dys.flow(value, result if shape is None else b.set_shape(result, shape))
    return []
