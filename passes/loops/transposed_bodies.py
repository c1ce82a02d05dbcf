"""Transposed bodies: where products of a loop would repack a weight in each step, its matrices are kept transposed.

onnxruntime's product on CPUs copies its *second* operand into a packed form at every call, unless that is a constant
of the model. In `h[B,K] @ w[K,N]` that is the weight, the large one. In `w'[N,K] @ h'[K,B]` it is the state, and where
the whole body is written for matrices that lie so, none of them has to be transposed in a step.

Precondition: Scans of one graph whose products of a carried matrix with an invariant weight that is no constant would
gain by it (`operand_swapping` has the costs), where each node that the next step needs of these matrices can be
written for either order of axes: elementwise nodes, products with invariant weights, Concat and Split. Sequences that
go from one such loop to another are transposed nowhere; others are outside, at the cost of their elements, which may
not exceed the gain.

A product that is divided at once stands for several weights, whose gradients would be contracted from parts of the
transposed sequences; that costs more than the body gains (a cell with a weight for each gate: 17.7 for 16.7 ms), so
that such loops are left alone.

Postcondition: these bodies hold no Transpose between their products. Runs behind `product-distribution` and
`product-fusion`, which know products as they lie here, and before work is taken out of bodies, which then lies
transposed, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.operand_swapping import TRANSPOSE, costs, is_constant, repacking
from lstm_lower.passes.loops.views.base import AroundLoops, LoopPass
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput, is_over_blocks, is_scan
from lstm_lower.passes.loops.views.turned_sequences import TURN, TurnedSequences, step_elements
from lstm_lower.passes.loops.views.turning import Order, Region, Writer, order_of

ORDER: Order = (1, 0)
# What a sequence costs that is only summed over, whose order of axes the sum can take in part.
SUMMED = 0.5
SUMMING = (std.ReduceSum, std.Flatten, std.Reshape, std.Transpose)


@dataclasses.dataclass(eq=False)
class _Candidate:
    """A loop that can be written for transposed matrices.

    Attributes:
        node: its Scan.
        products: those that gain.
        region: the matrices that are transposed, and the nodes between them.
        gain: nanoseconds per step.
    """

    node: ir.Node
    products: list[ir.Node]
    region: Region
    gain: float


class TransposedBodies(AroundLoops, LoopPass):
    """Writes loop bodies for transposed matrices where their products gain by it."""

    needs = (InvariantHoisting,)

    def around(self, graph: ir.Graph) -> bool:
        """Rewrites those loops of one graph that gain together."""
        loops = [Loop(node, self.context.space) for node in graph if is_scan(node) and not is_over_blocks(node)]
        candidates = [candidate for loop in loops if (candidate := self._candidate(loop)) is not None]
        while candidates:
            plan = _Plan(candidates, self.context.space)
            nets = {candidate: candidate.gain - plan.cost(candidate) for candidate in candidates}
            if sum(nets.values()) > 0:
                break
            worst = min(candidates, key=nets.__getitem__)
            self.refuse(worst.node, "what it reads and makes costs more to transpose than its products gain")
            candidates.remove(worst)
        for candidate in candidates:
            # Loops before it put values of their own in the place of what it reads.
            loop = Loop(candidate.node, self.context.space)
            dependence = Dependence(loop)
            region = _region(dependence, candidate.products)
            assert region is not None
            _Turner(loop, dependence, region, ORDER).write()
            loop.commit()
        if candidates:
            _turn_behind_products(Builder(self.context.space, graph, scope="layout"))
        return bool(candidates)

    def _candidate(self, loop: Loop) -> _Candidate | None:
        dependence = Dependence(loop)
        gains = {node: gain for node in dependence.order if (gain := _gain(self.facts, dependence, node)) > 0}
        if not gains:
            return None
        if any(_is_divided(dependence, node) for node in gains):
            self.refuse(loop.node, "weights joined for a product have separate gradients, which stay untransposed")
            return None
        region = _region(dependence, gains)
        obstacle = loop.node if region is None else _obstacle(dependence, region)
        if region is None or obstacle is not None:
            self.refuse(obstacle or loop.node, "it reads or makes what cannot be transposed")
            return None
        return _Candidate(loop.node, list(gains), region, sum(gains.values()))


def _gain(facts: Facts, dependence: Dependence, node: ir.Node) -> float:
    """What a product gains by a body that is written for its transposed operand, in nanoseconds per step."""
    product = repacking(facts, dependence, node)
    # A constant is packed once, when the model is loaded.
    known = product is None or is_constant(facts, product.b)
    found = None if product is None or known else costs(facts, product.a, product.b)
    return 0.0 if found is None else min(found.written, found.exchanged) - found.turned


def _is_divided(dependence: Dependence, node: ir.Node) -> bool:
    """Whether parts of a product are read, as those of one product for several weights are."""
    readers = dependence.readers(node.outputs[0])
    return any(std.Split.matches(reader) or std.Slice.matches(reader) for reader in readers)


def _region(dependence: Dependence, products: Iterable[ir.Node]) -> Region | None:
    """The matrices that lie as those of the products do; `None` where one of them is no matrix."""
    loop, facts = dependence.loop, dependence.loop.facts
    region, states = Region(2), {value: state for state in loop.states for value in (state.parameter, state.update)}
    pending = [node.outputs[0] for node in products]
    while pending:
        value = pending.pop()
        if value in region.values:
            continue
        if facts.rank(value) != region.rank:
            return None
        region.values[value] = None
        if value in states:
            pending += [states[value].parameter, states[value].update]
        for node in (value.producer(), *dependence.readers(value)):
            alike = None if node is None or node.graph is not loop.body else _alike(dependence, node)
            if node is not None and alike is not None and value in alike:
                region.nodes.add(node)
                pending += alike
    return region


def _alike(dependence: Dependence, node: ir.Node) -> list[ir.Value] | None:
    """The operands and results of a node that are transposed together; `None` where it cannot be written so."""
    facts, rank = dependence.loop.facts, dependence.loop.facts.rank
    operands = [value for value in node.inputs if value is not None]
    match facts.view(node):
        case std.Elementwise():
            vectors = [value for value in operands if rank(value) == 1]
            if all(rank(value) in (0, 1, 2) for value in operands) and all(map(dependence.is_outside, vectors)):
                return [*(value for value in operands if rank(value) == 2), *node.outputs]
        case std.MatMul(a=a, b=b) if (rank(a), rank(b)) == (2, 2) and dependence.is_outside(b):
            return [a, *node.outputs]
        case std.Concat(axis=int(), parts=parts):
            return [*parts, *node.outputs]
        case std.Split(axis=int(), data=data):
            return [data, *node.outputs]
    return None


def _obstacle(dependence: Dependence, region: Region) -> ir.Node | None:
    """A node that reads or makes a matrix of the region, cannot be written anew, and is needed by the next step."""
    loop = dependence.loop
    needed = dependence.needed_by(state.update for state in loop.states if state.parameter in region.values)
    for node in dependence.order:
        touches = any(value in region.values for value in (*dependence.operands(node), *node.outputs))
        if not touches or node in region.nodes or order_of(loop.facts, node) == ORDER:
            continue
        if node in needed and dependence.node_level(node) == Level.CARRIED:
            return node
    return None


class _Plan:
    """What it costs to transpose the sequences around loops, together.

    Attributes:
        candidates: by their Scans.
        sequences: costs of the transposed sequences.
    """

    def __init__(self, candidates: list[_Candidate], space: Workspace) -> None:
        self.candidates = {candidate.node: candidate for candidate in candidates}
        self._loops = {node: Loop(node, space) for node in self.candidates}
        there = {output.sequence for node in self.candidates for output in self._outputs(node)}
        self.sequences = TurnedSequences(space.facts, there)
        self.facts = space.facts
        for node in self.candidates:
            for x in self._loops[node].inputs:
                if x.parameter in self.candidates[node].region.values:
                    self.sequences.cost(x.sequence)

    def cost(self, candidate: _Candidate) -> float:
        """What a loop's own sequences cost, in nanoseconds per step."""
        loop, region = self._loops[candidate.node], candidate.region
        dependence = Dependence(loop)
        moved: dict[ir.Value, float] = {}
        for value in region.values:
            maker = value.producer()
            others = [node for node in dependence.readers(value) if node not in region.nodes]
            brought = maker is not None and maker.graph is loop.body and maker not in region.nodes
            if maker is not None and brought and order_of(self.facts, maker) != ORDER:
                moved[value] = step_elements(self.facts, value)
            elif any(order_of(self.facts, node) != ORDER for node in others):
                moved[value] = SUMMED * step_elements(self.facts, value)
        for output in self._outputs(candidate.node):
            moved[output.step] = max(moved.get(output.step, 0.0), self._read_upright(output))
        walked = [x for x in loop.inputs if x.parameter in region.values]
        entering = sum(
            self.sequences.cost(x.sequence) if x.axis == 0 else step_elements(self.facts, x.parameter) for x in walked
        )
        return TRANSPOSE * (sum(moved.values()) + entering)

    def _outputs(self, node: ir.Node) -> list[ScanOutput]:
        region = self.candidates[node].region
        return [output for output in self._loops[node].outputs if output.step in region.values and output.axis == 0]

    def _read_upright(self, output: ScanOutput) -> float:
        """The elements per step that are moved for those who read a sequence as it was."""
        whole = float(step_elements(self.facts, output.step))
        return max(
            [whole if output.sequence.is_graph_output() else 0.0]
            + [self._read_by(user, index, whole) for user, index in output.sequence.uses()]
        )

    def _read_by(self, user: ir.Node, index: int, whole: float) -> float:
        if user in self.candidates:
            loop, region = self._loops[user], self.candidates[user].region
            walked = loop.inputs[max(index - len(loop.states), 0)]
            return 0.0 if index >= len(loop.states) and walked.parameter in region.values else whole
        if any(value in self.sequences.rebuilt for value in user.outputs):
            return 0.0
        match self.facts.view(user):
            case std.MatMul(b=b) if self.facts.rank(b) == 2 and index == 0:
                return min(whole, float(step_elements(self.facts, user.outputs[0])))
            case view if isinstance(view, SUMMING):
                return SUMMED * whole
        return whole


class _Turner(Writer):
    """Transposes sequences where that costs least."""

    def turned_sequence(self, sequence: ir.Value) -> ir.Value:
        """The transposed sequence."""
        return TurnedSequences(self.facts).write(self.before, sequence)


def _turn_behind_products(e: Builder) -> None:
    """Transposes the narrower result of a product with one weight in place of the sequence that it reads."""
    for node in list(e.graph):
        product = std.MatMul.of(node, e.facts)
        turned = None if product is None else e.facts.maker(product.a)
        if product is None or not isinstance(turned, std.Transpose) or turned.perm != TURN:
            continue
        shape = e.facts.shape(product.b)
        if shape is None or len(shape) != 2 or not isinstance(shape[0], int) or not isinstance(shape[1], int):
            continue
        if shape[1] < shape[0]:
            e.go_before(node, node.name or "layout")
            made = e.op(std.MatMul, e.transpose(product.b, ORDER), turned.data)
            e.replace(node.outputs[0], e.transpose(made, TURN))
            detach(node)
