"""Straight-line code as the steps of a loop that it may have been: rows of equal nodes, one of each step.

A row holds the nodes that do the same in all steps. From one row, whose nodes follow from each other, rows are grown
along what its nodes read and along what reads them. What cannot be proven of a row is then taken back: every operand
must be the same in all steps, be made in the same step, be made in the step before, or come from outside of all steps
(see `Role`). What is left is a loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of, with_inner
from lstm_lower.graph.values import Array
from lstm_lower.passes.loops.views.value_numbering import node_key

# What a value is in each step.
Tuple = tuple[ir.Value | None, ...]
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Fixed:
    """One value from outside, or none, in all steps."""

    value: ir.Value | None


@dataclasses.dataclass(frozen=True, eq=False)
class SameConstant:
    """The same constant in all steps."""

    array: Array
    dtype: ir.DataType


@dataclasses.dataclass(frozen=True)
class Same:
    """Output `output` of row `row` in the same step."""

    row: int
    output: int


@dataclasses.dataclass(frozen=True)
class Carried:
    """Output `output` of row `row` as many steps before as there are `initial` values, which the first steps have."""

    row: int
    output: int
    initial: tuple[ir.Value, ...]

    @property
    def line(self) -> list[Carried]:
        """What a loop carries for it, the last of which its row makes: each is the one behind it a step before."""
        return [dataclasses.replace(self, initial=self.initial[place:]) for place in range(len(self.initial))]


@dataclasses.dataclass(frozen=True)
class Element:
    """Elements `start`, `start + stride`, ... of a sequence along an axis, which stays with size 1 where it is `kept`.

    Attributes:
        stride: 1 or -1.
    """

    sequence: ir.Value
    axis: int
    kept: bool
    start: int
    stride: int

    def at(self, further: int) -> Element:
        """An element so many places behind."""
        return dataclasses.replace(self, start=self.start + further)


@dataclasses.dataclass(frozen=True)
class Stacked:
    """Values of one shape from outside, another in each step."""

    values: tuple[ir.Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class StepNumbers:
    """A constant of one element, another in each step: `[T, ...]`."""

    array: Array
    dtype: ir.DataType


Role = Fixed | SameConstant | Same | Carried | Element | Stacked | StepNumbers


class Code:
    """The nodes of a graph.

    Attributes:
        graph: the graph.
        reads: what each node reads, itself or in graphs that it holds.
        readers: the nodes that read a value so.
        kinds: what nodes that may stand in one row have in common.
        learnt: values that are or follow from initializers that shall be learnt, by other than their sizes.
        tied: values that are read in the step that makes them, or that no step makes or reads.
    """

    def __init__(self, graph: ir.Graph, weights: frozenset[str] = frozenset(), tied: Collection[ir.Value] = ()) -> None:
        self.graph = graph
        self.tied = tied
        self.reads = {node: operands(node) for node in graph}
        constants: dict[Hashable, int] = {}
        self.kinds = {node: node_kind(node, constants) for node in graph}
        self.readers: dict[ir.Value, list[ir.Node]] = {}
        for node, values in self.reads.items():
            for value in values:
                self.readers.setdefault(value, []).append(node)
        self.learnt = self._learnt(weights) if weights else set()
        self._after: dict[ir.Node, set[ir.Node]] = {}
        self._next = {
            node: list(dict.fromkeys(reader for value in node.outputs for reader in self.readers.get(value, ())))
            for node in self.reads
        }

    def following(self, nodes: Iterable[ir.Node]) -> set[ir.Node]:
        """Nodes, and all that depend on them."""
        reached = set(nodes)
        waiting = list(reached)
        while waiting:
            for node in self._next[waiting.pop()]:
                if node not in reached:
                    reached.add(node)
                    waiting.append(node)
        return reached

    def after(self, node: ir.Node) -> set[ir.Node]:
        """A node, and all that depend on it: many candidates for loops begin with the same one."""
        if node not in self._after:
            self._after[node] = self.following([node])
        return self._after[node]

    def differ(self, seeds: Sequence[ir.Node], facts: Facts) -> bool:
        """Whether alike nodes, each of which follows from the one before, are no steps: what they are made of differs.

        What the last two read within their steps has to be made alike, and of the same weights.
        """
        inside = self.after(seeds[1])
        waiting, reached = [(seeds[-2], seeds[-1])], {seeds[-1]}
        while waiting:
            for former, value in zip(*(node.inputs for node in waiting.pop()), strict=True):
                if former is value or former is None or value is None:
                    continue
                before, node = former.producer(), value.producer()
                own = before is None and node is None
                if not own and node not in inside:
                    continue
                if own or before is None or node is None or not self._alike(before, node):
                    if value in self.learnt or facts.constant(value) is None:
                        return True
                elif node not in reached:
                    reached.add(node)
                    waiting.append((before, node))
        return False

    def _alike(self, node: ir.Node, other: ir.Node) -> bool:
        return self.kinds.get(node) == self.kinds.get(other) is not None

    def _learnt(self, weights: frozenset[str]) -> set[ir.Value]:
        found = {value for value in self.readers if value.producer() not in self.reads and _is_learnt(value, weights)}
        for node, values in self.reads.items():
            if not _asks_for_sizes(node) and any(value in found for value in values):
                found.update(node.outputs)
        return found


class StepRows:
    """Rows of nodes that are proven to be the steps of a loop, grown from one of them.

    Attributes:
        rows: the nodes of each row, by step; in no order.
        roles: what each operand of a row's nodes is.
    """

    def __init__(self, code: Code, facts: Facts, seeds: Sequence[ir.Node], *, begin: bool) -> None:
        """Grows rows.

        Args:
            code: the nodes of a graph.
            facts: what is known of its values.
            seeds: alike nodes, each of which follows from the one before.
            begin: whether they begin their steps: what follows from one of them is no part of the next one's step.
        """
        self.code = code
        self.facts = facts
        self.count = len(seeds)
        self.rows: dict[int, tuple[ir.Node, ...]] = {}
        self.roles: dict[int, list[Role]] = {}
        self._place: dict[ir.Node, tuple[int, int]] = {}
        self._made = 0
        # What the first step makes after its seed, and no later one.
        self._first = self.code.after(seeds[0]) - self.code.after(seeds[1]) if begin else set()
        self._grow(tuple(seeds))
        self._prune()

    @property
    def is_loop(self) -> bool:
        """Whether the row that all began with is part of a loop."""
        return 0 in self.rows and any(isinstance(role, Carried) for roles in self.roles.values() for role in roles)

    @property
    def is_map(self) -> bool:
        """Whether it goes over elements of something."""
        return 0 in self.rows and any(isinstance(role, Element) for roles in self.roles.values() for role in roles)

    def holds(self, node: ir.Node) -> bool:
        """Whether a node is part of a step."""
        return node in self._place

    def place(self, value: ir.Value | None) -> tuple[int, int, int] | None:
        """Row, step and output of a value that a row makes."""
        node = None if value is None else value.producer()
        found = None if node is None else self._place.get(node)
        index = None if value is None else value.index()
        return None if found is None or index is None else (*found, index)

    def _grow(self, seeds: tuple[ir.Node, ...]) -> None:
        """Adds every row that can be reached."""
        waiting, before = [seeds], -1
        while before < self._made:
            before = self._made
            while waiting:
                row = waiting.pop()
                number = self._later(row) or self._made
                if number == self._made and not self._fits(row):
                    continue
                self.rows[number] = row
                self._note(number)
                self._made = max(self._made, number + 1)
                waiting += self._makers(row)
            # Readers in the next step are told from those in the same one by rows that are known.
            waiting = [found for row in self.rows.values() for found in self._readers(row)]

    def _later(self, row: tuple[ir.Node, ...]) -> int | None:
        """The row that has these nodes in later steps, in whose place they are: a step hands on what it makes."""
        number, late = self._place.get(row[0], (0, 0))
        if not (number and late) or row[0] in self.code.after(self.rows[0][0]):
            return None
        if self.rows[number][late:] != row[:-late] or not self._fits(row, len(row) - late):
            return None
        self.rows[number] = row
        # Its first nodes may be another row's, too: what the first step makes once.
        self._note_all()
        return number

    def _fits(self, row: tuple[ir.Node, ...], held: int = 0) -> bool:
        """Whether nodes are alike, of the graph, and no operand keeps them from being steps; all but some are new."""
        # Nodes of other graphs are of no kind here.
        kinds = {self.code.kinds.get(node) for node in row}
        # Of states of several steps before that begin as one value the first steps make some results once.
        own = row[row.count(row[0]) - 1 :]
        if own[0] is not row[0] or len(own) == 1 or len(set(own)) < len(own):
            return False
        if len(kinds) > 1 or None in kinds or self._place.keys() & row[max(held, len(row) - len(own) + 1) :]:
            return False
        # Of states that begin as one value the first step makes some results once.
        if not held and self._step(row[0]) not in {None, 0}:
            return False
        return all(self._may_have_role(values) for values in zip(*(node.inputs for node in row), strict=True))

    def _may_have_role(self, values: Tuple) -> bool:
        """Whether an operand may have a role: what no node makes, such as weights, is the same, or first steps' own."""
        made = values[-1] is not None and values[-1].producer() is not None
        return made or all(value is values[0] for value in values) or self._constant(values) is not None

    def _makers(self, row: tuple[ir.Node, ...]) -> Iterator[tuple[ir.Node, ...]]:
        for index in range(len(row[0].inputs)):
            values = tuple(node.inputs[index] for node in row)
            nodes = [node for value in values if value is not None and (node := value.producer()) is not None]
            outputs = {None if value is None else value.index() for value in values}
            if len(nodes) < len(row) or len(outputs) > 1 or nodes[1] in self._first:
                continue
            if self._element(values) is None:
                yield tuple(nodes)

    def _readers(self, row: tuple[ir.Node, ...]) -> Iterator[tuple[ir.Node, ...]]:
        for output in range(len(row[0].outputs)):
            uses = [node.outputs[output].uses() for node in row]
            # What reads all of them is no part of a step.
            apart = set.intersection(*({reader for reader, _ in each} for each in uses))
            uses = [[use for use in each if use.node not in apart and use.node not in self._place] for each in uses]
            # What readers in all steps read, such as a weight or a constant, tells those of a step apart.
            fixed = set.intersection(*({value for reader, _ in each for value in reader.inputs} for each in uses))
            found: list[dict[Hashable, list[ir.Node]]] = []
            for each in uses:
                readers: dict[Hashable, list[ir.Node]] = {}
                for reader, index in each:
                    kind = self.code.kinds.get(reader), index, tuple(x for x in reader.inputs if x in fixed)
                    readers.setdefault(kind, []).append(reader)
                found.append(readers)
            for key, first in found[0].items():
                if all(len(readers.get(key, ())) == len(first) for readers in found):
                    yield from zip(*(readers[key] for readers in found), strict=True)

    def _prune(self) -> None:
        """Takes rows back until what every operand is can be told."""
        changed = True
        while changed and 0 in self.rows:
            changed = False
            reached = self.code.following(self._place)
            self.roles = {}
            for number, row in list(self.rows.items()):
                roles = [self._role(values, reached) for values in zip(*(node.inputs for node in row), strict=True)]
                known = [role for role in roles if role is not None]
                captured = [value for value in self.code.reads[row[0]] if value not in row[0].inputs]
                apart = all(value.producer() not in reached for value in captured)
                if len(known) == len(roles) and apart and self._keeps_together(number, known):
                    self.roles[number] = known
                    continue
                changed = True
                if number == 0:
                    # What the seeds are no part of is no loop of theirs.
                    self.rows.clear()
                    return
                del self.rows[number]
                self._note_all()

    def _note_all(self) -> None:
        self._place.clear()
        for number in self.rows:
            self._note(number)

    def _note(self, number: int) -> None:
        row = self.rows[number]
        self._place.update((node, (number, step)) for step, node in reversed([*enumerate(row)]))

    def _keeps_together(self, number: int, roles: Sequence[Role]) -> bool:
        """Whether what is tied to a row's nodes is in the same steps."""
        if not self.code.tied:
            return True
        for step, node in enumerate(self.rows[number]):
            for value in node.outputs:
                if value in self.code.tied and any(self._step(reader) != step for reader, _ in value.uses()):
                    return False
        operands = zip(roles, self.rows[number][0].inputs, strict=True)
        return all(isinstance(role, Same) for role, value in operands if value in self.code.tied)

    def _step(self, node: ir.Node) -> int | None:
        return self._place[node][1] if node in self._place else None

    def _role(self, values: Tuple, reached: set[ir.Node]) -> Role | None:
        """What an operand is; `None` where it is none of what a loop can have."""
        first = values[0]

        def outside(value: ir.Value | None) -> bool:
            return value is None or value.producer() not in reached

        if all(value is first for value in values) and outside(first):
            return Fixed(first)
        constant = self._constant(values)
        if isinstance(constant, SameConstant) or (constant is not None and constant.array.dtype.kind in "iu"):
            return constant
        present = tuple(value for value in values if value is not None)
        if len(present) < len(values) or first is None:
            return None
        if (role := self._inside(present, outside)) is not None:
            return role
        element = self._element(values)
        if element is not None and outside(element.sequence):
            return element
        # What steps compute of other numbers, or take from such, follows from these: a few of them do not tell how.
        if constant is not None:
            return constant
        # Weights that differ would be copied into one sequence: such steps are no loop's.
        made = all(value.producer() is not None and outside(value) for value in present)
        alike = all(self._alike(value, first) for value in present)
        return Stacked(present) if made and alike and self._varies(present) else None

    def _inside(self, values: Sequence[ir.Value], outside: Callable[[ir.Value], bool]) -> Same | Carried | None:
        last = self.place(values[-1])
        if last is None:
            return None
        row, step, output = last
        # How many steps before a value is made.
        lag = len(values) - 1 - step
        if any(value is not node.outputs[output] for value, node in zip(values[lag:], self.rows[row], strict=False)):
            return None
        if not lag:
            return Same(row, output)
        made, initial = self.rows[row][0].outputs[output], tuple(values[:lag])
        alike = all(outside(value) and self._alike(value, made) for value in initial)
        return Carried(row, output, initial) if alike else None

    def _constant(self, values: Tuple) -> SameConstant | StepNumbers | None:
        known = _all_or_none(values, lambda value: None if value in self.code.learnt else self.facts.constant(value))
        dtype = self.facts.dtype(values[0])
        if not known or dtype is None or any(self.facts.dtype(value) != dtype for value in values):
            return None
        if any(array.shape != known[0].shape for array in known):
            return None
        if all(array.tobytes() == known[0].tobytes() for array in known):
            return SameConstant(known[0], dtype)
        numbers = np.stack(known)
        # Places that do not go on evenly are those of a step beside the loop, such as the last one.
        uneven = numbers.dtype.kind in "iu" and (np.diff(numbers, axis=0) != numbers[1] - numbers[0]).any()
        return StepNumbers(numbers, dtype) if known[0].size == 1 and not uneven else None

    def _element(self, values: Tuple) -> Element | None:
        known = _all_or_none(values, lambda value: element_of(value, self.facts))
        if not known or len({(e.sequence, e.axis, e.kept) for e in known}) > 1:
            return None
        stride = known[1].start - known[0].start
        evenly = all(element.start == known[0].start + stride * step for step, element in enumerate(known))
        return dataclasses.replace(known[0], stride=stride) if evenly and stride in (1, -1) else None

    def _alike(self, value: ir.Value, other: ir.Value) -> bool:
        return self.facts.dtype(value) == self.facts.dtype(other) and self.facts.same_shape(value, other)

    def _varies(self, values: Sequence[ir.Value]) -> bool:
        """Whether values follow from the graph's inputs, not from its weights alone."""
        waiting, seen = list(values), set(values)
        while waiting:
            value = waiting.pop()
            if value.is_graph_input():
                return True
            node = value.producer()
            for operand in () if node is None else node.inputs:
                if operand is not None and operand not in seen:
                    seen.add(operand)
                    waiting.append(operand)
        return False


def _all_or_none(values: Tuple, told: Callable[[ir.Value | None], _T | None]) -> list[_T]:
    """What is told of each value; nothing where it is not told of one. Most often that is the first."""
    results = []
    for value in values:
        if (result := told(value)) is None:
            return []
        results.append(result)
    return results


def _is_learnt(value: ir.Value, weights: frozenset[str]) -> bool:
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        if value.name in weights and value.is_initializer():
            return True
        node = value.producer()
        if node is not None and not _asks_for_sizes(node):
            more = [operand for operand in node.inputs if operand is not None and operand not in seen]
            seen.update(more)
            waiting += more
    return False


def _asks_for_sizes(node: ir.Node) -> bool:
    return std.Shape.matches(node) or std.Size.matches(node)


def node_kind(node: ir.Node, constants: dict[Hashable, int]) -> Hashable | None:
    """What nodes of a row have in common, with graphs that they hold; `None` for nodes that a loop may not repeat.

    Args:
        node: a node.
        constants: what constants hold that graphs read -> the first of each.
    """
    graphs = [each for graph in subgraphs_of(node) for each in with_inner(graph)]
    within = [inner for graph in graphs for inner in graph]
    # Constants are told by what they hold.
    if std.Constant.matches(node) or not all(_may_be_repeated(each) for each in (node, *within)):
        return None
    read = {value for inner in within for value in inner.inputs if value is not None}
    read.update(value for graph in graphs for value in graph.outputs)
    # What a graph reads from outside is told by which value it is, what the node alone reads is not.
    given = {value: -1 for value in node.inputs if value is not None and value not in read}
    for value in read:
        maker = value.producer()
        if maker is not None and std.Constant.matches(maker):
            given[value] = constants.setdefault(node_key(maker, {}), id(value))
    return node_key(node, given), tuple(value is not None for value in node.inputs)


def _may_be_repeated(node: ir.Node) -> bool:
    kind = std.VIEWS.get(node.op_type) if node.domain == "" else None
    # Draws with a seed of their own are equal in all steps, and follow from each other in a loop.
    seeded = kind is not None and issubclass(kind, std.Random) and "seed" in node.attributes
    changing = kind is not None and issubclass(kind, std.BatchNormalization)
    return not (seeded or changing or any(attribute.is_ref() for attribute in node.attributes.values()))


def element_of(value: ir.Value | None, facts: Facts) -> Element | None:
    """The element of a sequence that a value is; `None` where it is none, or a computed one."""
    view = facts.maker(value)
    sequence = None if view is None else view.operand(0)
    if view is None or sequence is None or value is None:
        return None
    place: int | None = None
    axis: int | None = None
    kept = True
    if isinstance(view, std.Gather):
        index = facts.constant(view.indices)
        axis = view.axis
        if index is not None and index.size == 1 and index.ndim <= 1:
            place, kept = int(index.reshape(-1)[0]), index.ndim == 1
    elif isinstance(view, std.Split):
        axis, sizes = view.axis, view.sizes
        place = value.index() if sizes is not None and set(sizes) == {1} else None
    elif isinstance(view, std.Slice):
        starts, ends, axes, steps = view.constant(1), view.constant(2), view.axes, view.steps
        if starts is not None and ends is not None and axes is not None and steps == (1,) and starts.size == 1:
            axis, start, end = axes[0], int(starts.reshape(-1)[0]), int(ends.reshape(-1)[0])
            last = start == -1 and end >= np.iinfo(np.int32).max
            place = start if last or (end - start == 1 and (start < 0) == (end < 0)) else None
    if place is None or axis is None:
        return None
    shape = facts.shape(sequence)
    if shape is None:
        return None
    size = shape[axis]
    if place < 0 or isinstance(view, std.Slice):
        # Of what lies beyond the end a Slice gives less; a Gather fails.
        if not isinstance(size, int) or not -size <= place < size:
            return None
        place %= size
    return Element(sequence, axis, kept, place, 1)
