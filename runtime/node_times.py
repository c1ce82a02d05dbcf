"""Where a run's time goes: times by node, by operator and by loop, of what `lstm_lower.runtime.profile` reads."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from lstm_lower.runtime.profile import ProfiledBody, walk

Place = tuple[str, ...]


@dataclasses.dataclass
class _Sums:
    """Of one node's calls in one run."""

    calls: float = 0
    seconds: float = 0
    written: float = 0
    iterations: float = 0


@dataclasses.dataclass(frozen=True)
class NodeTime:
    """Times of the calls of one node in the median run.

    Attributes:
        place: names of the loops and branches around it, outermost first; empty in the main graph.
        name: as in `Call`.
        op: as in `Call`.
        provider: as in `Call`.
        calls: in one run.
        seconds: in one run, of all calls, bodies included.
        written: bytes of all outputs in one run.
        iterations: bodies in one run; 0 for a node that is no loop and no branch.
    """

    place: Place
    name: str
    op: str
    provider: str
    calls: float
    seconds: float
    written: float
    iterations: float

    @property
    def holds_bodies(self) -> bool:
        """Whether its time is that of nodes inside, which are counted for themselves."""
        return self.iterations > 0


@dataclasses.dataclass(frozen=True)
class OpTime:
    """Times of all calls of one operator in one run; nodes with bodies are left out, what is in them counts.

    Attributes:
        op: the operator.
        seconds: of all its calls.
        calls: how many.
        written: bytes of all outputs.
    """

    op: str
    seconds: float
    calls: float
    written: float


@dataclasses.dataclass(frozen=True)
class LoopTime:
    """Times of the nodes of one body in one run, without those of loops and branches inside it.

    Attributes:
        place: names of the loops and branches that the body is in, outermost first; empty for the main graph.
        iterations: of the body in one run; 1 for the main graph.
        seconds: of its nodes' calls.
        calls: how many.
        written: bytes of all outputs.
    """

    place: Place
    iterations: float
    seconds: float
    calls: float
    written: float


def node_times(runs: Sequence[ProfiledBody]) -> list[NodeTime]:
    """Times of every node in the median run, in the order in which nodes are first called.

    Nodes of one place with the same name and operator are one: of an If's branches, too, where they are without names.

    Args:
        runs: what `lstm_lower.runtime.profile` returned; the median is taken node by node.
    """
    found: dict[tuple[Place, str, str, str], list[_Sums]] = {}
    for index, run in enumerate(runs):
        for place, call in walk(run):
            sums = found.setdefault((place, call.name, call.op, call.provider), [_Sums() for _ in runs])[index]
            sums.calls += 1
            sums.seconds += call.seconds
            sums.written += call.written
            sums.iterations += len(call.bodies)
    return [
        NodeTime(*key, **{name: statistics.median(vars(sums)[name] for sums in of_runs) for name in vars(_Sums())})
        for key, of_runs in found.items()
    ]


def by_op(nodes: Iterable[NodeTime]) -> list[OpTime]:
    """Times by operator, the longest first."""
    by_type: dict[str, list[NodeTime]] = collections.defaultdict(list)
    for node in nodes:
        if not node.holds_bodies:
            by_type[node.op].append(node)
    return sorted(
        (OpTime(op, *_sums(inside)) for op, inside in by_type.items()), key=lambda row: (-row.seconds, row.op)
    )


def by_loop(nodes: Sequence[NodeTime]) -> list[LoopTime]:
    """Times by the body that nodes lie in, in the order in which bodies are first run, a loop before what is in it."""
    by_place: dict[Place, list[NodeTime]] = {(): []}
    iterations: dict[Place, float] = collections.defaultdict(float, {(): 1})
    for node in nodes:
        by_place.setdefault(node.place, [])
        if node.holds_bodies:
            by_place.setdefault((*node.place, node.name), [])
            iterations[*node.place, node.name] += node.iterations
        else:
            by_place[node.place].append(node)
    return [LoopTime(place, iterations[place], *_sums(inside)) for place, inside in by_place.items()]


def _sums(nodes: Iterable[NodeTime]) -> tuple[float, float, float]:
    """Seconds, calls and bytes written."""
    figures = [(node.seconds, node.calls, node.written) for node in nodes]
    seconds, calls, written = map(sum, zip(*figures, strict=True)) if figures else (0, 0, 0)
    return seconds, calls, written
