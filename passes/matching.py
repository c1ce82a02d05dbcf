"""Which node of one graph is which node of another, and how the two differ."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable

import onnx_ir as ir

from lstm_lower.graph.dump import attribute_text, constant_text
from lstm_lower.graph.form import node_label
from lstm_lower.passes.digests import Digests, graphs_by_name, is_constant, is_stop


@dataclasses.dataclass(frozen=True)
class NodeReference:
    """A node.

    Attributes:
        place: the graph that it is in: `main`, a function, or a body.
        op: its operator.
        name: its name, or its first output's.
    """

    place: str
    op: str
    name: str

    @classmethod
    def of(cls, node: ir.Node, place: str) -> NodeReference:
        """A reference to a node."""
        return cls(place, node.op_type, node_label(node))


@dataclasses.dataclass(frozen=True)
class NodeChange:
    """A node of both models that differs.

    Attributes:
        place: as in `NodeReference`, in the first model.
        op: its operator in the first model.
        name: its name there.
        what: what is different: a line each.
    """

    place: str
    op: str
    name: str
    what: list[str]


class Matching:
    """The matching of two models.

    Attributes:
        first, second: their digests.
        partners: node of the first -> the same node of the second.
        removed, added, changed: what is left.
    """

    def __init__(self, first: Digests, second: Digests) -> None:
        self.first = first
        self.second = second
        self.partners: dict[ir.Node, ir.Node] = {}
        self.removed: list[NodeReference] = []
        self.added: list[NodeReference] = []
        self.changed: list[NodeChange] = []

    def same(self, a: ir.Value | None, b: ir.Value | None) -> bool:
        """Whether two values are the same, or come from nodes that are, at the same output.

        What such nodes read is compared at these.
        """
        if a is None or b is None:
            return a is b
        if self.first.values[a] == self.second.values[b]:
            return True
        node = a.producer()
        return node is not None and self.partners.get(node) is b.producer() and a.index() == b.index()


def match(found: Matching, a: ir.Graph, b: ir.Graph, place: str = "main") -> None:
    """Matches the nodes of two graphs, and of the bodies of those that are matched."""
    left = [node for node in a if not is_constant(node)]
    right = [node for node in b if not is_constant(node)]
    pairs = _pairs(found, left, right)
    partners = set(pairs.values())
    found.removed += [NodeReference.of(node, place) for node in left if node not in pairs]
    found.added += [NodeReference.of(node, place) for node in right if node not in partners]
    for one in left:
        if one in pairs and found.first.nodes[one] != found.second.nodes[pairs[one]]:
            _compare(found, one, pairs[one], place)


def _pairs(found: Matching, left: list[ir.Node], right: list[ir.Node]) -> dict[ir.Node, ir.Node]:
    pairs: dict[ir.Node, ir.Node] = {}

    def take(keys: Iterable[tuple[ir.Node, Hashable]], others: Iterable[tuple[ir.Node, Hashable]]) -> None:
        waiting: dict[Hashable, collections.deque[ir.Node]] = collections.defaultdict(collections.deque)
        taken = set(pairs.values())
        for node, key in others:
            if node not in taken:
                waiting[key].append(node)
        for node, key in keys:
            if node not in pairs and waiting.get(key):
                pairs[node] = found.partners[node] = waiting[key].popleft()

    take(((node, found.first.nodes[node]) for node in left), ((node, found.second.nodes[node]) for node in right))
    take(((n, (n.op_identifier(), n.name)) for n in left if n.name), ((n, (n.op_identifier(), n.name)) for n in right))
    _take_alike(found, pairs, left, right)
    take(((n, n.name) for n in left if n.name), ((n, n.name) for n in right))
    take(((n, _first_output(n)) for n in left if _first_output(n)), ((n, _first_output(n)) for n in right))
    return pairs


def _take_alike(found: Matching, pairs: dict[ir.Node, ir.Node], left: list[ir.Node], right: list[ir.Node]) -> None:
    """Matches nodes that do the same to values that are matched, from the inputs on."""
    waiting: dict[Hashable, list[ir.Node]] = collections.defaultdict(list)
    taken = set(pairs.values())
    for node in right:
        if node not in taken:
            waiting[_kind(found.second, node)].append(node)
    for node in left:
        candidates = [] if node in pairs else waiting.get(_kind(found.first, node), [])
        for other in candidates:
            if all(found.same(x, y) for x, y in zip(node.inputs, other.inputs, strict=True)):
                pairs[node] = found.partners[node] = other
                candidates.remove(other)
                break


def _kind(digests: Digests, node: ir.Node) -> Hashable:
    attributes = tuple(sorted(digests.attributes(node).items()))
    parts = len(node.inputs), len(node.outputs), attributes, tuple(graphs_by_name(node))
    return node.op_identifier(), is_stop(node), *parts


def _first_output(node: ir.Node) -> str | None:
    return node.outputs[0].name if node.outputs else None


def _compare(found: Matching, a: ir.Node, b: ir.Node, place: str) -> None:
    what = []
    if a.op_identifier() != b.op_identifier():
        what.append(f"operator: {a.op_type} -> {b.op_type}")
    if is_stop(a) != is_stop(b):
        what.append("gradient: stopped -> flows" if is_stop(a) else "gradient: flows -> stopped")
    before, after = found.first.attributes(a), found.second.attributes(b)
    what += [
        f"attribute {name}: {_attribute(a, name)} -> {_attribute(b, name)}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]
    for position in range(max(len(a.inputs), len(b.inputs))):
        old, new = (node.inputs[position] if position < len(node.inputs) else None for node in (a, b))
        if not found.same(old, new):
            what.append(f"input {position}: {_value(old)} -> {_value(new)}")
    if len(a.outputs) != len(b.outputs):
        what.append(f"outputs: {len(a.outputs)} -> {len(b.outputs)}")
    bodies, others = graphs_by_name(a), graphs_by_name(b)
    for name in dict.fromkeys((*bodies, *others)):
        if name in bodies and name in others:
            match(found, bodies[name], others[name], f"{place} / {a.op_type} '{node_label(a)}' {name}")
            what += _results(found, bodies[name], others[name], name)
        else:
            what.append(f"{name} is {'gone' if name in bodies else 'new'}")
    if what:
        found.changed.append(NodeChange(place, a.op_type, node_label(a), what))


def _results(found: Matching, a: ir.Graph, b: ir.Graph, name: str) -> list[str]:
    """Inputs and outputs of two bodies, where they differ."""
    what = []
    if len(a.inputs) != len(b.inputs):
        what.append(f"{name} takes {len(a.inputs)} values, {len(b.inputs)} in the second")
    if len(a.outputs) != len(b.outputs):
        what.append(f"{name} gives {len(a.outputs)} values, {len(b.outputs)} in the second")
    for position, (old, new) in enumerate(zip(a.outputs, b.outputs, strict=False)):
        if not found.same(old, new):
            what.append(f"{name} output {position}: {_value(old)} -> {_value(new)}")
    return what


def _attribute(node: ir.Node, name: str) -> str:
    return attribute_text(node.attributes[name]) if name in node.attributes else "none"


def _value(value: ir.Value | None) -> str:
    return "none" if value is None else constant_text(value) or f"'{value.name}'"
