"""Structured graphs: ops in an order in which they can run, loops and branches as ops that hold regions.

Both kinds of TensorFlow's control flow become this: frames and switches of TensorFlow 1, functions of TensorFlow 2.
Names of tensors are unique over all regions, so that an inner region reads an outer one's tensors by their names.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lstm_lower.errors import InvalidModelError
from lstm_lower.reachability import reached

LOOP = "While"
BRANCH = "If"

# What only checks or reports has no place in a model; nothing reads what these make.
SILENT = (
    "Assert", "AudioSummary", "AudioSummaryV2", "HistogramSummary", "ImageSummary", "MergeSummary", "PrintV2",
    "ScalarSummary", "TensorSummary", "TensorSummaryV2", "WriteSummary", "WriteScalarSummary", "WriteHistogramSummary",
)  # fmt: skip


@dataclasses.dataclass
class Aliases:
    """Names of tensors that stand for other tensors."""

    names: dict[str, str] = dataclasses.field(default_factory=dict)

    def resolve(self, name: str) -> str:
        """The tensor behind a name."""
        while name in self.names:
            name = self.names[name]
        return name

    def chain(self, name: str) -> Iterator[str]:
        """A name and all that it stands for, the tensor itself last."""
        yield name
        while name in self.names:
            name = self.names[name]
            yield name


@dataclasses.dataclass(slots=True, eq=False)
class Op:
    """A node.

    Attributes:
        name: its name.
        op: TensorFlow's name of what it does; `While` and `If` for all loops and branches.
        inputs: full names of the tensors that it reads.
        controls: names of the ops that run before it.
        attr: its attributes, as messages.
        regions: of a loop the condition and the body, of a branch what runs for 0, 1, ... (for false and true).
    """

    name: str
    op: str
    inputs: list[str]
    controls: list[str] = dataclasses.field(default_factory=list)
    attr: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()

    def __str__(self) -> str:
        return f"{self.op} '{self.name}'"

    def reads(self) -> Iterator[str]:
        """The tensors that it or one of its regions reads from outside."""
        yield from self.inputs
        for region in self.regions:
            yield from region.captures()

    def waits(self) -> Iterator[str]:
        """The ops outside that it or one of its regions waits for."""
        yield from self.controls
        for region in self.regions:
            own = set(region.names())
            for op in region.ops:
                yield from (name for name in op.waits() if name not in own)


@dataclasses.dataclass(slots=True, eq=False)
class Region:
    """What runs together.

    Attributes:
        ops: the ops, in an order in which they can run.
        params: names of the tensors that come from outside by position.
        results: names of the tensors that leave, by position; `None` for one that nothing reads.
        resolve: the tensor that stands behind a name.
        parts: names of further ops that it is made of.
    """

    ops: list[Op]
    params: list[str]
    results: list[str | None]
    resolve: Callable[[str], str]
    parts: frozenset[str] = frozenset()

    def names(self) -> Iterator[str]:
        """The names of its ops, and of those within them."""
        yield from self.parts
        for op in self.ops:
            yield op.name
            for region in op.regions:
                yield from region.names()

    def captures(self) -> Iterator[str]:
        """The tensors that are read and neither made here nor handed in."""
        own = {op.name for op in self.ops}
        params = set(self.params)
        for name in [*(x for op in self.ops for x in op.reads()), *(x for x in self.results if x is not None)]:
            for found in (name, self.resolve(name)):
                if found in params or found.rpartition(":")[0] in own:
                    break
            else:
                yield found


def ordered(ops: Iterable[Op], resolve: Callable[[str], str], late: Callable[[Op], bool] = lambda _: False) -> list[Op]:
    """Ops in an order in which each comes after what it reads and waits for; `late` ones as late as possible.

    Args:
        ops: the ops of one region; their order decides where nothing else does.
        resolve: the tensor that stands behind a name.
        late: whether an op waits for all that does not need it.

    Raises:
        InvalidModelError: there is a cycle.
    """
    listed = list(ops)
    place = {op.name: index for index, op in enumerate(listed)}
    for index, op in enumerate(listed):
        for region in op.regions:
            for name in region.names():
                place.setdefault(name, index)
    waiting: list[set[int]] = []
    readers: list[list[int]] = [[] for _ in listed]
    for index, op in enumerate(listed):
        names = [resolve(name).rpartition(":")[0] for name in op.reads()] + list(op.waits())
        needs = {place[name] for name in names if name in place} - {index}
        waiting.append(needs)
        for needed in needs:
            readers[needed].append(index)
    ready = [(late(op), index) for index, op in enumerate(listed) if not waiting[index]]
    heapq.heapify(ready)
    found = []
    while ready:
        _, index = heapq.heappop(ready)
        found.append(listed[index])
        for reader in readers[index]:
            waiting[reader].discard(index)
            if not waiting[reader]:
                heapq.heappush(ready, (late(listed[reader]), reader))
    if len(found) < len(listed):
        raise InvalidModelError(f"the graph requires an order, got a cycle: {_cycle(listed, waiting)}")
    return found


def _cycle(ops: list[Op], waiting: list[set[int]]) -> str:
    stuck = {index for index, needs in enumerate(waiting) if needs}
    path = [min(stuck)]
    while path[-1] not in path[:-1]:
        path.append(min(waiting[path[-1]] & stuck))
    return " <- ".join(ops[index].name for index in path[path.index(path[-1]) :])


def needed_names(region: Region, names: Iterable[str | None], aliases: Aliases) -> set[str]:
    """The names of all tensors of a region that some tensors need, these included; of an op waited for, its first."""
    makers = {op.name: op for op in region.ops}

    def behind(name: str) -> list[str]:
        op = makers.get(name.rpartition(":")[0])
        if op is not None:
            return [*op.reads(), *(f"{waited}:0" for waited in op.waits())]
        return [aliases.names[name]] if name in aliases.names and name not in region.params else []

    return set(reached((name for name in names if name is not None), behind))
