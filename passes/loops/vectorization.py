"""Vectorization: the same work on all parts of a tensor is done on the whole.

Exporters and gradients treat gate by gate what lies side by side: they cut a product into gates, add a bias to each,
multiply each with a weight of its own.

Precondition: any model. A Split, or Slices that cut a tensor up completely, whose parts are all read by a node of the
same operator and attributes at the same operand. That is done on the whole and its result split: elementwise work whose
other operands can be joined, a Transpose, a product whose other factor is shared, a sum over other axes, a Reshape that
leaves the axis alone. Other operands are joined where that costs nothing that counts: they are parts of one tensor
themselves, or small, or, in a loop's body, need no carried state and are joined outside.

Postcondition: tensors are cut as late as possible, and not at all where their parts are concatenated again.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, is_scan
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.partitions import Partition, partitions_of, readers_of

BINARY = (std.Add, std.Sub, std.Mul, std.Div)
# A joined operand counts as small when it has this many times fewer elements than the parts.
SMALL = 8


class Vectorization(LoopPass):
    """Replaces equal operations on all parts of a tensor by one on the whole, at every nesting level."""

    def run(self, model: ir.Model) -> bool:
        """Widens in the whole model."""
        return self._graph(model.graph, None)

    def rewrite(self, loop: Loop) -> bool:
        """Widens in one loop's body."""
        return self._graph(loop.body, loop.node)

    def _graph(self, graph: ir.Graph, scan: ir.Node | None) -> bool:
        modified = False
        for node in list(graph):
            if std.ControlFlow.matches(node):
                for subgraph in list(subgraphs_of(node)):
                    modified |= self._graph(subgraph, node if is_scan(node) else None)
        # Read only now: what stands within may have made results of this body anew.
        loop = None if scan is None else Loop(scan, self.context.space)
        place = _Place(self, graph, loop)
        pending = [value for node in graph for value in node.outputs]
        while pending:
            value = pending.pop()
            made = next(
                (made for parts in partitions_of(self.facts, value) if (made := _Widening(place, parts).run())), None
            )
            if made is not None:
                pending += [value, made]
                modified = True
                place = _Place(self, graph, loop)
        if loop is not None and modified:
            loop.commit()
        return modified


class _Place:
    """A graph and what is known of it between two changes."""

    def __init__(self, step: Vectorization, graph: ir.Graph, loop: Loop | None) -> None:
        self.context = step.context
        self.graph = graph
        self.loop = loop
        self.dependence = None if loop is None else Dependence(loop)

    @functools.cached_property
    def recurrent(self) -> set[ir.Node]:
        """Nodes that the next step needs."""
        return set() if self.dependence is None else self.dependence.recurrent()

    @functools.cached_property
    def order(self) -> dict[ir.Node, int]:
        """The place of every node."""
        return {node: index for index, node in enumerate(self.graph)}

    def before(self, nodes: list[ir.Node]) -> ir.Node | None:
        """Where one node can stand that does the work of several, `None` where that would need another order."""
        order = self.order
        first, last = min(nodes, key=order.__getitem__), max(nodes, key=order.__getitem__)
        made = [producer for node in nodes for x in node.inputs if x is not None and (producer := x.producer())]
        if all(order.get(producer, -1) < order[first] for producer in made):
            return first
        users = [user for node in nodes for user, _ in node.outputs[0].uses()]
        return last if all(user.graph is self.graph and order[user] > order[last] for user in users) else None


class _Widening:
    """One tensor's parts, and what may be done on the whole."""

    def __init__(self, place: _Place, parts: Partition) -> None:
        self.place = place
        self.loop = place.loop
        self.facts = place.context.space.facts
        self.parts = parts

    def run(self) -> ir.Value | None:
        """Widens one kind of work, where there is one that can be; the result of the work on the whole."""
        first, *others = [readers_of(value) for value in self.parts.values]
        for node in first:
            twins = [self._twin(node, value, nodes) for value, nodes in zip(self.parts.values[1:], others, strict=True)]
            nodes = [node, *(twin for twin in twins if twin is not None)]
            if len(nodes) == len(self.parts.values) == len(set(nodes)):
                made = self._widen(nodes)
                if made is not None:
                    return made
        return None

    def _twin(self, node: ir.Node, value: ir.Value, readers: list[ir.Node]) -> ir.Node | None:
        """The reader of another part that does the same."""
        position = list(node.inputs).index(self.parts.values[0])
        for reader in readers:
            if reader.op_type != node.op_type or reader.domain != node.domain or len(reader.inputs) != len(node.inputs):
                continue
            if list(reader.inputs).count(value) != 1 or reader.inputs[position] is not value:
                continue
            recurrent = self.place.recurrent
            if _attributes(reader) == _attributes(node) and (reader in recurrent) == (node in recurrent):
                return reader
        return None

    def _widen(self, nodes: list[ir.Node]) -> ir.Value | None:
        node = nodes[0]
        if len(node.outputs) != 1 or list(node.inputs).count(self.parts.values[0]) != 1:
            return None
        if any(reader.outputs[0].is_graph_output() and self.loop is None for reader in nodes):
            return None
        if any(reader.graph is not self.place.graph for reader in nodes):
            return None
        before = self.place.before(nodes)
        if before is None:
            return None
        context = self.place.context
        e = Builder(context.space, self.place.graph, before=before, scope=node.name or "vectorized")
        made = self._whole(e, nodes)
        if made is None:
            e.discard_unread()
            return None
        result, axis = made
        split = e.node(std.Split, [result, e.ints(*self.parts.sizes)], len(nodes), axis=axis)
        for member, part in zip(nodes, split.outputs, strict=True):
            if self.loop is not None:
                self.loop.substitute(member.outputs[0], part)
            else:
                replace(member.outputs[0], part, context.space)
            detach(member)
        return result

    def _whole(self, e: Builder, nodes: list[ir.Node]) -> tuple[ir.Value, int] | None:
        """The work on the whole, and the axis that its result is cut along."""
        node, axis = nodes[0], self.parts.axis
        position = list(node.inputs).index(self.parts.values[0])
        view = self.facts.view(node)
        if isinstance(view, std.Unary) and len(node.inputs) == 1 and not isinstance(view, std.Identity):
            return e.again(node, [self.parts.whole]).outputs[0], axis
        if isinstance(view, BINARY):
            return self._elementwise(e, nodes, position)
        shared = all(
            _same_constant(self.facts, member.inputs[i], x)
            for member in nodes
            for i, x in enumerate(node.inputs)
            if i != position
        )
        rank = self.facts.rank(self.parts.whole)
        if rank is None or not shared:
            return None
        inputs = [self.parts.whole if i == position else x for i, x in enumerate(node.inputs)]
        match view:
            case std.Transpose(perm=tuple() as perm):
                return e.op(std.Transpose, self.parts.whole, perm=list(perm)), perm.index(axis)
            case std.MatMul() if view.rank(1 - position) is not None:
                return self._product(e, inputs, position, rank)
            case std.ReduceSum() if position == 0:
                return self._sum(e, view)
            case std.Reshape() if position == 0:
                return self._reshape(e, view)
        return None

    def _elementwise(self, e: Builder, nodes: list[ir.Node], position: int) -> tuple[ir.Value, int] | None:
        whole, axis = self.parts.whole, self.parts.axis
        rank_of, rank = self.facts.rank, self.facts.rank(whole)
        assert rank is not None
        if any(rank_of(node.outputs[0]) != rank for node in nodes):
            return None
        others = [node.inputs[1 - position] for node in nodes]
        shapes = [self.facts.shape(other) for other in others]
        from_end = axis - rank
        known = [shape for shape in shapes if shape is not None]
        present = [value for value in others if value is not None]
        if len(known) < len(nodes) or len(present) < len(nodes):
            return None
        lacking = all(-from_end > len(shape) or shape[from_end] == 1 for shape in known)
        if lacking:
            if any(not _same_constant(self.facts, other, others[0]) for other in others):
                return None
            joined: ir.Value = present[0]
        else:
            if any(-from_end > len(shape) for shape in known):
                return None
            if [shape[from_end] for shape in known] != list(self.parts.sizes):
                return None
            rest = [(*shape[:from_end], 0, *(shape[from_end:][1:])) for shape in known]
            if any(shape != rest[0] for shape in rest) or not self._is_free_to_join(nodes, present):
                return None
            joined = e.op(std.Concat, *present, axis=from_end)
        operands = [whole, joined] if position == 0 else [joined, whole]
        return e.again(nodes[0], operands).outputs[0], axis

    def _is_free_to_join(self, nodes: list[ir.Node], others: list[ir.Value]) -> bool:
        if self.place.dependence is not None:
            return all(self.place.dependence.level(other) != Level.CARRIED for other in others)
        own = {id(node.outputs[0]) for node in nodes} | {id(value) for value in self.parts.values}
        if any(id(other) in own for other in others):
            return False
        producers = {other.producer() for other in others}
        split = producers.pop() if len(producers) == 1 else None
        if std.Split.matches(split) and tuple(split.outputs) == tuple(others):
            return True
        return sum(map(self.facts.elements, others)) * SMALL <= self.facts.elements(self.parts.whole)

    def _product(
        self, e: Builder, inputs: list[ir.Value | None], position: int, rank: int
    ) -> tuple[ir.Value, int] | None:
        axis = self.parts.axis
        other_rank = self.facts.rank(inputs[1 - position])
        assert other_rank is not None
        if min(rank, other_rank) < 2 or (position == 1 and axis != rank - 1) or (position == 0 and axis == rank - 1):
            return None
        if axis < rank - 2 and other_rank > 2:
            return None
        return e.op(std.MatMul, *inputs), axis + max(rank, other_rank) - rank

    def _sum(self, e: Builder, total: std.ReduceSum) -> tuple[ir.Value, int] | None:
        axis, summed = self.parts.axis, sorted(total.axes or ())
        if not summed or axis in summed:
            return None
        result = e.reduce(std.ReduceSum, self.parts.whole, summed, keepdims=total.keepdims)
        return result, axis if total.keepdims else axis - sum(other < axis for other in summed)

    def _reshape(self, e: Builder, reshape: std.Reshape) -> tuple[ir.Value, int] | None:
        """A Reshape of equally large parts that has the same dimensions before the axis as before."""
        target, made = reshape.constant(1), self.facts.shape(reshape.output)
        shape = self.facts.shape(self.parts.whole)
        sizes = set(self.parts.sizes)
        if target is None or made is None or shape is None or len(sizes) > 1 or len(target) != len(made):
            return None
        size = sizes.pop()
        before = [dim for dim in shape[: self.parts.axis] if dim != 1]
        for axis, dim in enumerate(made):
            last = axis == len(made) - 1 and self.parts.axis == len(shape) - 1
            same = [d for d in made[:axis] if d != 1] == before
            if dim == size and int(target[axis]) == size and size > 1 and (same or last):
                wanted = [int(x) for x in target]
                wanted[axis] = sum(self.parts.sizes)
                return e.again(reshape.node, [self.parts.whole, e.ints(*wanted)]).outputs[0], axis
        return None


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: value.value for name, value in node.attributes.items()}


def _same_constant(facts: Facts, a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    left, right = facts.constant(a), facts.constant(b)
    return left is not None and right is not None and left.shape == right.shape and bool((left == right).all())
