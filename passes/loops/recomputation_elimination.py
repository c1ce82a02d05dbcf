"""Recomputation elimination: what a loop computes anyway is not computed again behind it, but leaves the loop.

A forward loop saves activations, and the gradient multiplies them again: `i * g` and `o * tanh(c)` are factors of it
that the forward step has made. Sequences behind the loop stand for values of the body: those that it makes, those that
it walks along, and a state's values before each step (its first value, then the sequence of its updates but the last).

- A state's values before each step leave the loop too, where that is cheaper than putting them together.
- An elementwise node or a Split whose operands stand for values of the body is the body's own node, where it has an
  equal one.
- In a product of several factors, any two whose product the body has are taken together: `f * (1-f) * c_prev` is
  `(f*c_prev) * (1-f)`.

`a * (1-b) * (1+b)` stays a product, although `a - p*b` with a product `p = a*b` of the body would be fewer nodes: where
b saturates, the rounding of `p*b` is as large as the difference.

Precondition: any Scan; time on axis 0, in the loop's direction.

Postcondition: fewer nodes over all steps, or no change. The sequences that leave the loop besides are as large as what
those nodes made; where one of them takes the place of what two nodes made from, that one is not made any more.
Regrouping rounds differently.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.edit import detach, lone_reader
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.views.loop import Loop, behind_identity
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.value_numbering import node_key

# Elements of a state from which a copy in each step takes less time than cutting and joining whole sequences.
LEAST_COPIED = 2048


class RecomputationElimination(LoopPass):
    """Reuses values of a loop's body that are recomputed after the loop."""

    def rewrite(self, loop: Loop) -> bool:
        """Looks at what reads the sequences of one loop."""
        known = _Known(loop)
        modified = False
        for root in _roots(known):
            modified |= _regroup(known, _Chain.of(root))
        for value, step in reversed(known.found.items()):
            node = value.producer()
            if value.uses() or value.is_graph_output():
                replace(value, known.sequence(step), loop.space)
                modified = True
            _detach_unread(node)
        if modified:
            loop.commit()
        return modified


class _Known:
    """What sequences behind a loop stand for.

    Attributes:
        loop: the loop.
        steps: values of the loop's graph and the body's values of one step that they stand for.
        found: those of them that are not the loop's own operands and results, but made again.
        behind: those of them that need a result of the loop: only what reads these can read others.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.facts = loop.facts
        self.steps: dict[ir.Value, ir.Value] = {}
        self.found: dict[ir.Value, ir.Value] = {}
        self.behind: dict[ir.Value, None] = {}
        self._inputs = {x.parameter: x.sequence for x in loop.inputs if x.axis == 0 and x.reverse == loop.reverse}
        self._nodes: dict[Hashable, ir.Node] = {}
        self._products: dict[frozenset[ir.Value | None], ir.Value] = {}
        for node in loop.body:
            key = self._key(node, {})
            if key is not None:
                self._nodes.setdefault(key, node)
            if _is_product(node):
                self._products.setdefault(frozenset(node.inputs), node.outputs[0])
        self._previous = {behind_identity(state.update): state for state in loop.states}
        self.steps.update((sequence, parameter) for parameter, sequence in self._inputs.items())
        pending = self._add({x.sequence: x.step for x in loop.plain_outputs()})
        while pending:
            for reader in _readers(pending.pop(), loop):
                # A sequence put together from a part of another is read behind the part.
                cut = std.Slice.matches(reader)
                for node in list(_readers(reader.outputs[0], loop)) if cut else [reader]:
                    pending += self._learn(node)

    def _add(self, steps: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        self.steps |= steps
        self.behind.update(dict.fromkeys(steps))
        return list(steps)

    def _learn(self, node: ir.Node) -> list[ir.Value]:
        """The outputs of a node behind the loop that turn out to stand for values of the body."""
        # What makes a graph's output of a value does no work.
        if node.outputs[0] in self.steps or std.Identity.matches(node):
            return []
        before = self._before_each_step(node)
        if before is not None:
            if self.facts.rank(before) is not None and self.facts.elements(before) >= LEAST_COPIED:
                self.found[node.outputs[0]] = before
            return self._add({node.outputs[0]: before})
        key = self._key(node, self.steps)
        twin = self._nodes.get(key) if key is not None else None
        if twin is None:
            return []
        learnt = dict(zip(node.outputs, twin.outputs, strict=True))
        self.found |= learnt
        return self._add(learnt)

    def _key(self, node: ir.Node, steps: dict[ir.Value, ir.Value]) -> Hashable | None:
        """A key that a node of the body shares with one that does the same over all steps."""
        view, rank_of = self.facts.view(node), self.facts.rank
        if isinstance(view, std.Split):
            axis, lead = view.axis, int(view.data in steps)
            if axis is None or axis < lead:
                return None
            parts = id(view.operand(1)) if view.sizes is None else view.sizes
            return (std.Split, id(steps.get(view.data, view.data)), axis - lead, parts, len(node.outputs))
        if not isinstance(view, std.Elementwise):
            return None
        # An operand that is the same at every step is broadcast alike where its axes are among the step's.
        ranks = [rank_of(steps.get(value, value)) for value in node.inputs if value is not None]
        own = {rank_of(steps[value]) for value in node.inputs if value in steps}
        if None in ranks or (own and (len(own) > 1 or max(rank for rank in ranks if rank is not None) not in own)):
            return None
        return node_key(node, {value: id(steps[value]) for value in node.inputs if value in steps})

    def _before_each_step(self, node: ir.Node) -> ir.Value | None:
        """The state whose values before each step a node puts together."""
        concat = std.Concat.of(node, self.facts)
        if concat is None or concat.axis != 0 or len(concat.parts) != 2:
            return None
        first, rest = reversed(concat.parts) if self.loop.reverse else concat.parts
        cut = self.facts.maker(rest)
        if not isinstance(cut, std.Slice):
            return None
        state = self._previous.get(self.steps[cut.data]) if cut.data in self.steps else None
        if state is None or not _is_first(self.facts, first, state.initial) or not self._drops_last(cut):
            return None
        return state.parameter

    def _drops_last(self, cut: std.Slice) -> bool:
        """Whether a Slice leaves out what the last step made."""
        starts, ends = cut.ints(1, ""), cut.ints(2, "")
        if starts is None or ends is None or cut.axes != (0,) or cut.steps != (1,):
            return False
        (start,), (end,), length = starts, ends, self.loop.length
        whole = length if isinstance(length, int) else 1 << 31
        return (start == 1 and end >= whole) if self.loop.reverse else (start == 0 and end == -1)

    def product(self, a: ir.Value | None, b: ir.Value | None) -> ir.Value | None:
        """The body's product of two of its values."""
        if a is None or b is None or self.facts.rank(a) is None or self.facts.rank(a) != self.facts.rank(b):
            return None
        return self._products.get(frozenset((a, b)))

    def sequence_of(self, factor: _Factor) -> ir.Value:
        """The sequence of a chain's factor."""
        if factor.value is not None:
            return factor.value
        assert factor.step is not None
        return self.sequence(factor.step)

    def sequence(self, step: ir.Value) -> ir.Value:
        """The sequence of a value of the body; it leaves the loop from now on where it did not."""
        if step in self._inputs:
            return self._inputs[step]
        return self.loop.stacked(step).sequence


@dataclasses.dataclass
class _Chain:
    """A product of several factors behind the loop.

    Attributes:
        root: its last product.
        factors: what is multiplied; what others read too is a factor, also when it is a product itself.
    """

    root: ir.Node
    factors: list[ir.Value]

    @classmethod
    def of(cls, root: ir.Node) -> _Chain:
        """The chain that ends with a product."""
        factors: list[ir.Value] = []
        pending = [root]
        while pending:
            node = pending.pop()
            for value in node.inputs:
                assert value is not None
                maker = value.producer()
                if maker is not None and _is_product(maker) and lone_reader(maker.outputs[0]) is node:
                    pending.append(maker)
                else:
                    factors.append(value)
        return cls(root, factors)


def _readers(value: ir.Value, loop: Loop) -> Iterator[ir.Node]:
    """Nodes of the loop's graph that read a value, but for the loop."""
    for user, _ in value.uses():
        if user.graph is loop.graph and user is not loop.node:
            yield user


def _roots(known: _Known) -> list[ir.Node]:
    """The last products of the chains that sequences of the loop are factors of."""
    roots: dict[ir.Node, None] = {}
    for value in known.behind:
        for root in filter(_is_product, _readers(value, known.loop)):
            while (above := lone_reader(root.outputs[0])) is not None and _is_product(above):
                root = above
            if root.outputs[0] not in known.steps:
                roots[root] = None
    return list(roots)


def _is_product(node: ir.Node) -> bool:
    return std.Mul.matches(node)


@dataclasses.dataclass(frozen=True)
class _Factor:
    """A factor of a chain.

    Attributes:
        value: its sequence, `None` where the loop does not make it yet.
        step: the value of the body that it stands for, `None` where there is none.
    """

    value: ir.Value | None
    step: ir.Value | None


def _regroup(known: _Known, chain: _Chain) -> bool:
    """Writes a chain with products of the body; whether there were any."""
    factors = [_Factor(value, known.steps.get(value)) for value in chain.factors]
    e = Builder(known.loop.space, known.loop.graph, before=chain.root, scope=known.loop.scope("reused"))
    while (better := _pair(known, factors)) is not None:
        factors = better
    if len(factors) == len(chain.factors):
        return False
    result, *rest = [known.sequence_of(factor) for factor in factors]
    for value in rest:
        result = e.op(std.Mul, result, value)
    old = chain.root.outputs[0]
    replace(old, result, known.loop.space)
    _detach_unread(chain.root)
    return True


def _pair(known: _Known, factors: list[_Factor]) -> list[_Factor] | None:
    """The factors with two of them taken together, whose product the body has."""
    for (i, a), (j, b) in itertools.combinations(enumerate(factors), 2):
        product = known.product(a.step, b.step)
        if product is not None:
            return [_Factor(None, product), *(factor for k, factor in enumerate(factors) if k not in (i, j))]
    return None


def _detach_unread(node: ir.Node | None) -> None:
    """Removes a node that nothing reads, and what was there for it alone."""
    if node is None or node.graph is None or std.ControlFlow.matches(node):
        return
    if any(output.uses() or output.is_graph_output() for output in node.outputs):
        return
    makers = [value.producer() for value in node.inputs if value is not None]
    graph = node.graph
    detach(node)
    for maker in makers:
        if maker is not None and maker.graph is graph:
            _detach_unread(maker)


def _is_first(facts: Facts, first: ir.Value, initial: ir.Value) -> bool:
    """Whether `first` is a state's initial value with an axis of time of one step."""
    match facts.maker(first), facts.maker(initial):
        case std.Unsqueeze(axes=(0,), data=data), _ if data is initial:
            return True
        case _, std.Squeeze(axes=(0,), data=data):
            return data is first
    return False
