"""Loop rerolling: equal steps in a row become a Scan again.

Exporters write a cell in a Python loop as its steps. Rolled back, the loop passes can do for them what they do for any
loop, and the gradient is one loop and not T copies of a step.

Precondition: four or more steps that are proven to be equal (`views/rows`): the same operators, attributes, weights and
constants, on the results of the step before and on elements of sequences or other values from outside; results of the
same shape in all steps; and steps that are worth a loop. Loops within steps come first, as all steps then look alike.

Whether a loop takes less time than its steps shows when it is optimised: `cost` estimates it in nodes. On the CPU
provider, in ms of the steps and of their loop, with the estimates behind:

    LSTM of 400 steps of 32 units                              18.8    2.6     6,401    6,005
    LSTM of 20 steps of 16 units                                0.12   0.11      300      278
    training step of an LSTM of 6 steps, Keras                  0.208  0.207     440      385
    training step of a GRU of 5 steps, TensorFlow 1             0.137  0.148     289      316
    the same of an LSTM with peepholes                          0.194  0.212     400      453
    Newton iteration of 4 steps, of which nothing may leave     0.008  0.011      12       18

Postcondition: these steps are one Scan; results that were joined are its sequences.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of, with_inner
from lstm_lower.passes.loops.views.rows import (
    Carried,
    Code,
    Element,
    Fixed,
    Role,
    Same,
    SameConstant,
    Stacked,
    StepNumbers,
    StepRows,
    element_of,
)
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.tidy import unread_weights

LEAST_STEPS = 4
# Nodes of a kind that a step may hold; of more a loop is found by its other nodes, or by how many steps there are.
MOST_OF_A_KIND = 4


class LoopRerolling(Pass):
    """Rolls equal steps back into Scans, in subgraphs too.

    Precondition: nodes are in an order in which they can run.

    Attributes:
        weights: names of initializers that shall be learnt: what steps make of them is no constant.
        tied: tells values of a graph that no step hands on to another.
        maps: whether to roll steps that hand nothing on, too, which take no less time as a loop.
        counts: of how many steps loops are, where that is known of some.
        fuller: whether rather fewer steps are rolled up than such as read what each makes beside the loop.
    """

    preserves = True

    def __init__(
        self,
        weights: Collection[str] = (),
        tied: Callable[[ir.Graph], Collection[ir.Value]] = lambda _: (),
        *,
        maps: bool = False,
        counts: Iterable[int] = (),
        fuller: bool = False,
    ) -> None:
        super().__init__()
        self.weights, self.tied, self.maps, self.counts = frozenset(weights), tied, maps, frozenset(counts)
        self.fuller = fuller

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rolls."""
        modified, unread = False, set(unread_weights(model))
        waiting = [model.graph]
        for graph in waiting:
            modified |= self._flatten(graph)
            for maps in (False, True) if self.maps else (False,):
                while self._roll_one(graph, maps=maps):
                    modified = True
            # Bodies of loops that were rolled up may hold steps, too.
            waiting += (inner for node in graph for inner in subgraphs_of(node))
        # The numbers of steps; weights that nothing read before may be a training step's state.
        for name in set(unread_weights(model)) - unread if modified else ():
            del model.graph.initializers[name]
        return ir.passes.PassResult(model, modified=modified)

    def _flatten(self, graph: ir.Graph) -> bool:
        """Makes one Concat of several: what each step puts behind the steps before is a sequence of all."""
        modified, facts = False, self.context.space.facts
        for node in graph:
            view = std.Concat.of(node, facts)
            parts = [] if view is None else [_parts(x, view) for x in view.inputs]
            if view is not None and any(len(each) > 1 for each in parts):
                b = Builder.before(node, self.context.space)
                b.replace(view.output, b.op(std.Concat, *itertools.chain(*parts), axis=view.axis))
                modified = True
        if modified:
            remove_unread(graph)
        return modified

    def _roll_one(self, graph: ir.Graph, *, maps: bool) -> bool:
        """Rolls the steps of one loop, if there is one."""
        code = Code(graph, self.weights, self.tied(graph))
        for alone in (True, False) if self.fuller else (False,):
            fits = self._fits(code, alone=alone, maps=maps)
            # The first of equals: its steps end where states are handed on.
            best = max(fits, key=lambda each: each.nodes, default=None) if alone else self._inner(fits)
            if best is not None:
                best.run()
                remove_unread(graph)
                graph.sort()
                return True
        return False

    def _inner(self, fits: Iterator[_Rolling]) -> _Rolling | None:
        """The first loop, or what its steps may be made of, which comes before: all rows of a table are alike."""
        first = next(fits, None)
        if first is None or not self.maps or (first.times == 1 and not first.inner_ops):
            return first
        parts = (each for each in fits if first.may_hold(each))
        return max(parts, key=lambda each: (not each.inner_ops, each.nodes), default=first)

    def _fits(self, code: Code, *, alone: bool, maps: bool) -> Iterator[_Rolling]:
        """The largest loop of each choice; with `alone` those that read nothing that each of their steps is given."""
        space = self.context.space
        for choice in _candidates(code, self.counts, maps=maps, fuller=self.fuller):
            fit = [each for each in _fitting(code, choice, space, maps=maps) if not (alone and each.stacked)]
            if fit and self.maps and (nested := max(rolling.nested for rolling in fit)) > 1:
                outer = dict.fromkeys(rolling.rows.rows[0][::nested] for rolling in fit)
                fit = _fitting(code, [*outer], space, maps=maps) or fit
            if fit:
                yield max(fit, key=lambda each: each.nodes)


def _parts(x: ir.Value | None, joined: std.Concat) -> Sequence[ir.Value | None]:
    """What an operand is a Concat of along the same axis, if nothing else reads it, or else the operand."""
    inner = None if x is None or x.is_graph_output() else std.Concat.of(x.producer(), joined.facts)
    along = inner is not None and inner.axis is not None and inner.axis == joined.axis
    return inner.inputs if inner is not None and along and len(inner.output.uses()) == 1 else [x]


# Elements of a sequence in a row that are one part of it.
_RUN = 3
# Steps of a loop whose number is not known, in an estimate.
_MANY = 8
# What a loop costs, in nodes: itself, and each state, element and result of a step.
_LOOP, _HANDED = 2, 1 / 3


def cost(graph: ir.Graph, facts: Facts) -> float:
    """About how long a graph takes on little data, in nodes: executed ones, and what handing values on costs."""
    total = 0.0
    for node in graph:
        total += not std.Constant.matches(node)
        inner = sum(cost(subgraph, facts) for subgraph in subgraphs_of(node))
        if std.If.matches(node):
            total += inner
        elif subgraphs_of(node):
            shape = facts.shape(node.inputs[-1]) if std.Scan.matches(node) else None
            steps = shape[0] if shape and isinstance(shape[0], int) else _MANY
            total += _LOOP + steps * (inner + _HANDED * (len(node.inputs) + len(node.outputs)))
    return total


def has_equal_products(graph: ir.Graph) -> bool:
    """Whether as many products as a loop has steps read one value, as those of all steps do a weight."""
    read = collections.Counter(
        source
        for node in graph
        if std.Product.matches(node)
        for source in {_untransposed(value) for value in node.inputs if value is not None}
    )
    return max(read.values(), default=0) >= LEAST_STEPS


def _candidates(
    code: Code, counts: Collection[int], *, maps: bool, fuller: bool
) -> Iterator[Sequence[Sequence[ir.Node]]]:
    """Nodes that may do the same in the steps of a loop: alike ones in a row, each following from the one before.

    Several rows at a time are choices.

    Args:
        code: the nodes of a graph.
        counts: see `LoopRerolling`.
        maps: whether steps may follow from none before.
        fuller: whether all of a row are a choice beside all but one.
    """
    groups = (tuple(group) for told in (_read_often, _given) for group in _groups(code, told).values())
    many = dict.fromkeys(group for group in groups if len(group) >= LEAST_STEPS)
    # Products are the surest marks of a step.
    orders = [_order(code, group) for group in sorted(many, key=lambda group: not std.Product.matches(group[0]))]
    # Of steps that read states of several steps before every second or third ones are chains, too: all of them first.
    apart = sorted((_interleaved(*each) for each in orders), key=len, reverse=True)
    late: list[Sequence[ir.Node]] = []
    for number, chains in enumerate(itertools.chain([apart], (_chains(*each, maps=maps) for each in orders))):
        for chain in chains:
            several = {*range(1, MOST_OF_A_KIND + 1), *(len(chain) // count for count in counts)} - {0}
            for each in sorted(several) if number else [1]:
                steps = chain[: len(chain) // each * each : each]
                # The first step may have been simplified, and of a loop's last one less may be read.
                ends = [steps[1:], steps[:-1]]
                choices = [[steps, *ends]] if fuller else [[steps], [steps[1:]]] if maps else [[steps], ends]
                for choice in choices if maps else [*choices, [steps[1:-1]]]:
                    if found := [seeds for seeds in choice if len(seeds) >= LEAST_STEPS]:
                        yield found
                late += [steps[:-1], steps[1:-1]] if maps else []
    # A map that lacks a loop's last step is one of what others have left.
    yield from ([seeds] for seeds in late if len(seeds) >= LEAST_STEPS)


def _groups(code: Code, told: Callable[[Code, ir.Value], ir.Value | None]) -> dict[Hashable, list[ir.Node]]:
    """Nodes of each kind; what all steps read tells those of a step apart."""
    groups: dict[Hashable, list[ir.Node]] = {}
    for node, kind in code.kinds.items():
        fixed = (told(code, value) for value in node.inputs if value is not None)
        if kind is not None:
            groups.setdefault((kind, *(value for value in fixed if value is not None)), []).append(node)
    return groups


def _read_often(code: Code, value: ir.Value) -> ir.Value | None:
    """A value, or the one that it is transposed of, that as many nodes read as a loop has steps."""
    both = (value, _untransposed(value))
    return next((each for each in both if len(code.readers.get(each, ())) >= LEAST_STEPS), None)


def _given(code: Code, value: ir.Value) -> ir.Value | None:
    """Such a value that no node makes: of a step's own one there may be as many readers."""
    source = _untransposed(value)
    return source if source.producer() is None and len(code.readers.get(source, ())) >= LEAST_STEPS else None


def _run_length(values: Sequence[ir.Value]) -> int:
    """How often each value stands in a row, if all stand equally often; or 1."""
    lengths = {len(list(run)) for _, run in itertools.groupby(values)}
    return lengths.pop() if len(lengths) == 1 else 1


def _runs(pieces: Sequence[tuple[int, bool] | None]) -> Iterator[tuple[int, int]]:
    """From where to where pieces are of steps in a row, forward or backward."""
    for stride in (1, -1):
        start = 0
        while start < len(pieces):
            end, first = start + 1, pieces[start]
            while end < len(pieces) and first and pieces[end] == (first[0] + stride * (end - start), first[1]):
                end += 1
            yield start, end
            start = end


def _unsqueezed(value: ir.Value | None) -> ir.Value | None:
    """A value, or the one that it is with one more axis."""
    node = None if value is None else value.producer()
    return node.inputs[0] if node is not None and std.Unsqueeze.matches(node) else value


def _untransposed(value: ir.Value) -> ir.Value:
    """A value, or the one that it is transposed of."""
    node = value.producer()
    source = node.inputs[0] if node is not None and std.Transpose.matches(node) else None
    return value if source is None else source


# Nodes in their order, and for each place, or -1 for none, the places of those that follow from it and none between.
_Order = tuple[list[ir.Node], dict[int, list[int]]]


def _order(code: Code, group: Sequence[ir.Node]) -> _Order:
    """The nodes of a group, and which of them follow from which."""
    members = set(group)
    # For each value the last member that it follows from.
    latest: dict[ir.Value, int] = {}
    after: dict[int, list[int]] = {}
    order: list[ir.Node] = []
    for node, values in code.reads.items():
        found = max([latest[value] for value in values if value in latest], default=-1)
        if node in members:
            after.setdefault(found, []).append(len(order))
            found = len(order)
            order.append(node)
        if found >= 0:
            latest.update((value, found) for value in node.outputs)
    return order, after


def _chains(order: Sequence[ir.Node], after: Mapping[int, Sequence[int]], *, maps: bool) -> list[list[ir.Node]]:
    """Nodes of a group in rows in which each follows from the one before, and from none that comes later.

    With `maps` those that follow from none are a row, too.
    """
    # How many follow from each one after another: a step may hold several that do not follow from each other.
    depths: list[int] = [0] * len(order)
    for place in reversed(range(len(order))):
        depths[place] = 1 + max((depths[each] for each in after.get(place, ())), default=0)
    chains: list[list[ir.Node]] = []
    # What follows from none begins a chain, and so does each of several that follow from one.
    starts = [place for before, places in after.items() if before < 0 or len(places) > 1 for place in places]
    for place in starts:
        chain = [place]
        while following := after.get(chain[-1]):
            chain.append(max(following, key=depths.__getitem__))
        chains.append([order[each] for each in chain])
    if maps:
        chains.append([order[place] for place in after.get(-1, ())])
    return [chain for chain in chains if len(chain) >= LEAST_STEPS]


def _interleaved(order: Sequence[ir.Node], after: Mapping[int, Sequence[int]]) -> list[ir.Node]:
    """Nodes each of which follows from the one several before; one that the first steps share repeats."""
    shared = after.get(-1) == [0]
    first = after.get(0 if shared else -1, [])
    lag, later = len(first), range(int(shared), len(order))
    evenly = first == [*later[:lag]] and all(after.get(place) == [place + lag] for place in later[:-lag])
    places = [*[0] * (shared * lag), *later] if 1 < lag < len(later) and evenly else []
    return [order[place] for place in places]


def _fitting(code: Code, choice: Sequence[Sequence[ir.Node]], space: Workspace, *, maps: bool) -> list[_Rolling]:
    """Loops that nodes are part of, as what begins their steps and as what does not."""
    found = [
        StepRows(code, space.facts, seeds, begin=begin)
        for seeds in choice
        if not code.differ(seeds, space.facts)
        for begin in (True, False)
    ]
    loops = [_Rolling(code.graph, rows, space) for rows in found if rows.is_loop or (maps and rows.is_map)]
    return [rolling for rolling in loops if rolling.is_typed and rolling.pays]


class _Rolling:
    """The rewriting of one loop's steps.

    Attributes:
        rows: the steps.
        builder: emits at the end of the graph.
        order: the rows, in an order in which they can run.
        states: what steps hand on.
        sequences: what steps take an element of.
        reverse: whether all sequences are walked along backwards.
        outputs: row and output of the values that are read behind the loop.
    """

    def __init__(self, graph: ir.Graph, rows: StepRows, space: Workspace) -> None:
        self.rows = rows
        self.builder = Builder(space, graph, scope="rolled")
        self.position = {node: index for index, node in enumerate(graph)}
        self.order = sorted(rows.rows, key=lambda row: self.position[rows.rows[row][0]])
        roles = dict.fromkeys(role for row in self.order for role in rows.roles[row])
        carried = [role for role in roles if isinstance(role, Carried)]
        self.states = list(dict.fromkeys(state for role in carried for state in role.line))
        self.sequences = [role for role in roles if isinstance(role, Element | Stacked | StepNumbers)]
        self.reverse = {role.stride for role in self.sequences if isinstance(role, Element)} == {-1}
        self.outputs = [
            (row, output)
            for row in self.order
            for output in range(len(rows.rows[row][0].outputs))
            if any(self._is_read(value) for value in self._values(row, output))
        ]

    @property
    def is_typed(self) -> bool:
        """Whether the ranks of the loop's results are known, and no step's shape differs, as onnxruntime asks."""
        shape, rank = self.builder.facts.shape, self.builder.facts.rank
        results = [self._values(*place) for place in self.outputs]
        handed_on = [[*state.initial, *self._values(state.row, state.output)] for state in self.states]
        shaped = [
            self._values(row, output)
            for row in self.order
            if self._is_shaped(row)
            for output in range(len(self.rows.rows[row][0].outputs))
        ]
        alike = all(len({shape(value) for value in values}) == 1 for values in (*results, *handed_on, *shaped))
        return alike and all(rank(values[0]) is not None for values in results)

    def _is_shaped(self, row: int) -> bool:
        """Whether shapes of a node's results may go by the step: by axes, bounds or sizes that are not the same."""
        operands = zip(self.rows.roles[row], self.rows.rows[row][0].inputs, strict=True)
        return any(
            value is not None and is_integer(self.builder.facts.dtype(value))
            for role, value in operands
            if not isinstance(role, Fixed | SameConstant)
        )

    @property
    def pays(self) -> bool:
        """Whether a step is more than what a loop costs: a sum of a few values does not become a Scan over them."""
        nodes = [self.rows.rows[row][0] for row in self.order]
        count = len(nodes) + sum(len(graph) for node in nodes for graph in subgraphs_of(node))
        return count > 1 + 2 * self.stacked

    @functools.cached_property
    def ops(self) -> collections.Counter[ir.OperatorIdentifier]:
        """How often a step has each operator."""
        return collections.Counter(self.rows.rows[row][0].op_identifier() for row in self.order)

    @functools.cached_property
    def inner_ops(self) -> collections.Counter[ir.OperatorIdentifier]:
        """How often loops within a step have each operator."""
        graphs = itertools.chain(*(subgraphs_of(self.rows.rows[row][0]) for row in self.order))
        return collections.Counter(
            node.op_identifier() for graph in graphs for each in with_inner(graph) for node in each
        )

    @property
    def times(self) -> int:
        """Of how many steps of a smaller loop each one may be made, by its operators."""
        return math.gcd(*self.ops.values())

    def may_hold(self, other: _Rolling) -> bool:
        """Whether a step may be several of another loop, or hold a loop of such steps."""
        several = self.times > 1 and all(count * self.times == self.ops[op] for op, count in other.ops.items())
        return other.ops <= self.inner_ops or several

    @property
    def nodes(self) -> int:
        """How many nodes become those of one step."""
        return len(self.rows.rows) * self.rows.count

    @property
    def stacked(self) -> int:
        """How many sequences are joined of what is made beside the loop."""
        return sum(isinstance(role, Stacked) for role in self.sequences)

    @property
    def nested(self) -> int:
        """Of how many steps each one of a loop around them is, by what they read and by what is read of them; or 1."""
        read = [
            [step for step, value in enumerate(self._values(*place), 1) if self._is_read(value)]
            for place in self.outputs
        ]
        kept = [_run_length(role.values) for role in self.sequences if isinstance(role, Stacked)]
        apart = [steps[0] for steps in read if steps == list(range(steps[0], self.rows.count + 1, steps[0]))]
        found = {*kept, *apart} if len(apart) == len(read) else set(kept)
        both = found - {self.rows.count}
        count = both.pop() if len(both) == 1 else 1
        return count if self.rows.count >= LEAST_STEPS * count and self.rows.count % count == 0 else 1

    def run(self) -> None:
        """Rolls."""
        b = self.builder
        # A Scan takes its number of steps from a sequence.
        sequences = [self._sequence(role) for role in self.sequences] or [b.ints(*range(self.rows.count))]
        initial = [b.wrap(state.initial[0]) for state in self.states]
        finals, made = b.scan(self._body, states=initial, inputs=sequences, reverse=self.reverse)
        last = {
            (state.row, state.output): final
            for state, final in zip(self.states, finals, strict=True)
            if len(state.initial) == 1
        }
        if not self.reverse:
            self._join_in_turn(made)
        for place, sequence in zip(self.outputs, made, strict=True):
            self._hand_over(self._values(*place), sequence, last.get(place))
        nodes = {node for row in self.rows.rows.values() for node in row}
        for node in sorted(nodes, key=self.position.__getitem__, reverse=True):
            detach(node)
        b.discard_unread()

    def _values(self, row: int, output: int) -> list[ir.Value]:
        """An output of each step."""
        return [node.outputs[output] for node in self.rows.rows[row]]

    def _is_read(self, value: ir.Value) -> bool:
        """Whether a value is read behind the loop."""
        return value.is_graph_output() or any(not self.rows.holds(node) for node, _ in value.uses())

    def _sequence(self, role: Role) -> Expr:
        """What the loop walks along, the first axis that of time."""
        b, count = self.builder, self.rows.count
        if isinstance(role, StepNumbers):
            return b.constant(role.array[::-1] if self.reverse else role.array, role.dtype)
        if isinstance(role, Stacked):
            return b.concat(self._stacked(role.values[::-1] if self.reverse else role.values), 0)
        assert isinstance(role, Element)
        whole = b.wrap(role.sequence)
        first = role.start if role.stride == 1 else role.start - count + 1
        part = (
            whole if (first, whole.size(role.axis)) == (0, count) else whole.slice(first, first + count, axis=role.axis)
        )
        part = b.move_axis(part, role.axis, 0, len(whole.shape or ()))
        return b.reverse(part, 0) if role.stride == -1 and not self.reverse else part

    def _stacked(self, values: Sequence[ir.Value]) -> list[Expr]:
        """Values with an axis in front, elements of a sequence in a row as a part of it."""
        b, parts = self.builder, []
        elements = [element_of(value, b.facts) for value in values]
        place = 0
        while place < len(values):
            first, end = elements[place], place + 1
            while first is not None and end < len(values) and elements[end] == first.at(end - place):
                end += 1
            if first is None or first.kept or end - place < _RUN:
                parts.append(b.wrap(values[place]).unsqueeze(0))
                place += 1
                continue
            whole = b.wrap(first.sequence)
            part = whole.slice(first.start, first.start + end - place, axis=first.axis)
            parts.append(b.move_axis(part, first.axis, 0, len(whole.shape or ())))
            place = end
        return parts

    def _body(self, states: Sequence[Expr], elements: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        """One step."""
        inner = (states or elements)[0].builder
        given: dict[Role, Expr] = dict(zip(self.states, states, strict=True))
        for role, element in zip(self.sequences, elements, strict=False):
            kept = isinstance(role, Element) and role.kept
            given[role] = element.unsqueeze(role.axis) if isinstance(role, Element) and kept else element
        made: dict[int, list[Expr]] = {}

        def operand(role: Role) -> ir.Value | None:
            if isinstance(role, Fixed):
                return role.value
            if isinstance(role, SameConstant):
                return inner.constant(role.array, role.dtype).value
            return (made[role.row][role.output] if isinstance(role, Same) else given[role]).value

        for row in self.order:
            values = inner.repeat(self.rows.rows[row][0], [operand(role) for role in self.rows.roles[row]])
            made[row] = [inner.wrap(value) for value in values]
        following = [
            given[state.line[1]] if len(state.line) > 1 else made[state.row][state.output] for state in self.states
        ]
        return following, [made[row][i] for row, i in self.outputs]

    def _join_in_turn(self, made: Sequence[Expr]) -> None:
        """Lets nodes that join several results of each step in turn read all as one sequence."""
        b, lists = self.builder, [self._values(*place) for place in self.outputs]
        of = {value: number for number, values in enumerate(lists) for value in values}
        for node in [node for node in b.graph if std.Concat.matches(node) and not self.rows.holds(node)]:
            sources = (source for value in node.inputs for source in (value, _unsqueezed(value)))
            turn = [*dict.fromkeys(of[source] for source in sources if source in of)]
            shapes = {made[number].shape for number in turn}
            if len(turn) < 2 or len(shapes) > 1 or None in shapes:
                continue
            both = b.concat([made[number].unsqueeze(1) for number in turn], 1)
            first, _, *rest = (both.size(axis) for axis in range(len(both.shape or ())))
            whole = b.op(std.Reshape, both, b.sizes([first * len(turn), *rest]))
            self._join(node, [*itertools.chain(*zip(*(lists[number] for number in turn), strict=True))], whole)

    def _hand_over(self, values: list[ir.Value], sequence: Expr, final: Expr | None) -> None:
        """Lets readers behind the loop read its results."""
        b = self.builder
        readers = [node for value in values for node, _ in value.uses() if not self.rows.holds(node)]
        readers += [node for each in readers if std.Unsqueeze.matches(each) for node, _ in each.outputs[0].uses()]
        for node in dict.fromkeys(node for node in readers if std.Concat.matches(node)):
            self._join(node, values, sequence)
        read = [(step, value) for step, value in enumerate(values) if self._is_read(value)]
        for step, value in read:
            # Of many that are read the last is an element like others: they may be those of every second step.
            if step == len(values) - 1 and final is not None and len(read) < LEAST_STEPS:
                b.replace(value, final.value)
                continue
            place = len(values) - 1 - step if self.reverse else step
            element = sequence.take(place)
            b.replace(value, element.value)

    def _join(self, node: ir.Node, values: list[ir.Value], sequence: Expr) -> None:
        """Replaces the results of steps in a row, where a node joins them in their order, by a part of the sequence."""
        b, view = self.builder, std.Concat.of(node, self.builder.facts)
        axis = None if view is None else view.axis
        if axis is None or sequence.shape is None or self.rows.holds(node):
            return
        pieces = [self._piece(value, values, axis) for value in node.inputs]
        start, end = max(_runs(pieces), key=lambda run: run[1] - run[0], default=(0, 0))
        run = [piece for piece in pieces[start:end] if piece is not None]
        if len(run) < _RUN:
            return
        (first, stacked), (last, _) = run[0], run[-1]
        if self.reverse:
            first, last = len(values) - 1 - first, len(values) - 1 - last
        part = sequence
        if len(run) < len(values):
            part = sequence.slice(min(first, last), max(first, last) + 1, axis=0)
        in_order = part if first < last else b.wrap(b.reverse(part.value, 0))
        joined = b.wrap(b.move_axis(in_order.value, 0, axis, len(sequence.shape)))
        if not stacked:
            # Steps stand in front of what each joins.
            sizes = [joined.size(index) for index in range(len(sequence.shape))]
            if sizes[axis + 1] == 1:
                joined = joined.squeeze(axis + 1)
            else:
                whole = [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]]
                joined = b.op(std.Reshape, joined, b.sizes(whole))
        parts = [b.wrap(x) for x in (*node.inputs[:start], joined.value, *node.inputs[end:]) if x]
        b.replace(node.outputs[0], b.concat(parts, axis).value)
        detach(node)

    def _piece(self, value: ir.Value | None, values: Sequence[ir.Value], axis: int) -> tuple[int, bool] | None:
        """Of which step a result is that a node joins, and whether with an axis in front of its own."""
        if value in values:
            return values.index(value), False
        view = std.Unsqueeze.of(value.producer(), self.builder.facts) if value is not None else None
        inner = view.operand(0) if view is not None and view.axes == (axis,) else None
        return (values.index(inner), True) if inner in values else None
