"""Loop fusion: Scans that carry the same recurrence become one, with the states and outputs of all.

A forward pass and the recomputation of it in a backward pass are the same loop, of which each saves other values. Two
states are the same when they start with the same value and their updates are the same expression of the same states,
elements and captured values. Which ones are is the coarsest partition with that property, found by refinement as for
the states of an automaton: states of one initial value stand in one class until their updates differ.

Precondition: nodes in topological order, equal nodes merged.

Postcondition: no two Scans of a graph walk along one sequence with a changing state in common, unless one of them needs
a result of the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import onnx_ir as ir

from lstm_lower.graph import provenance
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import detach, operands
from lstm_lower.passes.loops.views.loop import Loop, ScanInput, ScanOutput, State, is_scan
from lstm_lower.passes.loops.views.value_numbering import node_key
from lstm_lower.passes.model_pass import Context

# Numbers of expressions lie below those by which a key tells a subgraph's own values.
_FIRST = -(1 << 40)


def merge_recurrences(graph: ir.Graph, scans: Sequence[ir.Node], context: Context) -> list[Loop]:
    """Merges Scans that carry the same recurrence.

    Args:
        graph: the graph that the Scans stand in.
        scans: pure Scans, in the graph's order.
        context: names and opset.

    Returns:
        The loops that took in others. Their bodies hold equal nodes, and outputs that make the same sequence.
    """
    loops = [_Recurrence(Loop(node, context.space)) for node in _candidates(scans, context)]
    if not loops:
        return []
    _classify(loops)
    order = {node: position for position, node in enumerate(graph)}
    hosts: dict[int, list[_Recurrence]] = {}
    merged: dict[Loop, None] = {}
    for recurrence in loops:
        numbers = set(recurrence.classes.values())
        for host in dict.fromkeys(host for number in numbers for host in hosts.get(number, [])):
            needed = _needed(recurrence, host, order)
            if needed is not None:
                _absorb(host, recurrence, needed, order)
                merged[host.loop] = None
                break
        else:
            host = recurrence
        for number in numbers:
            hosts.setdefault(number, []).append(host)
    return list(merged)


def merge_outputs(loop: Loop) -> bool:
    """Lets readers of an output read an earlier one that makes the same sequence; whether there were such outputs."""
    seen: dict[tuple[ir.Value, int, bool], ScanOutput] = {}
    modified = False
    for output in loop.outputs:
        twin = seen.setdefault((output.step, output.axis, output.reverse), output)
        if twin is not output:
            replace(output.sequence, twin.sequence, loop.space)
            modified = True
    if modified:
        loop.commit()
    return modified


def _candidates(scans: Sequence[ir.Node], context: Context) -> list[ir.Node]:
    """Scans that have both an initial value and a sequence in common with others."""
    readers: dict[ir.Value | None, int] = {}
    views = [view for node in scans if is_scan(node) and (view := std.Scan.of(node, context.space.facts)) is not None]
    for view in views:
        for value in set(view.inputs):
            readers[value] = readers.get(value, 0) + 1
    found: list[ir.Node] = []
    for view in views:
        shared = [readers[value] > 1 for value in view.inputs]
        if any(shared[: view.states]) and any(shared[view.states :]):
            found.append(view.node)
    return found


class _Recurrence:
    """A loop with the classes of its states.

    Attributes:
        loop: the loop.
        classes: class of every state that changes: one that never does says nothing of the loop it is in.
        walks: sequences walked along, each with its axis of time.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.classes: dict[State, int] = {}
        self.walks = {_walk(loop, x)[:2] for x in loop.inputs}


def _walk(loop: Loop, x: ScanInput) -> tuple[ir.Value, int, bool]:
    rank = loop.facts.rank(x.sequence)
    return x.sequence, x.axis if rank is None else x.axis % rank, x.reverse


class _Numbers:
    """Gives equal things equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, thing: Hashable) -> int:
        return self._numbers.setdefault(thing, _FIRST - len(self._numbers))


def _classify(recurrences: list[_Recurrence]) -> None:
    """Finds the coarsest partition of all states in which the states of a class have equal updates."""
    number = _Numbers()
    states = [state for recurrence in recurrences for state in recurrence.loop.states]
    classes = {state: number(("initial", state.initial)) for state in states}
    count = 0
    while len(set(classes.values())) > count:
        count = len(set(classes.values()))
        refined: dict[State, int] = {}
        for recurrence in recurrences:
            values = _number_body(recurrence.loop, classes, number)
            updates = {state: values.get(state.update, id(state.update)) for state in recurrence.loop.states}
            changing = [state for state, update in updates.items() if update != classes[state]]
            refined.update((state, number(("class", classes[state], update))) for state, update in updates.items())
            recurrence.classes = {state: refined[state] for state in changing}
        classes = refined


def _number_body(loop: Loop, classes: dict[State, int], number: _Numbers) -> dict[ir.Value, int]:
    """Numbers that equal expressions of a body share, given the classes of the states."""
    values = {state.parameter: classes[state] for state in loop.states}
    values.update((x.parameter, number(("element", *_walk(loop, x)))) for x in loop.inputs)
    values.update((value, number(("initializer", value.const_value))) for value in loop.body.initializers.values())
    for node in loop.body:
        source = node.inputs[0] if std.Identity.hands_on(node) else None
        if source is not None:
            values[node.outputs[0]] = values.get(source, id(source))
            continue
        key = node_key(node, values)
        values.update((output, number(("result", key, index))) for index, output in enumerate(node.outputs))
    return values


def _needed(recurrence: _Recurrence, host: _Recurrence, order: dict[ir.Node, int]) -> list[ir.Node] | None:
    """What stands between two loops and has to come before the first if it takes in the second.

    Returns:
        Nodes in topological order; `None` when the loops have to stay apart: they do not walk the same steps, or the
        second needs a result of the first.
    """
    if not recurrence.walks & host.walks:
        return None
    # What read a result of merged loops was classified by a value that is gone; it merges when all is looked at again.
    if not (host.loop.is_current and recurrence.loop.is_current):
        return None
    first, second = host.loop.node, recurrence.loop.node
    found: dict[ir.Node, None] = {}
    waiting = [(second, False)]
    while waiting:
        node, complete = waiting.pop()
        if complete:
            found[node] = None
        elif node not in found:
            waiting.append((node, True))
            for value in operands(node):
                producer = value.producer()
                if producer is first:
                    return None
                if producer is not None and producer.graph is first.graph and order[producer] > order[first]:
                    waiting.append((producer, False))
    del found[second]
    return list(found)


def _absorb(host: _Recurrence, other: _Recurrence, needed: list[ir.Node], order: dict[ir.Node, int]) -> None:
    """Moves a loop's body, its other inputs and states and its outputs into an earlier one."""
    loop, old, place = host.loop, other.loop, order[host.loop.node]
    for node in needed:
        loop.graph.remove(node)
        loop.graph.insert_before(loop.node, node)
        order[node] = place
    _move_body(old.body, loop.body)
    walked = {_walk(loop, x): x for x in loop.inputs}
    for x in old.inputs:
        if _walk(loop, x) in walked:
            old.substitute(x.parameter, walked[_walk(loop, x)].parameter)
        else:
            loop.inputs.append(x)
    own = {number: state for state, number in host.classes.items()}
    same: list[tuple[ir.Value, State]] = []
    for state in old.states:
        number = other.classes.get(state)
        if number in own:
            old.substitute(state.parameter, own[number].parameter)
            same.append((state.final, own[number]))
        else:
            loop.states.append(state)
            host.classes.update({} if number is None else {state: number})
    loop.outputs += old.outputs
    loop.commit()
    provenance.join(loop.node, provenance.sources(old.node))
    for final, state in same:
        replace(final, state.final, loop.space)
    host.walks |= other.walks
    order[loop.node] = place
    detach(old.node)


def _move_body(old: ir.Graph, new: ir.Graph) -> None:
    old.inputs.clear()
    old.outputs.clear()
    for name, value in list(old.initializers.items()):
        del old.initializers[name]
        new.register_initializer(value)
    for node in list(old):
        old.remove(node)
        new.append(node)
